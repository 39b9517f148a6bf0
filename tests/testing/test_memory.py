"""The record in memory: the same client, the same record, and no broker."""

import subprocess
import sys
from typing import Any

import pytest

import hansard
from hansard import testing
from hansard.client.record import Record
from hansard.testing import Memory


def work(record: Any) -> str:
    """Something of each part of a session; the run's id."""
    with record.run("w", agent="a", role="r") as session:

        @session.tool(effects="idempotent")
        def look(place: str) -> str:
            session.usage(tokens=1)
            return place * 40_000

        look("x")
        session.message("user", "hello")
        session.decide("go on?", selected="yes")
        session.checkpoint("half")
        session.board.put("k", {"n": 1})
        with session.board.transaction() as together:
            together.put("k", {"n": 2})
            together.put("l", 1)
        session.team.add("a task", task="t")
        with session.team.claimed() as task:
            task.result = {"n": 3}
        session.team.send("m", agent="a")
        session.team.inbox()
        return str(session.run)


def kept(record: Record, run: str) -> list[Any]:
    """Return a run without its times, ids and durations."""
    view = record.state(run)
    steps = [
        (each.number, each.tool, each.effects, each.arguments, each.status, each.verdict)
        for each in view.agents["a"].steps.values()
    ]
    facts = [(noted.version, type(noted.fact).__name__) for noted in view.agents["a"].facts]
    board = {key: (state.version, state.value) for key, state in view.boards.items()}
    tasks = {task.id: task.status for task in view.team.tasks.values()}
    return [view.life.status, view.vector, steps, facts, board, tasks]


def test_the_same_comes_on_record_as_over_a_broker(record):
    """A program leaves equal states over a broker and in memory."""
    with testing.record() as memory:
        assert kept(memory, work(memory)) == kept(record, work(record))


def test_a_memory_is_opened_again():
    """Another record of a memory sees the stored events, as another process would."""
    memory = Memory()
    with memory.record() as record:
        run = work(record)
    with memory.record() as record:
        assert [name for name, _ in record.runs()] == [run]


async def test_both_clients_share_a_memory():
    """The async client reads and continues another client's record."""
    memory = Memory()
    async with memory.record_async() as record, record.run("w", agent="a") as session:
        await session.board.put("k", 1)
    async with memory.record_async() as record:
        view = await record.state(session.run)
        assert view.boards["k"].version == 1
    async with testing.record_async() as record:
        assert await record.runs() == []


def test_an_option_of_a_broker_is_refused():
    """A memory record has no data directory, and the message lists its options."""
    with pytest.raises(hansard.errors.BadOption, match="gate, redact, secrets, settle, run, mode"):
        testing.record(data_dir="x")  # type: ignore[call-arg] # there is none


def test_a_record_from_elsewhere_is_loaded(record, call, tmp_path):
    """A memory takes an export, and its own export is imported, byte for byte."""
    run = work(record)
    there = tmp_path / "there.jsonl"
    assert call("export", run, "--output", there).code == 0
    memory = Memory()
    memory.load(there)
    with memory.record() as again:
        assert kept(again, run) == kept(record, run)
    here = tmp_path / "here.jsonl"
    memory.export(here)
    assert call("import", "events", here, "--json").code == 0
    testing.given(there).when(lambda record: record.state(run).life.status).then_returns(
        "completed"
    )


def test_a_damaged_file_is_not_taken(tmp_path):
    """The error has the position of the damage."""
    memory = Memory()
    with memory.record() as record:
        work(record)
    file = tmp_path / "runs.jsonl"
    memory.export(file)
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(hansard.BadValue, match=r"runs\.jsonl"):
        Memory().load(file)


@pytest.mark.slow
def test_no_broker_is_started():
    """In a process of its own: no server, no connection, no file."""
    script = """
import socket, subprocess, tempfile
from hansard import testing

def refuse(*given, **more):
    raise RuntimeError(given)

socket.socket.connect = subprocess.Popen.__init__ = refuse
with testing.record() as record, record.run("w") as session:
    session.board.put("k", 1)
print("done")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=170
    )
    assert done.stdout == "done\n", done.stderr
