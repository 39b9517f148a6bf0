"""The domain: decisions and folds over events, one aggregate a module.

Pure: no clock, no randomness, no I/O; time and ids are fields of a command. The package defines the
events (the storage format), states, `evolve` and `decide`, and the values that are recorded.
"""
