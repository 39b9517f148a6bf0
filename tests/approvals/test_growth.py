"""Cost of asking and answering: independent of the rest of the record."""

import asyncio
import itertools
from pathlib import Path

import msgspec
import pytest

import hansard
from hansard.agents.policy import approvals
from hansard.agents.policy.approvals import Approvals, stream_of
from hansard.agents.workspace import Workspace
from hansard.bus import log as waiting
from hansard.bus.clock import Clock
from hansard.bus.errors import NotFound
from hansard.domain import ids
from hansard.domain.approval import ApprovalGranted, ApprovalRequested, ApprovalStatus
from hansard.domain.events import Actor
from tests.requests import counted

pytestmark = pytest.mark.later

ADA = Actor("ada")
_clock = Clock()


async def ask(workspace: Workspace, run: str, name: str | None = None) -> str:
    """Ask a question of a run, as a session does; return its id."""
    request = ApprovalRequested(
        approval=name or ids.marked(_clock.new_id(), run),
        agent="ada",
        role="writer",
        step=1,
        tool="send",
        arguments=msgspec.Raw(b"{}"),
        call=_clock.new_id(),
        fingerprint="f",
        rule="ask",
        timeout_ms=60_000,
    )
    await Approvals(workspace.states, run).record(request, ADA)
    return request.approval


async def begin(record: hansard.AsyncRecord, *runs: str) -> None:
    """Begin runs of one agent."""
    for run in runs:
        async with record.run("w", run=run, agent="ada", role="writer"):
            pass


async def test_who_waits_is_sent_what_can_answer_it(data_dir: Path, workspace: str):
    """During a question the waiting session receives no other writes."""
    async with (
        hansard.connect_async(workspace, data_dir=data_dir) as record,
        hansard.connect_async(workspace, data_dir=data_dir) as others,
    ):
        await begin(record, "r")
        name = await ask(record.workspace, "r")
        log = record.workspace.log
        with counted(log) as traffic:
            waits = asyncio.create_task(Approvals(record.workspace.states, "r").wait(name, 60))
            await traffic.until("CONSUMER.CREATE")
            async with others.run("w", run="busy", agent="bob", role="writer") as session:
                for number in range(100):
                    await session.message("user", f"{number}")
            granted = ApprovalGranted(approval=name, by="eva")
            await Approvals(others.workspace.states, "r").record(granted, Actor("eva"))
            assert (await waits).given is ApprovalStatus.GRANTED
        assert traffic.received < 50, "others wrote 100 commits"


@pytest.mark.slow
async def test_an_answer_reads_what_it_is_about(data_dir: Path, workspace: str):
    """Answering one takes as much with 3 as with 30 other runs that ask."""
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        took: list[tuple[int, int]] = []
        numbers = itertools.count()
        for more in (3, 27):
            others = [f"o{next(numbers)}" for _ in range(more)]
            await begin(record, *others)
            for run in others:
                await ask(record.workspace, run)
            await begin(record, f"r{more}")
            name = await ask(record.workspace, f"r{more}")
            with counted(record.workspace.log) as traffic:
                await record.approvals.grant(name, by="eva")
            took.append((len(traffic.subjects), traffic.received))
        assert took[0] == took[1]
        assert len(await record.approvals.list(answered=True)) == 32


async def test_an_id_that_marks_no_run_is_not_looked_for(data_dir: Path, workspace: str):
    """No question of any run is read for it."""
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        await begin(record, "r3", "r4")
        await ask(record.workspace, "r3")
        with (
            counted(record.workspace.log) as traffic,
            pytest.raises(NotFound, match="hansard approvals"),
        ):
            await approvals.find(record.workspace, ids.marked(_clock.new_id(), "elsewhere"))
        assert traffic.received == 0


@pytest.mark.thorough(quick="test_an_answer_reads_what_it_is_about")
async def test_listing_all_takes_few_requests(data_dir: Path, workspace: str):
    """All questions of 5 runs and of 300 are read in a request for 200 runs."""
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        await begin(record, "first")
        took: list[int] = []
        for some in (range(5), range(5, 300)):
            await asyncio.gather(*(ask(record.workspace, f"r{number}") for number in some))
            with counted(record.workspace.log) as traffic:
                assert len(await record.approvals.list(answered=True)) == some.stop
            took.append(len(traffic.subjects))
        assert took[1] <= took[0] + 1


async def test_a_question_s_id_tells_its_run(data_dir: Path, workspace: str):
    """The id of a session's question is a UUID that is marked with its run."""
    async with hansard.connect_async(
        workspace, data_dir=data_dir, gate=[hansard.ask_first("send", timeout_s=30)]
    ) as record:

        async def has_question() -> str | None:
            return "asked" if await record.approvals.list() else None

        async with record.run("w", run="r", agent="ada", role="writer") as session:

            @session.tool
            async def send() -> str:
                return "sent"

            call = asyncio.create_task(send())
            log = record.workspace.log
            await waiting.until(log, has_question, lambda _: True, 30, of=stream_of("r"))
            [each] = await record.approvals.list()
            name = each.approval.id
            assert ids.is_marked(name, "r")
            assert not ids.is_marked(name, "q")
            assert (len(name), name[14]) == (36, "7")
            await record.approvals.grant(name, by="eva")
            assert await call == "sent"
