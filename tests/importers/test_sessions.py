"""An imported run against a session that did the same: keys, fingerprints, resuming, forking."""

import asyncio
import json
from typing import Any

import pytest

import hansard
from hansard.bus.commits import revive
from hansard.domain.agent import MessageAdded
from hansard.domain.ids import AgentStream
from hansard.domain.steps import StepCompleted, StepRequested
from tests.importers.support import answer, asks, call, chat, log_of, made, of_type, says, written

pytestmark = pytest.mark.slow

CHAT = chat(
    says("user", "twice"),
    asks(call("c1", "double", '{"n": 1}')),
    answer("c1", 2),
    asks(call("c2", "double", '{"n": 1}'), call("c3", "double", '{"n": 5}'), call("c4", "half")),
    answer("c2", 2),
    answer("c3", 10),
    answer("c4", None),
    says("assistant", "done"),
    asks(call("c5", "half")),
    answer("c5", 1.5),
    outcome={},
)


async def act(session: Any, ran: list[str]) -> None:
    """Act as the agent of the chat: overlapping calls of a message, in a bare gather."""

    @session.tool
    async def double(n: int) -> int:
        ran.append("double")
        await asyncio.sleep(0.01)
        return n * 2

    halves = iter((None, 1.5))

    @session.tool
    async def half() -> Any:
        ran.append("half")
        await asyncio.sleep(0.01)
        return next(halves)

    tools = {"double": double, "half": half}
    for message in CHAT["messages"]:
        more = {k: v for k, v in message.items() if k not in ("role", "content")}
        await session.message(message["role"], message["content"], fields=more)
        functions = [each["function"] for each in message.get("tool_calls", ())]
        arguments = [json.loads(each["arguments"]) for each in functions]
        overlapping = zip(functions, arguments, strict=True)
        await asyncio.gather(*(tools[each["name"]](**named) for each, named in overlapping))


def test_keys_and_fingerprints_are_those_of_a_session(home, workspace):
    """Imported calls and messages have the keys and fingerprints of a session's own."""

    async def run() -> str:
        async with (
            hansard.connect_async(workspace=workspace, data_dir=home) as record,
            record.run("w", agent="assistant", role="assistant") as session,
        ):
            await act(session, [])
            return str(session.run)

    asyncio.run(run())
    events_of_session = [
        revive(recorded)
        for stored in log_of(home, workspace)
        if isinstance(stored.stream, AgentStream)
        for recorded in stored.commit.events
    ]
    out = made(CHAT)
    requests = [e for e in events_of_session if isinstance(e, StepRequested)]
    assert [(e.call, e.fingerprint, e.after, e.unordered) for e in requests] == [
        (e.call, e.fingerprint, e.after, e.unordered) for e in of_type(out, StepRequested)
    ]
    done = {e.step: e.digest for e in events_of_session if isinstance(e, StepCompleted)}
    assert done == {e.step: e.digest for e in of_type(out, StepCompleted)}
    fingerprints = [e.fingerprint for e in events_of_session if isinstance(e, MessageAdded)]
    same = [e.fingerprint for e in of_type(out, MessageAdded)]
    assert [a == b for a, b in zip(fingerprints, same, strict=True)] == [
        n not in (4, 5) for n in range(10)
    ]


def test_an_agent_resumes_an_imported_run_without_running_its_tools(
    home, workspace, bring_in, tmp_path
):
    """A session answers the calls of an imported run from the record."""
    record_ = {**CHAT}
    del record_["outcome"]
    result = bring_in("chat-jsonl", written(tmp_path / "a.jsonl", [record_]))
    assert result.code == 0
    run_id = made(record_).run
    ran: list[str] = []

    async def resume() -> Any:
        async with hansard.connect_async(workspace=workspace, data_dir=home) as record:
            async with record.run(run=run_id, agent="assistant", role="assistant") as session:
                await act(session, ran)
            return await record.state(run_id)

    state = asyncio.run(resume())
    assert ran == []
    agent = state.agents["assistant"]
    assert (agent.epoch, len(agent.steps), len(agent.messages)) == (2, 5, len(CHAT["messages"]))
    assert state.life.status == "completed"
