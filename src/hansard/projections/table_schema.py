"""The schema of the tables: the files of `schema/`, one a subject, in the order of their names.

A file of tables keeps the version and the digest of the schema that it was made by. A file with
another digest is rebuilt from the log, so no file is ever altered; a newer version is refused.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

VERSION = 48
"""Raise it in a release that changes the schema: the releases before then refuse the file. Between
releases the digest alone tells schemas apart."""

_HERE = Path(__file__).parent


def schema_files() -> list[Path]:
    """Return the files that create every table, view and macro, in order."""
    return _files("schema/*.sql")


@cache
def schema_sql() -> str:
    """Return the statements that create every table, view and macro, in order."""
    return "\n".join(path.read_text(encoding="utf-8") for path in schema_files())


@cache
def schema_digest() -> str:
    """Return the SHA-256 of all that decides which tables, views and rows follow from a log: the
    schema, the meanings of its columns, and the statements that fill the tables.
    """
    found = hashlib.sha256()
    for path in (*_files("schema/*"), *_files("tables/*.sql")):
        text = path.read_bytes()
        found.update(f"{path.name} {len(text)}\n".encode() + text)
    return found.hexdigest()


def _files(pattern: str) -> list[Path]:
    return sorted(_HERE.glob(pattern))
