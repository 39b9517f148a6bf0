"""Tables of whoever asks, beside those of the record: handed to the worker as Arrow, since it opens
no file. They are there for one question, and shadow nothing of the record's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hansard.domain.errors import BadValue

TABLES_MAX = 16
"""Of one question."""

BYTES_MAX = 256 * 2**20
"""Of all of them, as Arrow: the worker holds them in memory beside what DuckDB may hold."""

WHERE = "a table for SQL"
"""What an error's text begins with."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


def check(tables: Mapping[str, bytes], bytes_max: int = BYTES_MAX) -> None:
    """Raise BadValue for a name that is none, for too many, and for what is too large."""
    for name in tables:
        if NAME.fullmatch(name) is None:
            remedy = "give letters, digits and _, 63 at most, and no digit first"
            raise BadValue(WHERE, f"{name!r:.80} is no name", remedy)
    if len({name.lower() for name in tables}) < len(tables):
        remedy = "name each otherwise: SQL takes A and a as one"
        raise BadValue(WHERE, f"two are called alike ({', '.join(tables)})", remedy)
    if len(tables) > TABLES_MAX:
        raise BadValue(WHERE, f"there are {len(tables)}", f"give {TABLES_MAX} at most")
    size = sum(map(len, tables.values()))
    if size > bytes_max:
        fact = f"{', '.join(tables)} come to {size:,} bytes as Arrow, the most is {bytes_max:,}"
        raise BadValue(WHERE, fact, "leave out columns and rows, or sum them up before")
