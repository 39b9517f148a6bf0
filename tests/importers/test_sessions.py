"""An imported run against a session that did the same: keys, fingerprints, resuming, forking."""

import asyncio
import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.bus.commits import revive
from hansard.domain.agent import MessageAdded
from hansard.domain.ids import AgentStream
from hansard.domain.steps import StepCompleted, StepRequested
from tests.cli.support import environment
from tests.faults._warm import python
from tests.importers import dying
from tests.importers.support import (
    answer,
    asks,
    bodies,
    call,
    chat,
    log_of,
    made,
    of_type,
    says,
    stored_beyond,
    written,
)

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


# ------------------------------------------------------------ kills


PROGRAM = Path(dying.__file__)

RUNS = 100
MORE_KILLS_MAX = 20
"""Largest number of further kills until one hits the middle of an import."""


def records():
    """Runs of several sizes, some with contents that are blobs."""
    chance = random.Random(3)
    for n in range(RUNS):
        turns = chance.randrange(1, 20)
        messages = [says("user", "x" * chance.choice((10, 1_000, 70_000)) + str(n))]
        for turn in range(turns):
            messages += [asks(call("c", "t", json.dumps({"turn": turn}))), answer("c", turn)]
        yield chat(*messages, run=n, trial=n, outcome={"reward": chance.random()})


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Return a file whose import takes about a second."""
    return written(tmp_path_factory.mktemp("kill") / "chats.jsonl", records())


@pytest.fixture(scope="module")
def undisturbed(home, file):
    """Return the log of an import that nobody killed, by place."""
    argv = ["-w", "undisturbed", "import", "chat-jsonl", "-"]
    subprocess.run(
        [python(), "-m", "hansard", *argv],
        env=environment(home),
        input=file.read_bytes(),
        stdout=subprocess.PIPE,
        check=True,
    )
    return dict(bodies(home, "undisturbed"))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_killed_import_goes_on_where_it_was(home, start, file, undisturbed, rounds):
    """An import killed at random and run again stores every commit once."""
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    data = file.read_bytes()
    halves = 0
    count, number = rounds(2, 40) // 2, 0
    while number < count or (not halves and number < count + MORE_KILLS_MAX):
        number += 1
        into, hint = f"killed-{seed}-{number}", f"seed {seed}, round {number}"
        with file.open("rb") as stdin:
            child = start("-w", into, "import", "chat-jsonl", "-", stdin=stdin)
        stored_beyond(home, into, chance.randrange(len(undisturbed) // 2))
        child.kill()
        child.communicate(timeout=170)
        before = [stored.body for stored in log_of(home, into)]
        halves += 0 < len(before) < len(undisturbed)
        again = start("-w", into, "import", "chat-jsonl", "-", "--json", stdin=subprocess.PIPE)
        out, err = again.communicate(data, timeout=120)
        assert again.returncode == 0, (hint, err)
        # What was on its way when it was killed may be stored after we looked.
        assert json.loads(out)["new"] <= len(undisturbed) - len(before), hint
        assert [stored.body for stored in log_of(home, into)][: len(before)] == before, hint
        imported = bodies(home, into)
        assert len(imported) == len(undisturbed), hint
        assert dict(imported) == undisturbed, hint
    assert halves > 0, f"no kill of seed {seed} came in the middle"
