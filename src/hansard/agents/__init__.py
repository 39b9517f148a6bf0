"""Actions of an agent in a run, and their record.

Uses the log through the bus, and the program's own tools; reads no settings and no environment.
Exports steps, policy, the board, the team, access, experiments, exchange and runs.
"""
