"""Prompts, action caches and experiences: named, versioned artifacts on record.

Uses the workspace's log. Provides reading and appending of versions (`versions`), prompts and their
import (`prompts`), action caches (`caches`), experiences (`experiences`).
"""
