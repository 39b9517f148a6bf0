"""The ways of memory in and out of other programs: their folders, git, and real files to work on.

Touches folders and git repositories that it is given, and the log through spaces alone.
Gives `harnesses` (pure mappings), `folders` (whole or not there), `git` and `checkouts`.
"""
