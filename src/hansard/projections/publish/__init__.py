"""Tables as they were at a position, in immutable files.

Touches the data directory and the store. Provides the files (`snapshots`), and those of a running
projector (`publisher`).
"""
