"""Optimisation of prompts: candidates are proposed, evaluated, compared and promoted.

A slice on the public core. `loop` is `hansard.prompts.optimize` and `hansard prompt optimize`;
`gepa` and `dspy` are searches by the packages of these names.
"""
