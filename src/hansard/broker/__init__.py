"""The embedded broker: one nats-server for all processes that use one data directory.

Touches files, locks and processes; no connection to the broker, no nats.
Gives the lease (`lease.join`), the same as a program sees it (`hosting`), the files (`files`), the
restricted logins (`logins`) and reading what cannot be written (`private_copy`).
"""
