"""Roles: the events that each may see and the actions it may do, judged by its rules alone.

Pure: it imports only the rest of the domain. It defines the events and patterns (`model`), the
permissions and the fields of events (`authorize`), the rules as a file and their check (`check`),
and verdicts, served events and state (`view`).
"""
