"""`session.team`: tasks shared by a run's agents, and messages between them.

Uses the run's tasks and mail, and commits writes together with the step's outcome: tasks and
messages (`tasks`), and the team of both clients with claims for a block of code (`twins`).
"""
