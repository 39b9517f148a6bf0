"""Untrusted SQL: a worker process, a read-only file, and bounds on everything."""
