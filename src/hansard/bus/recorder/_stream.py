"""One JetStream stream of the recorder: its name, its settings, its subjects."""

from __future__ import annotations

from typing import Any

from eventsourcing.persistence import OperationalError

from hansard.bus import subjects
from hansard.bus.jetstream import streams as jetstream_streams
from hansard.bus.jetstream.client import Broker


class RecorderStream:
    """Where one application's events, or its snapshots, are stored."""

    def __init__(self, name: str, purpose: str) -> None:
        self.stream = subjects.recorder_stream(name, purpose)
        self.prefix = subjects.recorder_prefix(name, purpose)
        self.everything = f"{self.prefix}.>"

    def config(self) -> dict[str, Any]:
        """The log's settings: one message a subject, the second refused, nothing deleted."""
        config = jetstream_streams.log_config("recorder")
        del config["republish"]
        return config | {"name": self.stream, "subjects": [self.everything]}

    async def create(self, broker: Broker, replicas: int | None) -> None:
        """Make the stream where it is missing. Needs rights to administer."""
        if await jetstream_streams.config_of(broker, self.stream) is None:
            await jetstream_streams.create(broker, self.config(), replicas)

    async def check(self, broker: Broker) -> None:
        """Raise OperationalError if the stream is missing, Contradiction if it has other settings:
        without ours it would store a version twice.
        """
        existing = await jetstream_streams.config_of(broker, self.stream)
        if existing is None:
            message = (
                f"stream {self.stream!r} does not exist at {broker.url}: "
                "construct the recorder once with CREATE_TABLE unset or true"
            )
            raise OperationalError(message)
        jetstream_streams.compare(self.config(), existing)
