"""The archive of a log: its older positions as segments in an object store (`docs/tiers.md`)."""
