"""The public API: `hansard.connect` and the objects that it returns.

Depends on every layer below it, and is the only one that reads settings and environment. Contains
records, sessions, the browser (`browser`) and the client of restricted agents (`restricted`).
"""
