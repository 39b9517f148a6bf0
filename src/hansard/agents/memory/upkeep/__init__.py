"""Upkeep of memory: what could be shorter, what of it must stay, what runs have to teach.

Touches trees of files as they are given, and in `reflect` the log of an open workspace.
Gives findings made without a model (`findings`), compactions with what refuses them (`compaction`),
and the runs that nobody has reflected on yet, each once (`reflect`).
"""
