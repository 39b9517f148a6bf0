"""Experiments: plans that are registered before the data, and the outcomes of their runs.

Reads and writes experiments, prices and runs' outcomes: plans, arms and what a restricted agent may
learn of them (`plans`), scores and model prices (`scoring`).
"""
