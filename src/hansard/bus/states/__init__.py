"""A state at any point: of a stream, an agent, a team, a whole run.

Touches a log and a store of snapshots by their ports, and folds of the domain.
Gives states (`replay.States`), points (`points`), a team's state (`teams`), the boards as
this process knows them (`boards`) and the port of snapshots (`snapshots`); `histories` keeps an
agent's states in chunks.
"""
