"""What whoever asks gives beside the question: parameters, and tables, which are handed to the
worker as Arrow, since it opens no file. They are there for one question, and shadow nothing of the
record's.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

from hansard.domain.errors import BadValue

INTEGER_MAX = 2**63 - 1
"""Of a parameter: DuckDB's BIGINT."""

TABLES_MAX = 16
"""Of one question."""

BYTES_MAX = 256 * 2**20
"""Of all of them, as Arrow: the worker holds them in memory beside what DuckDB may hold."""

WHERE = "a table for SQL"
"""What an error's text begins with."""

NAME = re.compile(r"[^\W\d]\w{0,62}")


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


def parameter(given: object) -> object:
    """Return a parameter as it is sent: a scalar of numpy or pandas as Python's own, an array as a
    list. Raises BadValue.
    """
    given = _as_python(given)
    if isinstance(given, list | tuple):
        return [parameter(each) for each in given]
    fits = given is None or isinstance(given, str | int | float | date | datetime)
    unfit = isinstance(given, float) and not math.isfinite(given)
    unfit |= isinstance(given, int) and not -INTEGER_MAX <= given <= INTEGER_MAX
    if not fits or unfit:
        remedy = "give a text, a finite number, true or false, None, a date, a time or a list"
        raise BadValue("a parameter of SQL", f"{given!r:.80}", remedy)
    return given


def _as_python(given: Any) -> object:
    """Return a value of numpy or pandas as Python has it; no package is imported for it."""
    cls = type(given)
    package = cls.__module__.partition(".")[0]
    if package == "numpy":
        if cls.__name__ == "datetime64":
            given = given.astype("datetime64[us]")
        return given.tolist()
    if package != "pandas":
        return given
    if cls.__name__ in ("NaTType", "NAType"):
        return None
    if cls.__name__ == "Timestamp":
        with warnings.catch_warnings():  # of nanoseconds, which Python's times do not have
            warnings.simplefilter("ignore")
            return given.to_pydatetime()
    return given.tolist() if hasattr(given, "tolist") else given
