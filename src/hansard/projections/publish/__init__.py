"""Tables as they stood at a position, in files that nobody writes any more.

Touches the data directory and the store.
Gives the files (`snapshots`), and those of a projector that runs (`publisher`).
"""
