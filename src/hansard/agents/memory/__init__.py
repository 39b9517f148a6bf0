"""Memory as files over the log.

Uses the log of an open workspace. Provides spaces (`store`), the checks before a commit
(`validate`), and import from and export to the folders of other programs (`imports`, `harnesses`).
"""
