"""The adapters that the contract suite runs against."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import count

import pytest

from hansard.broker.files import Durability
from hansard.broker.lease import Lease, join
from hansard.bus.jetstream import BrokerOptions, JetStreamLog, open_log
from hansard.bus.log import EventLog
from hansard.state.memory_log import MemoryLog

Opener = Callable[[], Awaitable[EventLog]]

_workspaces = count(1)


@pytest.fixture(scope="session")
def lease(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lease]:
    """Yield the embedded server in strict mode."""
    with join(tmp_path_factory.mktemp("embedded"), Durability.STRICT) as lease:
        yield lease


@pytest.fixture
async def jetstream(lease: Lease) -> AsyncIterator[Callable[[], Awaitable[JetStreamLog]]]:
    """Yield a function that opens logs of one new workspace."""
    workspace = f"w{next(_workspaces)}"
    opened: list[JetStreamLog] = []

    async def opener() -> JetStreamLog:
        runtime, admin = (
            BrokerOptions(urls=(lease.info.url,), user=login.user, password=login.password)
            for login in (lease.info.runtime, lease.info.admin)
        )
        opened.append(await open_log(runtime, workspace, "strict", admin=admin))
        return opened[-1]

    yield opener
    for log in opened:
        await log.close()


@pytest.fixture(params=["jetstream", "memory"])
def opener(request: pytest.FixtureRequest) -> Opener:
    """Yield a function that opens the same workspace's log each time, as another process would."""
    if request.param == "jetstream":
        jetstream: Opener = request.getfixturevalue("jetstream")
        return jetstream
    log = MemoryLog("w1")

    async def same() -> EventLog:
        return log

    return same


@pytest.fixture
async def log(opener: Opener) -> EventLog:
    """Return a new, empty log."""
    return await opener()
