"""Read operations for people and programs.

Each returns a struct and prints or writes nothing. Uses `agents` and `projections`. Each answer
knows its own lines for programs (`answer`).
"""
