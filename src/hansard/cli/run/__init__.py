"""The commands of one run: `hansard run ...`, a module for each thing that is asked of it.

Touches what `hansard.inspect` and `hansard.agents` know of a run, and the page of `hansard.web`.
Gives the commands, which the command line loads when they are called.
"""
