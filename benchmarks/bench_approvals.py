"""What does waiting for an approval, and giving one, cost as more else is on record?

With 30 and with 300 other runs that have asked: the time of an approval by a client that has
not seen them, and how many messages that takes; beside it one awaited append, which it contains.
While one question waits, another agent makes 100 and 1,000 commits: how many messages the one who
waits is sent. Goals: an answer among 300 takes no more messages than one among 30, and who waits is
sent less than 50, the answers to its own requests among them, whatever others write.
"""

from __future__ import annotations

import asyncio
from statistics import median

import msgspec

import hansard
from benchmarks import _world
from benchmarks._report import Findings, benchmark, sized, summary
from benchmarks._requests import counted
from benchmarks._runs import appended
from hansard.agents.policy.approvals import Approvals, stream_of
from hansard.bus.clock import Clock
from hansard.bus.log import EventLog
from hansard.domain import ids, run
from hansard.domain.approval import ApprovalGranted, ApprovalRequested, ApprovalStatus
from hansard.domain.events import Actor
from hansard.domain.ids import RunStream

MESSAGES_MAX = 50
QUESTIONS = 5
"""Questions in each of the other runs."""

WAIT_S = 600.0
"""Longest wait for the answer to a request, in seconds."""

_clock = Clock()


def asked(name: str) -> ApprovalRequested:
    """Return a question of a run's agent, as a session states it."""
    made = _clock.new_id()
    return ApprovalRequested(
        approval=ids.marked(made, name) if hasattr(ids, "marked") else made,
        agent="ada",
        role="writer",
        step=1,
        tool="send",
        arguments=msgspec.Raw(msgspec.json.encode({"text": _world.text(400)})),
        call=made,
        fingerprint=made,
        rule="ask_first send",
        timeout_ms=3_600_000,
    )


async def ask(log: EventLog, name: str, questions: int = 1) -> str:
    """Record a run with questions; return the last one."""
    begin = run.RunStarted(workflow="w"), run.AgentJoined(agent="ada", role="writer")
    wanted = [asked(name) for _ in range(questions)]
    await log.append(appended(RunStream(name), 1, *begin))
    await log.append(appended(stream_of(name), 1, *wanted))
    return wanted[-1].approval


class Took(msgspec.Struct):
    """Times of answers, round by round, and of the appends beside them, in ms; and the messages
    sent for the last answer.
    """

    answers_ms: list[float]
    received: int
    appends_ms: list[float]


async def answers(place: _world.World, first: int, size: int, rounds: int) -> Took:
    """Measure answers among so many runs with questions, some of which exist already."""
    took = Took([], 0, [])
    async with hansard.connect_async("bench", data_dir=place.folder) as record:
        log = record.workspace.log
        for number in range(first, size):
            await ask(log, f"other-{number}", QUESTIONS)
        waiting = [await ask(log, f"one-{size}-{number}") for number in range(rounds + 1)]
        questions = iter(waiting)
        stream = _world.agent_stream(f"appender-{size}")
        appends = _world.appends(stream, 1, rounds + 1)

        async def approve() -> None:
            name = next(questions)
            async with hansard.connect_async("bench", data_dir=place.folder) as fresh:
                with counted(fresh.workspace.log) as seen:
                    ms, _ = await _world.timed(lambda: fresh.approvals.grant(name, by="eva"))
                took.answers_ms.append(ms)
                took.received = seen.received

        _, took.appends_ms = await _world.turns(rounds, approve, lambda: log.append(next(appends)))
    return took


async def waits(place: _world.World, commits: int) -> int:
    """Return the messages sent to a waiting client while others make so many commits."""
    async with (
        hansard.connect_async("bench", data_dir=place.folder) as record,
        hansard.connect_async("bench", data_dir=place.folder) as others,
    ):
        log = record.workspace.log
        name = f"waits-{commits}"
        question = await ask(log, name)
        with counted(log) as seen:
            store = Approvals(record.workspace.states, name)
            waiting = asyncio.create_task(store.wait(question, WAIT_S))
            stream = _world.agent_stream(f"busy-{commits}")
            for append in _world.appends(stream, 1, commits):
                await others.workspace.log.append(append)
            granted = ApprovalGranted(approval=question, by="eva")
            await Approvals(others.workspace.states, name).record(granted, Actor("eva"))
            assert (await waiting).given is ApprovalStatus.GRANTED
        return seen.received


async def measure(found: Findings) -> None:
    """Answers, then waits."""
    sizes, rounds = (sized(30, 4), sized(300, 40)), sized(30, 3)
    took: list[Took] = []
    async with _world.world("relaxed") as place:
        for first, size in zip((0, sizes[0]), sizes, strict=True):
            each = await answers(place, first, size, rounds)
            found.results[f"an answer among {size} runs that ask"] = summary(each.answers_ms)
            found.results[f"an answer among {size}, messages"] = each.received
            found.results[f"an append beside {size}"] = summary(each.appends_ms)
            ratio = median(each.answers_ms) / median(each.appends_ms)
            found.ratios[f"an answer among {size} / append"] = ratio
            took.append(each)
        few, many = sizes
        growth = median(took[1].answers_ms) / median(took[0].answers_ms)
        found.ratios[f"an answer among {many} against {few}"] = growth
        goal = f"an answer among {many} takes no more messages than one among {few}"
        found.goals[goal] = took[1].received <= took[0].received
        for commits in (sized(100, 20), sized(1_000, 200)):
            received = await waits(place, commits)
            told = f"messages to who waits while others make {commits} commits"
            found.results[told] = received
            found.goals[f"{told} < {MESSAGES_MAX}"] = received < MESSAGES_MAX


if __name__ == "__main__":
    benchmark(measure, __doc__)
