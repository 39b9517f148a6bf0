"""`session.board`: state shared by all agents of a run, by key.

Uses the run's boards, and commits writes together with the step's outcome. Provides the operations
(`operations`), and the board and its transactions for both clients (`twins`).
"""
