"""The domain: decisions and folds over events, one aggregate a module.

Touches nothing: no clock, no randomness, no I/O; time and ids come with a command.
Gives events (the storage format), states, `evolve` and `decide`, and the values that are recorded.
"""
