"""Validation of a tree of memory files, before any of it is committed.

Pure: takes a tree (path to content) and modifies nothing; needs the extra `hansard[memory]`.
Returns `tree.problems`, each with path, line, rule, actual value and allowed values.
"""
