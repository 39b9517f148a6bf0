"""The embedded broker: one nats-server for all processes that use one data directory.

Uses files, locks and processes; no connection to the broker, and not the package nats. Provides the
lease (`lease.join`), its use by a program (`hosting`), the files (`files`), the restricted logins
(`logins`) and reading of data directories that cannot be written (`private_copy`).
"""
