"""NATS JetStream as the log, the blob store and the snapshot store.

Touches the broker: `client` alone imports nats. Provides `JetStreamLog`, `BrokerOptions`, blobs,
snapshots, and a workspace's streams undecoded (`raw`).
"""

from hansard.bus.jetstream._append import APPEND_TIMES
from hansard.bus.jetstream.blobs import JetStreamBlobs, JetStreamSnapshots
from hansard.bus.jetstream.client import BrokerOptions
from hansard.bus.jetstream.log import JetStreamLog, open_log

__all__ = [
    "APPEND_TIMES",
    "BrokerOptions",
    "JetStreamBlobs",
    "JetStreamLog",
    "JetStreamSnapshots",
    "open_log",
]
