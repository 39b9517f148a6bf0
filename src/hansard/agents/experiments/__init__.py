"""Experiments: plans that are registered before the data, and what comes of their runs.

Touches experiments, prices and runs' outcomes on record.
Gives plans and arms (`plans`), what a restricted agent is told (`assignment`), judgements
(`scoring`) and prices of models (`prices`).
"""
