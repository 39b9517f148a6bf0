"""DuckDB as who only reads needs it: its engine, which the package `duckdb` gives on, without the
Python that stands around that and takes three quarters of an import (relations, data frames, its
version). Who gives it Arrow has to import `duckdb`, too.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb as engine
else:
    try:
        engine = importlib.import_module("_duckdb")
    except ImportError:  # a build of it that has the engine elsewhere
        engine = importlib.import_module("duckdb")

__all__ = ["engine"]
