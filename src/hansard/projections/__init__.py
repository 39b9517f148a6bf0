"""The log made queryable: tables, statistics and sandboxed SQL in DuckDB, rebuilt at will."""
