"""Prompts, action caches and experiences: named, versioned artifacts on record.

Uses the workspace's log. Provides reading and appending of versions (`versions`), prompts
(`prompts`) and their import (`prompt_imports`), action caches (`caches`), experiences
(`experiences`) and the bundles that publish them (`bundles`).
"""
