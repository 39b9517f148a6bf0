"""A nats-server that tests may kill, stop and start again; factories of recorders on it."""

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from eventsourcing.utils import Environment

from hansard.bus.recorder import Factory, JetStreamFactory
from tests.bus.brokers import Nats, running

Variables = dict[str, str]


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Nats]:
    """A server for the tests of one file."""
    with running(tmp_path_factory.mktemp("nats")) as nats:
        yield nats


@pytest.fixture(scope="module")
def variables(server) -> Variables:
    """What an application's environment says, to reach it."""
    return {
        "PERSISTENCE_MODULE": "hansard.bus.recorder",
        "NATS_URL": f"nats://127.0.0.1:{server.port}",
        "NATS_USER": "admin",
        "NATS_PASSWORD": "admin",
    }


@pytest.fixture
def factory_of(variables) -> Iterator[Callable[..., JetStreamFactory]]:
    """Makes factories on the server, closed after the test; in a test, one name is one stream."""
    made: list[JetStreamFactory] = []
    own = uuid4().hex

    def make(name: str = "app", **more: str) -> JetStreamFactory:
        made.append(Factory(Environment(f"{name}{own}", variables | more)))
        return made[-1]

    yield make
    for factory in made:
        factory.close()
