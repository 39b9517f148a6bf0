"""No principal takes all shared places: they are given in turn, and each share is bounded."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any

import pytest

import hansard
from hansard import settings
from hansard.bus.jetstream.client import Requests
from hansard.bus.portal import portal
from hansard.client import opening
from hansard.client.restricted import link as client
from hansard.client.restricted.link import Link, value_of
from hansard.operations.protocol import faults, wire
from hansard.operations.protocol.faults import ServiceBusy, ServiceGone
from hansard.operations.protocol.wire import Failed, Value
from hansard.operations.session import OPERATIONS
from hansard.service import server as service_server
from hansard.service import workspace_requests
from hansard.service.running import serving
from tests.service.support import House

PATIENCE_S = 60.0
"""Seconds within which everything happens on a busy machine; after them a test fails."""

RecordApprove = OPERATIONS["record.approvals.grant"].request
RecordFinish = OPERATIONS["record.finish"].request
RecordSql = OPERATIONS["record.sql"].request
RecordView = OPERATIONS["record.roles.view"].request

REFUSED = 24 - workspace_requests.LONG.waiting_each - workspace_requests.LONG.places_each
ENDLESS = "SELECT endless"


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """On the bus's loop."""
    return portal().run(work)


@contextlib.asynccontextmanager
async def linked(house: House, name: str) -> AsyncGenerator[Link, None]:
    """Yield a principal's bare connection."""
    link = await Link.open(house.known(name))
    try:
        yield link
    finally:
        await link.close()


class SlowTables(workspace_requests.RoleTables):
    """They answer at once, but for one question that they never answer."""

    async def ask(  # noqa: D102 -- see RoleTables
        self, asker: Any, statement: str, parameters: Sequence[object], tables: Any = None
    ) -> Any:
        del asker, parameters, tables
        if statement == ENDLESS:
            await asyncio.Event().wait()
        return hansard.types.SqlAnswer(["one"], [(1,)], 1)

    async def read(self, asker: workspace_requests.Asker, question: str, reads: Any) -> Any:  # noqa: D102 -- see RoleTables
        del asker, question, reads
        raise NotImplementedError


class Endless(House):
    """A workspace whose SQL answers at once, except for one query that never ends."""

    async def _begin(self, quiet_s: float) -> None:
        config = settings.load({}, workspace=self.workspace, data_dir=self.data_dir)
        broker = await opening.find_broker(config)
        self.stack.push_async_callback(broker.release)
        workspace = await opening.open_workspace(config)
        self.stack.push_async_callback(workspace.close)

        opened = serving(workspace, broker.runtime, tables=SlowTables(config), quiet_s=quiet_s)
        self.service = await self.stack.enter_async_context(opened)


@pytest.mark.thorough(quick="service/test_fair_queue.py::test_whatever_happens_shares_hold")
def test_endless_questions_of_one_stop_nobody(other: House) -> None:
    """Endless queries of one principal delay nobody; the excess gets a retry time."""
    endless = Endless(other.data_dir, other.workspace, other.folder)
    for name in ("ada", "bob"):
        endless.login(name)
    with endless.trusted() as record, record.run("w", run="r1", agent="eve") as eve:
        eve.message("user", "hello")
    endless.begin()

    async def work() -> tuple[list[Any], list[Any]]:
        async with linked(endless, "ada") as ada, linked(endless, "bob") as bob:
            request = wire.encode(RecordSql(ENDLESS))
            burning = [asyncio.ensure_future(once(ada, "sql", request)) for _ in range(24)]
            async with asyncio.timeout(PATIENCE_S):
                await until(lambda: sum(each.done() for each in burning) == REFUSED)
                answers = [
                    await bob.outside("roles_view", RecordView("r1")),
                    await bob.outside("sql", RecordSql("SELECT 1")),
                    await bob.outside("approvals_approve", RecordApprove("0" * 32)),
                    await bob.outside("finish", RecordFinish("r1")),
                    await ada.outside("roles_view", RecordView("r1")),
                ]
            refused = [each.result() for each in burning if each.done()]
            for each in burning:
                each.cancel()
            return answers, refused

    try:
        answers, refused = run(work())
    finally:
        endless.end()
    assert [type(each) for each in answers] == [Value, Value, Failed, Value, Value]
    assert answers[2].fault.type == "NotFound"
    assert len(refused) == REFUSED
    for each in refused:
        error = faults.ours(each.fault)
        assert isinstance(error, ServiceBusy)
        assert error.retry_after_s is not None
        assert f"retry in {error.retry_after_s:g} s" in str(error)


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something; the bound is the caller's."""
    while not holds():  # noqa: ASYNC110 -- of what is looked at, nothing tells when it changes
        await asyncio.sleep(0.01)


async def once(link: Link, verb: str, data: bytes) -> Any:
    """Return the outcome of one request, without a retry after a refusal."""
    return await link._request(verb, data)


def test_a_service_that_hangs_is_reported(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent service is given up after the promised time."""
    monkeypatch.setattr(client, "FIRST_S_MAX", 0.5)
    house.login("ada")
    house.end()

    async def work() -> None:
        config = settings.load({}, workspace=house.workspace, data_dir=house.data_dir)
        broker = await opening.find_broker(config)
        hangs = await Requests.open(broker.runtime)
        await hangs.serve(f"svc.{house.workspace}.*.*.*", lambda *_: None, "hansard")
        try:
            async with linked(house, "ada") as link, asyncio.timeout(PATIENCE_S / 2):
                with pytest.raises(ServiceGone):
                    await link.outside("roles_view", RecordView("r1"))
        finally:
            await hangs.close()
            await broker.release()

    run(work())


def test_a_long_wait_is_reported(other: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long question is answered "not yet" meanwhile."""
    monkeypatch.setattr(service_server, "PENDING_S", 0.05)
    endless = Endless(other.data_dir, other.workspace, other.folder)
    endless.login("ada")
    endless.begin()

    async def work() -> None:
        async with linked(endless, "ada") as ada:
            asking = asyncio.ensure_future(ada.outside("sql", RecordSql(ENDLESS)))
            async with asyncio.timeout(PATIENCE_S):
                service = endless.service
                assert service is not None
                await until(lambda: bool(service.questions.pending_answers))
            assert not asking.done()
            await service.close()
            async with asyncio.timeout(PATIENCE_S / 2):
                with pytest.raises(ServiceGone):
                    value_of(await asking)

    try:
        run(work())
    finally:
        endless.end()
