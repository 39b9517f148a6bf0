"""Experiments: plans that are registered before the data, and the outcomes of their runs.

Reads and writes experiments, prices and runs' outcomes. Exports plans and arms (`plans`), what a
restricted agent may learn (`assignment`), scores (`scoring`) and model prices (`prices`).
"""
