"""The eventsourcing library's persistence module over JetStream.

Set `PERSISTENCE_MODULE=hansard.bus.recorder`, and NATS_URL for an outside server; without it the
embedded one of HANSARD_DATA_DIR is used. Each application has a stream of its own, one event a
message, beside those of Hansard's workspaces and independent of them.
"""

from hansard.bus.recorder._errors import OutcomeUnknown
from hansard.bus.recorder._factory import JetStreamFactory
from hansard.bus.recorder._recorders import (
    JetStreamAggregateRecorder,
    JetStreamApplicationRecorder,
    JetStreamProcessRecorder,
    JetStreamTrackingRecorder,
)
from hansard.bus.recorder._subscription import JetStreamSubscription

Factory = JetStreamFactory
"""The name that the library's own persistence modules give theirs."""

__all__ = [
    "Factory",
    "JetStreamAggregateRecorder",
    "JetStreamApplicationRecorder",
    "JetStreamFactory",
    "JetStreamProcessRecorder",
    "JetStreamSubscription",
    "JetStreamTrackingRecorder",
    "OutcomeUnknown",
]
