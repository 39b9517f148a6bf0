"""LangGraph's checkpoints on the record: the package's own conformance tests, delta channels, what
other runs and replays read, and what is never stored.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import AsyncIterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Any

import pytest
from typing_extensions import TypedDict

import hansard
from hansard.domain.errors import BadValue
from tests.late import LATE

if LATE:
    from langgraph.channels.delta import DeltaChannel
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.checkpoint.conformance import checkpointer_test, validate
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import END, START, StateGraph

    from hansard.ext.frameworks.langgraph import Checkpointer

    class ReadByAnother(Checkpointer):
        """Checkpointer that reads as another run does: everything from the log."""

        def __init__(self, session: Any, reader: Any) -> None:
            super().__init__(session)
            self.other = reader

        async def aget_tuple(self, config: Any) -> Any:
            """Return a checkpoint."""
            return await Checkpointer(self.other).aget_tuple(config)

        async def alist(self, config: Any, **query: Any) -> AsyncIterator[Any]:
            """Yield checkpoints."""
            async for each in Checkpointer(self.other).alist(config, **query):
                yield each


pytestmark = pytest.mark.slow(cases=1)


@pytest.mark.parametrize("reads", ["itself", "another"])
async def test_langgraphs_conformance_tests_pass(data_dir: Path, workspace: str, reads: str):
    """All capabilities, optional ones too, of the writing session and of one that reads the log."""
    async with (
        hansard.connect_async(workspace, data_dir=data_dir) as record,
        record.run("w", run="r", agent="ada") as session,
        record.run("w", run="other", agent="bob") as reader,
    ):

        @checkpointer_test(name=reads)
        async def saver() -> Any:
            yield ReadByAnother(session, reader) if reads == "another" else Checkpointer(session)

        report = await validate(saver)
    assert {name: each.failures for name, each in report.results.items() if not each.passed} == {}
    assert sum(each.tests_passed for each in report.results.values()) >= 80


def extended(notes: list[str], writes: Any) -> list[str]:
    """Return notes with those of all writes."""
    return [*notes, *(note for each in writes for note in each)]


class State(TypedDict):
    """Notes in order, kept as deltas, and a plain count."""

    notes: Annotated[list[str], DeltaChannel(extended, snapshot_frequency=4)]
    count: Annotated[int, operator.add]


def graph(saver: BaseCheckpointSaver[Any]) -> Any:
    """Return a graph whose two branches append at once, in an order that matters."""
    builder = StateGraph(State)

    def append(name: str) -> Any:
        return lambda state: {"notes": [f"{name}{state['count']}"], "count": 1}

    for name in "abc":
        builder.add_node(name, append(name))
    builder.add_edge(START, "a")
    builder.add_edge(START, "b")
    builder.add_edge(["a", "b"], "c")
    builder.add_edge("c", END)
    return builder.compile(checkpointer=saver)


def place(thread: str) -> Any:
    """Return the configuration of a thread."""
    return {"configurable": {"thread_id": thread}}


def turns(saver: BaseCheckpointSaver[Any], count: int, thread: str = "t") -> list[Any]:
    """Return the states after each turn of a thread."""
    it = graph(saver)
    return [it.invoke({"notes": [f"in{n}"], "count": 0}, place(thread)) for n in range(count)]


def test_delta_channels_are_rebuilt_and_survive_pruning(record: hansard.Record):
    """States, also those of the past and of a copy, equal LangGraph's own in memory; pruning keeps
    what the newest state needs.
    """
    memory = InMemorySaver()
    expected = turns(memory, 5)
    history = [each.values for each in graph(memory).get_state_history(place("t"))]
    with record.run("w", run="r", agent="ada") as session:
        assert turns(Checkpointer(session), 5) == expected
    with record.run("w", run="later", agent="ada") as session:
        saver = Checkpointer(session)
        it = graph(saver)
        assert [each.values for each in it.get_state_history(place("t"))] == history
        saver.copy_thread("t", "copy")
        assert [each.values for each in it.get_state_history(place("copy"))] == history
        saver.prune(["t"])
        left = list(saver.list(place("t")))
        assert 1 < len(left) < len(history)
        assert it.get_state(place("t")).values == expected[-1]
        with pytest.raises(BadValue, match="keep_latest or delete"):
            saver.prune(["t"], strategy="newest")
    with record.run("w", run="last", agent="ada") as session:
        assert turns(Checkpointer(session), 1) == turns(memory, 1)


@pytest.mark.parametrize("mode", [None, "strict"])
def test_a_run_reads_a_thread_as_it_was(record: hansard.Record, mode: str | None):
    """A replayed or resumed run gets what it read, whatever other runs stored since, and what it
    stored itself only where the program stores it again.
    """

    def work(run: str, mode: str | None = None) -> list[Any]:
        with record.run("w", run=run, agent="ada", mode=mode) as session:
            saver = Checkpointer(session)
            before = graph(saver).get_state(place("t")).values
            return [before, *turns(saver, 2)]

    work("first")
    seen = work("second")
    cut: list[Any] = []
    with contextlib.suppress(ZeroDivisionError), record.run("w", run="cut", agent="ada") as session:
        saver = Checkpointer(session)
        cut.append(graph(saver).get_state(place("t")).values)
        turns(saver, 1)
        raise ZeroDivisionError
    work("third")
    stored = "SELECT count(*) FROM thread_checkpoints"
    [before] = record.sql(stored).rows[0]
    if mode:
        assert work("second", mode) == seen
        assert record.sql(stored).rows[0] == (before,)
    else:
        resumed = work("cut")
        assert resumed[:1] == cut
        assert [len(each["notes"]) for each in resumed] == [16, 20, 24]


def test_large_values_are_kept_by_reference_and_secrets_are_not_kept(
    data_dir: Path, workspace: str
):
    """A value over 64 KiB is no part of its event; a secret is in no event and no blob."""
    options: Any = {"data_dir": data_dir, "redact": {"key": "hunter2-hunter2"}}
    with hansard.connect(workspace, **options) as record:
        for mode in (None, "strict"):
            with record.run("w", run="r", agent="ada", mode=mode) as session:
                saver = Checkpointer(session)
                notes = ["x" * 100_000, "the key is hunter2-hunter2"]
                graph(saver).invoke({"notes": notes, "count": 0}, place("t"))
                state = graph(saver).get_state(place("t")).values["notes"]
                assert state[:2] == [notes[0], "the key is <secret:key>"]
        events = record.sql("SELECT data FROM events WHERE type LIKE 'thread.%'").rows
        assert "$blob" in str(events)
        assert max(len(str(data)) for (data,) in events) < 70_000
        assert "hunter2-hunter2" not in str(events)
        with record.run("w", run="opaque", agent="ada") as session:
            address: Any = {1: IPv4Address("10.0.0.1"), "key": "hunter2-hunter2"}
            with pytest.raises(BadValue, match="holds a secret"):
                graph(Checkpointer(session)).invoke({"notes": [address], "count": 0}, place("o"))


def test_a_value_that_calls_cannot_record_is_kept_as_langgraphs_bytes(record: hansard.Record):
    """What is no value of the record comes back as LangGraph serialises it."""
    notes: Any = [IPv4Address("10.0.0.1")]
    for run in ("r", "later"):
        with record.run("w", run=run, agent="ada") as session:
            it = graph(Checkpointer(session))
            if run == "r":
                it.invoke({"notes": notes, "count": 0}, place("t"))
            assert it.get_state(place("t")).values["notes"][:1] == notes


class Words(TypedDict):
    """A state of one text."""

    word: str


class Reverses:
    """A serializer of the program's own, whose bytes say nothing."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return a value as bytes."""
        import ormsgpack  # noqa: PLC0415 -- comes with LangGraph

        return "reversed", ormsgpack.packb(obj)[::-1]

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return the value of bytes."""
        import ormsgpack  # noqa: PLC0415 -- comes with LangGraph

        return ormsgpack.unpackb(data[1][::-1])


def test_a_serializer_of_the_program_is_used_for_all_values(record: hansard.Record):
    """With a serializer, such as one that encrypts, the log has its bytes and nothing else."""
    builder = StateGraph(Words)
    builder.add_node("a", lambda state: {"word": state["word"] + " readable"})
    builder.add_edge(START, "a")
    with record.run("w", run="r", agent="ada") as session:
        saver = Checkpointer(session, serde=Reverses())
        builder.compile(checkpointer=saver).invoke({"word": "quite"}, place("t"))
    with record.run("w", run="later", agent="ada") as session:
        it = builder.compile(checkpointer=Checkpointer(session, serde=Reverses()))
        assert it.get_state(place("t")).values == {"word": "quite readable"}
    events = record.sql("SELECT data FROM events WHERE type LIKE 'thread.%'").rows
    assert "readable" not in str(events)
    assert "quite" not in str(events)


def test_two_runs_write_to_one_thread(record: hansard.Record):
    """Writers of one thread do not lose each other's checkpoints."""
    with (
        record.run("w", run="a", agent="ada") as one,
        record.run("w", run="b", agent="bob") as other,
    ):
        first, second = Checkpointer(one), Checkpointer(other)
        for saver in (first, second, first):
            turns(saver, 1)
        assert len(graph(second).get_state(place("t")).values["notes"]) == 12
        assert [*first.list(place("t"))] == [*second.list(place("t"))]
