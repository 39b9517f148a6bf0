"""Aggregates of a program's own, saved together with the step that changed them.

Imports of the `eventsourcing` library only what a declaration needs (`declare`). Provides `declare`
(`hansard.aggregate_type`) and `operations` (`session.save`, `session.get`).
"""
