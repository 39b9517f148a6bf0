"""A state at any point: of a stream, an agent, a team, a whole run.

Touches a log and a store of snapshots by their ports, and folds of the domain.
Gives states, points and a team's state (`replay`), agents' states in chunks (`histories`), the
boards as this process knows them (`boards`), memory (`memories`) and a program's own aggregates
(`aggregates`).
"""
