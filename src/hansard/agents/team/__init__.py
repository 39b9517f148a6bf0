"""`session.team`: the tasks that a run's agents share, and the messages between them.

Touches the run's tasks and mail, and writes with the step's outcome in one commit.
Gives tasks (`tasks`), messages (`mail`), a claim for a block of code (`claimed`), waiting
(`wait_for`, `follow`) and the team of the two clients (`twins`).
"""
