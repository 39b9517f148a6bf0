"""Roles: the events that each may see and the actions it may do, judged by its rules alone.

Pure: it imports only the rest of the domain. It defines the events and patterns (`model`), the
fold, the rules as a file and their check (`check`), the fields of events (`fields`), verdicts
(`judge`, `authorize`), and the served events and state (`view`).
"""
