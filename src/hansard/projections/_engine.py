"""DuckDB's engine for readers, which the package `duckdb` re-exports.

It leaves out the Python code around the engine (relations, data frames, the version), which takes
three quarters of an import. Code that passes Arrow to it has to import `duckdb`, too.
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
