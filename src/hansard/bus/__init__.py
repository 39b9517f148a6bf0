"""The log, its codec and its adapters. The log is the only source of truth.

Touches the broker (`jetstream`) and the data directory. Provides the port (`log`), readers of it
(`validation`), the writer and the sender of joint writes (`atomic_sender`), blobs, and clocks.
"""
