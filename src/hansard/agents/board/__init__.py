"""`session.board`: state that all agents of a run share, by key.

Touches the run's boards, and writes with the step's outcome in one commit.
Gives the operations (`operations`), several keys at once (`transaction`) and the board of the two
clients (`twins`).
"""
