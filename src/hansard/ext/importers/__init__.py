"""Recorded runs of other systems, brought into the record.

Touches files of theirs, and the log of an open workspace.
Gives the formats (`sources`, `chat`, `tau`, `devtools`), one mapping to events, and the import
(`reader`).
"""
