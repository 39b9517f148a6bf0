"""The domain: decisions and folds over events. Pure: no clock, no randomness, no I/O."""
