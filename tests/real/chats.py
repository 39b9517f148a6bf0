"""Shared parts of the tests of tau-bench and tau2-bench: files imported once, record against
source.

The source is read by `tests.real.parsers`; the record by its commands and by the bytes of the log.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from math import comb, fsum
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import pytest

from hansard.agents.workspace import RunLife
from tests.real.parsers import Chat, SourceMessage
from tests.real.support import Place, Stored, assigned, opened

POSITIONS = 20
"""Number of compared points of each file."""

SEED = int(os.environ["SEED"])
"""Seed of the sampled points and runs, shown where a test fails."""

REPLAYED = 5
"""Runs of each file that are derived again."""


class Source(msgspec.Struct, frozen=True):
    """A file, how to import it, and how to read it without Hansard."""

    format: str
    file: str
    experiment: str
    arm: str
    parse: Callable[[Path], list[Chat]]
    read: Callable[[dict[str, Any]], SourceMessage]


class Trial(msgspec.Struct):
    """A run in both forms: from its source, and from the record."""

    chat: Chat
    life: RunLife
    commits: list[Stored]

    def events(self, type_: str) -> list[dict[str, Any]]:
        """Return the run's events of a type, in the order of the log."""
        return [event for commit in self.commits for event in commit.events(type_)]

    def messages_at(self, position: int) -> int:
        """Return how many messages were recorded up to a position."""
        return sum(
            len(commit.events("message.added.v1"))
            for commit in self.commits
            if commit.position <= position
        )


class Imported(msgspec.Struct):
    """An imported file, its parsed source and the import's report."""

    source: Source
    report: dict[str, Any]
    trials: list[Trial]


def bring_in(place: Place, source: Source, folder: Path) -> dict[str, Any]:
    """Import a file, and return the report of the command."""
    file = folder / source.file
    return place.imported(source.format, file, source.experiment, source.arm)


def all_imported(place: Place, sources: list[Source], folder: Path) -> dict[str, Imported]:
    """Import the files and read the record once; return it by each run's assigned arm."""
    reports = {source.arm: bring_in(place, source, folder) for source in sources}
    lives = {_key(life): life for life in place.lives()}
    commits: dict[str, list[Stored]] = {}
    for stored in place.stored():
        commits.setdefault(stored.run, []).append(stored)
    datasets = {}
    for source in sources:
        chats = source.parse(folder / source.file)
        keys = [(source.experiment, source.arm, chat.task, chat.trial) for chat in chats]
        trials = [
            Trial(chat, lives[key], commits[lives[key].run])
            for chat, key in zip(chats, keys, strict=True)
        ]
        datasets[source.arm] = Imported(source, reports[source.arm], trials)
    assert sum(len(each.trials) for each in datasets.values()) == len(lives)
    return datasets


@contextmanager
def by_arm(
    folders: pytest.TempPathFactory, sources: list[Source], folder: Path
) -> Iterator[Callable[[str], tuple[Place, Imported]]]:
    """Yield a function that imports an arm's file into a workspace of its own, on first use."""
    with ExitStack() as places:

        @cache
        def of(arm: str) -> tuple[Place, Imported]:
            place = places.enter_context(opened(folders.mktemp("chats")))
            named = [source for source in sources if source.arm == arm]
            return place, all_imported(place, named, folder)[arm]

        yield of


def _key(life: RunLife) -> tuple[str, str, str, int | None]:
    assignment = assigned(life)
    return assignment.experiment, assignment.arm, assignment.task, assignment.trial


def recorded(dataset: Imported, event: dict[str, Any]) -> SourceMessage:
    """Return a recorded message in the form of the source's parser."""
    at, usage = event["occurred_at"], event.get("usage", {})
    message = dataset.source.read({**(event.get("fields") or {}), **event, "timestamp": at})
    return msgspec.structs.replace(message, usage=usage, occurred_at=at)


def named(arguments: Any) -> dict[str, Any]:
    """Return a call's arguments by name; arguments that are no JSON object are named
    `arguments`.
    """
    return arguments if isinstance(arguments, dict) else {"arguments": arguments}


# ---------------------------------------------------------------- laws, one a function


def check_counts(dataset: Imported, counts: dict[str, int]) -> None:
    """Check that runs, messages by role and calls agree: documented, parsed, reported and
    recorded.
    """
    chats = [trial.chat for trial in dataset.trials]
    roles = Counter(message.role for chat in chats for message in chat.messages)
    calls = sum(len(chat.called()) for chat in chats)
    assert {"runs": len(chats), "messages": roles.total(), "calls": calls, **roles} == counts
    assert {name: dataset.report[name] for name in ("runs", "messages", "calls")} == {
        name: counts[name] for name in ("runs", "messages", "calls")
    }
    assert (dataset.report["bad"], dataset.report["duplicates"], dataset.report["unasked"]) == (
        0,
        0,
        0,
    )
    on_record = Counter(
        event["role"] for trial in dataset.trials for event in trial.events("message.added.v1")
    )
    assert on_record == roles
    steps = sum(len(trial.events("step.requested.v1")) for trial in dataset.trials)
    assert steps == calls


def check_messages(dataset: Imported) -> None:
    """Check that every message of every run is recorded as in its source, in order."""
    for trial in dataset.trials:
        events = trial.events("message.added.v1")
        in_record = tuple(recorded(dataset, event) for event in events)
        assert in_record == trial.chat.messages, trial.life.run


def check_calls(dataset: Imported) -> None:
    """Check that every call is a step with its id, tool, arguments and result; list those
    without.
    """
    unanswered = []
    for trial in dataset.trials:
        chat, run = trial.chat, trial.life.run
        steps = trial.events("step.requested.v1")
        requested = [(step["call_id"], step["tool"], step["arguments"]) for step in steps]
        assert requested == [
            (id_, tool, named(arguments)) for id_, tool, arguments in chat.called()
        ], run
        outcomes: dict[int, Any] = {}
        outcomes |= {e["step"]: e["result"] for e in trial.events("step.completed.v1")}
        outcomes |= {e["step"]: e["error"]["message"] for e in trial.events("step.failed.v1")}
        results = [
            (event["step"], event["content"])
            for event in trial.events("message.added.v1")
            if event["role"] == "tool"
        ]
        assert dict(results) == outcomes, run
        assert len(results) == len(outcomes), run
        by_step = {step["step"]: step["call_id"] for step in steps}
        answers = [message.tool_call_id for message in chat.messages if message.role == "tool"]
        assert [by_step[step] for step, _ in results] == answers, run
        unanswered += [(run, id_) for id_ in chat.unanswered()]
    assert sorted(dataset.report["unanswered"]) == sorted(unanswered)


def check_assignment(dataset: Imported) -> None:
    """Check each run's assignment, score and completion."""
    for trial in dataset.trials:
        state = trial.life.state
        expected = (
            dataset.source.experiment,
            dataset.source.arm,
            trial.chat.task,
            trial.chat.trial,
        )
        assert _key(trial.life) == expected
        assert state.scores["reward"] == trial.chat.reward
        assert state.status.value == "completed"


def sample(dataset: Imported) -> list[Trial]:
    """Return some runs of a file."""
    return random.Random(SEED).sample(dataset.trials, REPLAYED)


def random_points(dataset: Imported) -> list[tuple[Trial, int]]:
    """Return runs of a file with a position each; every position of the file is equally likely."""
    everything = [(trial, c.position) for trial in dataset.trials for c in trial.commits]
    return random.Random(SEED).sample(everything, POSITIONS)


def hint(trial: Trial, position: int | None = None) -> str:
    """Return the command that repeats a failed comparison."""
    return f"SEED={SEED}, run {trial.life.run}" + (f" at {position}" if position else "")


def check_show(place: Place, trial: Trial, position: int) -> None:
    """Check that `run show --at` is the prefix that the parser computes."""
    where = hint(trial, position)
    output = place.call("run", "show", trial.life.run, "--at", str(position), "--json")
    assert output.code == 0, (where, output.err)
    run, *agents = output.lines
    assert (run["run"], run["position"]) == (trial.life.run, position), where
    ended = [c for c in trial.commits if c.position <= position and c.events("run.completed.v1")]
    assert run["status"] == ("completed" if ended else "open"), where
    before = trial.messages_at(position)
    calls, statuses = trial.chat.called(before), trial.chat.answers(before)
    if not agents:
        assert before == 0, where
        return
    [agent] = agents
    assert agent["messages"] == before, where
    assert agent["steps"] == Counter(status or "requested" for status in statuses), where
    waiting = [call for call, status in zip(calls, statuses, strict=True) if status is None]
    assert [(step["tool"], step["arguments"]) for step in agent["open_steps"]] == [
        (tool, named(arguments)) for _, tool, arguments in waiting
    ], where
    users = sum(message.role == "user" for message in trial.chat.messages[:before])
    assert agent["turn_number"] == users, where


def check_context(place: Place, dataset: Imported, trial: Trial, position: int) -> None:
    """Check that `run context --at` is the prefix that the parser computes."""
    where = hint(trial, position)
    output = place.call("run", "context", trial.life.run, "--at", str(position), "--json")
    assert output.code == 0, (where, output.err)
    prefix = trial.chat.messages[: trial.messages_at(position)]
    windows = [line for line in output.lines if line["kind"] == "context"]
    if not windows:
        assert (prefix, output.lines) == ((), []), where
        return
    [window] = windows
    lines = output.lines[1:]
    assert {line["kind"] for line in lines} <= {"message"}, where
    assert tuple(recorded(dataset, {**line, **line["message"]}) for line in lines) == prefix, where
    assert [line["index"] for line in lines] == list(range(1, len(prefix) + 1)), where
    assert all(line["position"] <= position for line in lines), where
    assert (window["run"], window["position"]) == (trial.life.run, position), where
    assert window["messages"] == len(prefix), where
    names = {name for message in prefix for name in message.usage}
    used = {name: fsum(message.usage.get(name, 0) for message in prefix) for name in names}
    assert window["usage"] == pytest.approx(used), where


def check_replay(place: Place, dataset: Imported) -> int:
    """Check that a sample's calls, replayed from arguments and results, are as recorded; return the
    count.
    """
    calls = 0
    for trial in sample(dataset):
        output = place.call("run", "replay", trial.life.run, "--json")
        summary = output.lines[-1]
        assert output.code == 0, (hint(trial), output.err)
        assert (summary["differ"], summary["unproven"]) == (0, 0), hint(trial)
        assert summary["calls"] == len(trial.chat.called())
        calls += summary["calls"]
    return calls


def check_again(place: Place, dataset: Imported, folder: Path) -> None:
    """Check that importing the same file again reads it to its end and changes nothing."""
    before = place.head()
    report = bring_in(place, dataset.source, folder)
    assert place.head() == before > 0
    assert report["new"] == 0
    assert {**report, "new": dataset.report["new"]} == dataset.report


def check_whole(place: Place) -> None:
    """`hansard check` finds nothing wrong in the whole workspace."""
    output = place.call("check", "--json")
    assert output.code == 0, output.out
    summary = output.lines[-1]
    assert summary["wrong"] == 0
    assert summary["commits"] == len(place.stored())


def pass_hat(lives: list[RunLife], k: int) -> float:
    """Return pass^k: the mean over tasks of C(c, k) / C(n, k), from the recorded scores."""
    trials: dict[str, list[bool]] = {}
    for life in lives:
        trials.setdefault(assigned(life).task, []).append(life.state.scores["reward"] == 1)
    return fmean(comb(sum(won), k) / comb(len(won), k) for won in trials.values())
