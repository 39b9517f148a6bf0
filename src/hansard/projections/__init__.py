"""The log as DuckDB tables, with statistics, search and sandboxed SQL; can be rebuilt at any time.

Touches the log through its port, and files under `projections/` of the data directory. Provides the
store, the projector that follows the log (`runner`), and the queries.
"""
