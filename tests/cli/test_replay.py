"""`run replay` without a command derives every call again from the record."""

import random
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

import hansard
from hansard.domain.events import Commit, Recorded
from hansard.domain.fingerprint import canonical, digest
from tests.cli.planting import copied
from tests.cli.support import BIG, Call, Runs


def test_every_call_of_a_real_run_derives_again(call: Call, runs: Runs):
    """Call keys, fingerprints and digests of all agents, large values included; no tool runs."""
    result = call("run", "replay", runs.team)
    assert result.code == 0
    assert "14 calls from the record, 0 tools run" in result.out
    assert "every fingerprint and digest is as recorded" in result.out
    *calls, summary = call("run", "replay", runs.team, "--json").lines
    assert summary == {
        "kind": "summary",
        "run": runs.team,
        "tools_run": 0,
        "calls": 14,
        "differ": 0,
        "unproven": 0,
    }
    assert [c["result"] for c in calls if c["tool"] == "big"] == ["x" * BIG]
    assert [len(c["arguments"]["messages"]) for c in calls if c["tool"] == "chat"] == [1, 2, 3]


@pytest.mark.parametrize("name", ["failed", "doubt", "settled", "forked"])
def test_runs_that_did_not_go_well_derive_too(call: Call, runs: Runs, name: str):
    """Blocked, in doubt, settled, and a fork's calls from before its cut."""
    result = call("run", "replay", getattr(runs, name), "--json")
    assert (result.code, result.lines[-1]["differ"]) == (0, 0)
    assert result.lines[-1]["calls"] >= 1


class Program:
    """A run made up from a seed: calls in sequence, nested, side by side, in loops."""

    def __init__(self, session: hansard.Session, seed: int) -> None:
        self.session = session
        self.choose = random.Random(seed)

        @session.tool(effects="pure")
        def add(a: int, b: int) -> int:
            return a + b

        @session.tool(effects="idempotent")
        def fail(a: int) -> int:
            raise LookupError(f"no {a}")

        @session.tool(effects="composite")
        def nest(depth: int) -> str:
            return self.some(depth - 1)

        self.add, self.fail, self.nest = add, fail, nest

    def some(self, depth: int) -> str:
        """Make a few calls of any kind."""
        for _ in range(self.choose.randrange(1, 4)):
            self.one(depth)
        return "done"

    def one(self, depth: int) -> None:
        """Make one call, or several together."""
        kind = self.choose.randrange(6 if depth > 0 else 2)
        number = self.choose.randrange(3)
        if kind == 0:
            self.add(number, number)
        elif kind == 1:
            with pytest.raises(LookupError):
                self.fail(number)
        elif kind == 2:
            self.nest(depth)
        elif kind == 3:
            self.beside(depth)
        elif kind == 4:
            for item in self.session.resumable(
                range(number + 2), every=2, name=f"loop-{self.choose.random()}"
            ):
                if item != 0:
                    self.some(depth - 1)
        else:
            first = self.session.thread(self.add, 1, number)
            second = self.session.thread(self.add, 2, number)
            second.result()
            self.add(3, number)
            first.result()

    def beside(self, depth: int) -> None:
        """Branches of their own, some with no call: each its own source of choices."""
        branches: list[Callable[[], Any]] = []
        for _ in range(self.choose.randrange(1, 4)):
            branch = Program.__new__(Program)
            branch.__dict__ |= self.__dict__
            branch.choose = random.Random(self.choose.random())
            branches.append(partial(branch.some, depth - 1))
        self.session.gather(*branches)


@pytest.mark.thorough
@pytest.mark.long
def test_any_tree_of_calls_derives_again(call: Call, record: hansard.Record, rounds):
    """Derivation proves every tree of calls equal, however many joins separate two calls."""
    for seed in range(rounds(5, 60)):
        chain = ("result", "full")[seed % 2]
        with record.run("made-up", agent="a", role="r", chain=chain) as session:
            run = session.run
            program = Program(session, seed)
            for _ in range(4):
                program.one(3)
        result = call("run", "replay", run, "--json")
        wrong = [line for line in result.lines[:-1] if line["differs"]]
        assert (seed, wrong, result.code) == (seed, [], 0)
        assert (seed, result.lines[-1]["unproven"]) == (seed, 0)


def test_a_run_of_the_full_chain_derives_again(call: Call, record: hansard.Record):
    """Nested, beside each other and in loops: each fingerprint follows from the one before."""
    with record.run("made-up", agent="a", role="r", chain="full") as session:
        run = session.run
        program = Program(session, 3)
        for kind in (0, 2, 3, 4):
            program.add(kind, kind)
            if kind == 2:
                program.nest(2)
            elif kind == 3:
                program.beside(2)
            elif kind == 4:
                for item in session.resumable(range(3)):
                    program.add(item, 1)
        program.add(5, 5)
    *calls, summary = call("run", "replay", run, "--json").lines
    assert len(calls) > 8
    assert (summary["differ"], summary["unproven"]) == (0, 0)


@pytest.mark.parametrize("forged", ["result", "end", "head", "idle"])
def test_what_a_step_tells_of_joins_is_held_to_the_results(call: Call, home: Path, forged: str):
    """A result that was changed before a join is noticed behind it, and so is a changed join."""
    source, target = f"s{uuid4().hex[:12]}", f"t{uuid4().hex[:12]}"
    hansard.connect(workspace=target, data_dir=home).close()
    with hansard.Session("w", agent="a", role="r", workspace=source, data_dir=home) as session:

        @session.tool(effects="pure")
        def add(a: int, b: int) -> int:
            return a + b

        session.gather(lambda: None, lambda: session.gather(partial(add, 1, 2), lambda: None))
        add(3, 4)
    *calls, summary = call("run", "replay", "last", "--json", workspace=source).lines
    assert (len(calls), summary["differ"], summary["unproven"]) == (2, 0, 0)

    def change(data: dict[str, Any]) -> None:
        if forged == "result":
            data |= {"result": 4, "digest": digest(canonical(4))}
        elif "joins" in data:
            last = data["joins"][-1]
            if forged == "end":
                last["ends"][1] = digest(b"another")
            elif forged == "head":
                last["head"] = digest(b"another")
            else:
                last["ends"].append(last["head"])

    kind = "step.completed.v1" if forged == "result" else "step.requested.v1"

    def commit(original: Commit) -> Commit:
        events = []
        for recorded in original.events:
            data = msgspec.json.decode(recorded.data)
            if recorded.type == kind and data["step"] == 1 + (forged != "result"):
                change(data)
            raw = msgspec.Raw(msgspec.json.encode(data))
            events.append(msgspec.structs.replace(recorded, data=raw))
        return msgspec.structs.replace(original, events=tuple(events))

    copied(home, source, target, commit)
    result = call("run", "replay", "last", workspace=target)
    assert "its fingerprint does not follow from the results of 1" in result.out
    assert result.code == 1


def test_a_loop_that_was_interrupted_derives_on_both_sides(call: Call, record: hansard.Record):
    """The resuming session records joins again; a checkpoint's head is on record."""
    run = ""
    for stop in (5, 8, None):
        options: dict[str, Any] = {"run": run} if run else {}
        try:
            with record.run("loop", agent="a", role="r", **options) as session:
                run = session.run

                @session.tool(effects="pure")
                def add(a: int, b: int) -> int:
                    return a + b

                session.gather(partial(add, 1, 1), lambda: None)
                for item in session.resumable(range(12), every=2, name="items"):
                    if item == stop:
                        signal.raise_signal(signal.SIGINT)
                    if item % 3:
                        session.gather(partial(add, item, 2), lambda: None)
                add(5, 5)
        except KeyboardInterrupt:
            continue
    *calls, summary = call("run", "replay", run, "--json").lines
    assert summary["calls"] == 10
    assert [c for c in calls if c["differs"] or c["unproven"]] == []


def test_an_edited_program_leaves_a_record_that_derives(call: Call, record: hansard.Record):
    """After an edit, later calls follow other results than before: both are on record."""
    run = ""
    for edit in (0, 10, 0, 20):
        options: dict[str, Any] = {"run": run} if run else {}
        with record.run("edited", agent="a", role="r", **options) as session:
            run = session.run

            @session.tool(effects="pure")
            def add(a: int, b: int) -> int:
                return a + b

            session.gather(lambda: add(1, 1), partial(add, 2, edit))
            add(3, add(4, edit))
            add(5, 5)
    *calls, summary = call("run", "replay", run, "--json").lines
    assert summary["calls"] > 8
    assert [c for c in calls if c["differs"] or c["unproven"]] == []


def forge(kind: str, change: Callable[[dict[str, Any]], None]) -> Callable[[Commit], Commit]:
    """Change the data of the first event of a type."""
    done: list[str] = []

    def event(recorded: Recorded) -> Recorded:
        if recorded.type != kind or done:
            return recorded
        done.append(recorded.id)
        data = msgspec.json.decode(recorded.data)
        change(data)
        return msgspec.structs.replace(recorded, data=msgspec.Raw(msgspec.json.encode(data)))

    def commit(original: Commit) -> Commit:
        return msgspec.structs.replace(original, events=tuple(map(event, original.events)))

    return commit


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "change", "fact"),
    [
        ("step.completed.v1", {"result": 4}, "the digest of its result"),
        (
            "step.completed.v1",
            {"result": 4, "digest": digest(canonical(4))},
            "its fingerprint does not follow from the results of 1",
        ),
        ("step.requested.v1", {"arguments": {"a": 1, "b": 3}}, "its call key does not follow"),
        ("step.requested.v1", {"tool": "subtract"}, "the version of subtract was never declared"),
        ("step.failed.v1", {"digest": "A" * 24}, "the digest of its error"),
    ],
)
def test_a_forged_record_does_not_derive(call, record, home, kind, change, fact):
    """A result, an argument or a tool that was changed behind the log's back is noticed."""
    source, target = f"s{uuid4().hex[:12]}", f"t{uuid4().hex[:12]}"
    hansard.connect(workspace=target, data_dir=home).close()
    with hansard.Session("w", agent="a", role="r", workspace=source, data_dir=home) as session:

        @session.tool(effects="pure")
        def add(a: int, b: int) -> int:
            return a + b

        @session.tool(effects="pure")
        def fail() -> int:
            raise LookupError

        add(1, 2)
        add(3, 4)
        with pytest.raises(LookupError):
            fail()
    assert call("run", "replay", "last", workspace=source).code == 0
    copied(home, source, target, forge(kind, lambda data: data.update(change)))
    result = call("run", "replay", "last", workspace=target)
    assert fact in result.out
    assert result.code == (0 if kind == "step.requested.v1" and "tool" in change else 1)


def test_a_missing_value_is_reported(call: Call, record: hansard.Record, home: Path):
    """A blob that was erased: the other calls derive all the same."""
    source, target = f"s{uuid4().hex[:12]}", f"t{uuid4().hex[:12]}"
    hansard.connect(workspace=target, data_dir=home).close()
    with hansard.Session("w", agent="a", role="r", workspace=source, data_dir=home) as session:

        @session.tool(effects="pure")
        def big(letter: str) -> str:
            return letter * BIG

        big("a")
        big("b")
    copied(home, source, target)
    result = call("run", "replay", "last", workspace=target)
    assert result.code == 1
    assert "its result cannot be read" in result.out
    assert "2 differ" in result.out
