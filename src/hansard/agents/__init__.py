"""What an agent does in a run, and what is put on record of it.

Touches the log by the bus, and the program's own tools; no settings, no environment.
Gives steps, policy, the board, the team, access, experiments, export and import, and runs.
"""
