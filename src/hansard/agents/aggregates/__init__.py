"""Aggregates of a program's own, saved with the step that changed them.

Of the `eventsourcing` library nothing is imported but what a declaration needs (`declare`).
Gives `declare` (`hansard.aggregate_type`), `operations` (`session.save`, `session.get`) and
`write` (a save and its step, in one transaction).
"""
