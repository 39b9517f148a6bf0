"""The protocol between a restricted agent's client and the service.

Opens no connection. Contains messages (`wire`, `shapes`), errors (`errors`, `faults`) and callbacks
of a client (`remote_call`).
"""
