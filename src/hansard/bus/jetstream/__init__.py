"""NATS JetStream as the log, the store of blobs and of snapshots.

Touches the broker: `client` alone imports nats.
Gives `JetStreamLog`, `Options`, blobs, snapshots, and a workspace's streams undecoded (`raw`).
"""

from hansard.bus.jetstream.blobs import JetStreamBlobs, JetStreamSnapshots
from hansard.bus.jetstream.log import JetStreamLog, open_log
from hansard.bus.jetstream.options import BrokerOptions

__all__ = ["BrokerOptions", "JetStreamBlobs", "JetStreamLog", "JetStreamSnapshots", "open_log"]
