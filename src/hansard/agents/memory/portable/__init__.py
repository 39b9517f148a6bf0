"""Import and export of memory: other programs' folders, git, and checkouts to work on.

Accesses the folders and git repositories that it is given, and the log through spaces only.
Provides `harnesses` (pure mappings), `folders` (atomic writes), `imports` and `checkouts`.
"""
