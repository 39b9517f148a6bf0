"""Makes the recorders, as the library's environment variables say."""

from __future__ import annotations

from typing import TypeVar

from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    InfrastructureFactory,
    InfrastructureFactoryError,
    ProcessRecorder,
)
from eventsourcing.utils import Environment, EnvType, resolve_topic, strtobool

from hansard.bus.recorder._access import access_of
from hansard.bus.recorder._datastore import Datastore
from hansard.bus.recorder._recorders import (
    EVENTS,
    JetStreamAggregateRecorder,
    JetStreamApplicationRecorder,
    JetStreamProcessRecorder,
    JetStreamRecorder,
    JetStreamTrackingRecorder,
)

R = TypeVar("R", bound=JetStreamRecorder)


class JetStreamFactory(InfrastructureFactory[JetStreamTrackingRecorder]):
    """Recorders over JetStream, one stream for an application's events, one for its snapshots.

    CREATE_TABLE (default yes): make the streams where they are missing; else they must be there
    when first used. APPLICATION_RECORDER_TOPIC, PROCESS_RECORDER_TOPIC and TRACKING_RECORDER_TOPIC
    name subclasses to use. How the broker is reached: `hansard.bus.recorder._access`. Nothing is
    opened before the first recorder needs it. `close()` closes the connections of all of them and
    lets go of the embedded broker.
    """

    CREATE_TABLE = "CREATE_TABLE"

    aggregate_recorder_class = JetStreamAggregateRecorder
    application_recorder_class = JetStreamApplicationRecorder
    tracking_recorder_class = JetStreamTrackingRecorder
    process_recorder_class = JetStreamProcessRecorder

    def __init__(self, env: Environment | EnvType | None) -> None:
        super().__init__(env)
        self.datastore = Datastore(access_of(self.env))

    def aggregate_recorder(self, purpose: str = EVENTS) -> AggregateRecorder:
        """A recorder of `events` or of `snapshots`."""
        return self._made(self.aggregate_recorder_class, purpose)

    def application_recorder(self) -> ApplicationRecorder:
        """A recorder of an application's events."""
        named = self._named(self.APPLICATION_RECORDER_TOPIC, self.application_recorder_class)
        return self._made(named)

    def tracking_recorder(
        self, tracking_recorder_class: type[JetStreamTrackingRecorder] | None = None
    ) -> JetStreamTrackingRecorder:
        """A recorder of positions alone."""
        named = tracking_recorder_class or self._named(
            self.TRACKING_RECORDER_TOPIC, self.tracking_recorder_class
        )
        return self._made(named)

    def process_recorder(self) -> ProcessRecorder:
        """A recorder of events and positions together."""
        named = self._named(self.PROCESS_RECORDER_TOPIC, self.process_recorder_class)
        return self._made(named)

    def env_create_table(self) -> bool:
        """Whether missing streams are made."""
        default = "yes"
        return strtobool(self.env.get(self.CREATE_TABLE, default) or default)

    def close(self) -> None:
        """Close every connection. Recorders and subscriptions end with InterfaceError."""
        self.datastore.close()

    def _named(self, key: str, default: type[R]) -> type[R]:
        topic = self.env.get(key)
        if not topic:
            return default
        found = resolve_topic(topic)
        if not (isinstance(found, type) and issubclass(found, default)):
            message = f"{key} is {topic!r}: name a subclass of {default.__qualname__}"
            raise InfrastructureFactoryError(message)
        return found

    def _made(self, recorder_class: type[R], purpose: str = EVENTS) -> R:
        recorder = recorder_class(self.datastore, self.env.name, purpose)
        if self.env_create_table():
            recorder.create_table()
        return recorder
