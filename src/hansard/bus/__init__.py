"""The bus: the log, its codec and its adapters. The log is the only source of truth.

Touches the broker (`jetstream`, `server`) and the data directory.
Gives the port (`log`), what reads by it (`states`, `validation`), the writer and the sender of
joint writes (`atomic_sender`), blobs, and clocks.
"""
