"""What a restricted agent's client and the service say to each other.

Touches no connection: forms, errors and what stays in the client's program.
Gives the forms (`wire`, `shapes`), errors (`errors`, `faults`) and programs (`program`,
`remote_call`).
"""
