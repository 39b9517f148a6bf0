"""Optimisation of prompts: candidates are proposed, evaluated, compared and promoted.

A slice on the public core. `gepa` and `dspy` are searches by the packages of these names.
"""
