"""The sync client's loop thread: after a fork, and where another loop runs already."""

import asyncio
import os
from typing import Any

import pytest

import hansard
from hansard.bus.portal import SyncInLoop
from hansard.domain.run import RunStatus


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize("how", ["os.fork", "multiprocessing"])
def test_a_forked_child_connects_on_its_own(stage, how):
    """A forked child connects on its own; the inherited record is refused before any effect."""
    report = stage.go_on("forks", how=how)
    assert (report.error, report.results) == ("", [7, 0, 14])
    [child] = stage.world.read("child")
    assert child["result"] == 28
    assert child["refused"].startswith("AfterFork: ")
    assert "call hansard.connect(...) in the child" in child["refused"]
    assert [line["number"] for line in stage.world.read("bodies")] == [1, 2]
    assert stage.record.state("child").life.status == "completed"
    assert stage.view().life.status == "completed"
    assert {name: len(agent.steps) for name, agent in stage.view().agents.items()} == {"parent": 2}


async def test_connecting_inside_a_running_loop_is_refused(server, workspace):
    """The error names the async client as the remedy."""
    with pytest.raises(SyncInLoop, match=r"connect_async\(\.\.\.\) and await"):
        hansard.connect(workspace=workspace, **server.login)


def test_a_record_used_inside_a_running_loop_is_refused(stage):
    """A sync record inside a running loop is refused before a tool runs or counts as called."""
    calls = []

    def work(session: hansard.Session) -> Any:
        @session.tool
        def send(word):
            calls.append(word)
            return f"sent {word}"

        return send

    with stage.record.run("loops", run="r1", agent="worker", role="worker") as session:
        send = work(session)

        async def inside() -> Any:
            with pytest.raises(SyncInLoop, match="connect_async"):
                send("letter")
            with pytest.raises(SyncInLoop, match="connect_async"):
                session.checkpoint("here")
            with pytest.raises(SyncInLoop, match="connect_async"), stage.record.run("other"):
                pass

        asyncio.run(inside())
        assert calls == []
        assert send("letter") == "sent letter"
    with stage.record.run("loops", run="r1", agent="worker", role="worker") as session:
        assert work(session)("letter") == "sent letter"
    assert calls == ["letter"]
    assert [name for name, _ in stage.record.runs()] == ["r1"]


def test_the_sync_client_works_in_a_thread_beside_a_loop(stage):
    """The remedy that the error gives besides: what is refused in a loop works from a thread."""

    def in_thread() -> Any:
        with stage.record.run("threads", run="r1", agent="worker", role="worker") as session:

            @session.tool
            def seven():
                return 7

            return seven()

    async def inside() -> Any:
        return await asyncio.to_thread(in_thread)

    assert asyncio.run(inside()) == 7


def test_a_record_of_another_event_loop_is_refused(server, workspace):
    """A record of another event loop is refused by name; nothing is written."""
    calls = []

    async def elsewhere(record: hansard.AsyncRecord, session: Any, send: Any) -> None:
        async with asyncio.timeout(5):
            with pytest.raises(hansard.errors.OtherLoop, match="opened in one event loop"):
                await record.runs()
            with pytest.raises(hansard.errors.OtherLoop):
                await record.open("other")
            if session is not None:
                with pytest.raises(hansard.errors.OtherLoop):
                    await send("letter")
                with pytest.raises(hansard.errors.OtherLoop):
                    await session.checkpoint("here")

    async def first() -> hansard.AsyncRecord:
        record = await hansard.connect_async(workspace=workspace, **server.login)
        async with record.run("loops", run="r1") as session:

            @session.tool
            async def send(word):
                calls.append(word)
                return word

            await asyncio.to_thread(asyncio.run, elsewhere(record, session, send))
            assert await send("letter") == "letter"
            assert [step.tool for step in session.state.steps.values()] == ["send"]
        assert (await record.state("r1")).life.status is RunStatus.COMPLETED
        return record

    record = asyncio.run(first())
    asyncio.run(elsewhere(record, None, None))
    assert calls == ["letter"]
