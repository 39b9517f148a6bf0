"""State at any point: of a stream, an agent, a team, or a whole run.

Uses the ports of a log and of a store of snapshots, and folds of the domain. Provides states,
points and a team's state (`replay`), agents' states in chunks (`histories`), the boards as known to
this process (`boards`), memory (`memories`), a program's own aggregates (`aggregates`, `native`),
and a log in memory (`memory_log`).
"""
