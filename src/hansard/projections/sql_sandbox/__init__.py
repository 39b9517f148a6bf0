"""Untrusted SQL: a worker process, a read-only file, and bounds on everything.

Touches published tables only, and only in its workers.
Gives the sandbox (`sandbox`), its answers (`answer`), what one may cost (`limits`), its errors
(`errors`).
"""
