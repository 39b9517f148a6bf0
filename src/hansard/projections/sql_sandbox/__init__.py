"""Untrusted SQL: a worker process, a read-only file, and limits on everything.

Touches published tables only, and only in its workers. Provides the sandbox (`sandbox`), its
answers (`answer`), its limits (`limits`), its errors (`errors`).
"""
