"""Optimisation of prompts: the searches of GEPA and DSPy."""
