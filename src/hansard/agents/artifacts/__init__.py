"""Prompts, action caches and experiences: named things on record that have versions.

May touch the workspace's log. Gives the one way to read and append versions (`versions`), prompts
(`prompts`) and their import (`prompt_imports`), action caches (`caches`), experiences
(`experiences`) and the bundles in which an experience is published (`bundles`).
"""
