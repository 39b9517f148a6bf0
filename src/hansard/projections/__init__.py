"""The log made queryable: tables, statistics and sandboxed SQL in DuckDB, rebuilt at will.

Touches the log by its port, and files under `projections/` of the data directory.
Gives the store, what follows the log into it (`runner`), and what is asked of it.
"""
