"""The log, its codec and its adapters. The log is the only source of truth.

Touches the broker (`jetstream`) and the data directory. Provides the port (`log`), readers of it
(`reads`), its recheck (`recheck`), the writers (`writer`), blobs, and clocks.
"""
