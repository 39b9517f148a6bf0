"""The calls that an agent's program made last, by its stream: what a strict replay is to equal.

A session records what it runs, and when it leaves, which of the earlier steps it was answered from
(`AgentLeft.answered`). Both together are the path that it went. What earlier sessions did, and a
later one with edited code no longer asked for, is on record and not on that path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from hansard.domain.agent import AgentLeft, SessionBegan
from hansard.domain.events import Event
from hansard.domain.steps import (
    Step,
    StepAttempted,
    StepBlocked,
    StepCompleted,
    StepFailed,
    StepInDoubt,
    StepRequested,
    StepSettled,
    Verdict,
)

Ranges = tuple[tuple[int, int], ...]
"""Numbers of steps, rising: the first and the last of each row without a hole."""

PURPOSE = "run"
"""Of the sessions in which a program ran; another one settled a step, say."""


class SessionPath(msgspec.Struct, frozen=True):
    """The steps of a path, rising. `exact`: as its session has told; else what leads to the calls
    that it recorded, where it was killed or is of a version that did not tell.
    """

    steps: tuple[int, ...] = ()
    exact: bool = True


class _Session(msgspec.Struct):
    began: bool
    """Whether it was the agent's first: nothing was on record to answer it."""
    ran: set[int] = msgspec.field(default_factory=set)
    settled: set[int] = msgspec.field(default_factory=set)
    left: AgentLeft | None = None


def ranges(numbers: Iterable[int]) -> Ranges:
    """Numbers as ranges."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)


def within(told: Ranges, steps: Mapping[int, Step]) -> Iterator[int]:
    """Those of some steps whose numbers lie in ranges."""
    return (number for number in steps if any(low <= number <= high for low, high in told))


def with_bodies(numbers: Iterable[int], steps: Mapping[int, Step]) -> set[int]:
    """Steps, and those that were called in their bodies: with a composite that is answered, they
    are. A body's steps come after it.
    """
    found = set(numbers)
    for number in sorted(steps):
        if steps[number].parent in found:
            found.add(number)
    return found


def newest(events: Iterable[Event], steps: Mapping[int, Step]) -> SessionPath:
    """The path of the newest session that recorded a call or ended in order; `steps` are those of
    the state after the events.
    """
    for session in reversed(_sessions(events)):
        done = session.left is not None and session.left.outcome == "completed"
        if not (session.ran or session.settled or done or session.began):
            continue
        if session.began:
            return SessionPath(tuple(sorted(_with(session.settled, session.ran, steps))))
        if session.left is not None and session.left.answered is not None:
            given = {*within(session.left.answered, steps)} | session.settled
            return SessionPath(tuple(sorted(_with(given, session.ran, steps))))
        ran = session.ran | session.settled
        if ran:
            return SessionPath(tuple(sorted(_led(ran, steps))), exact=False)
    return SessionPath(exact=False)


def _with(given: set[int], ran: set[int], steps: Mapping[int, Step]) -> set[int]:
    """What a session ran, and what it was given; of an outcome that it took over to where the call
    stands now, the new step.
    """
    calls = {steps[number].call for number in ran if number in steps}
    return ran | {number for number in given if steps[number].call not in calls}


def _sessions(events: Iterable[Event]) -> list[_Session]:
    found: list[_Session] = []
    runs = False
    for event in events:
        if isinstance(event, SessionBegan):
            runs = event.purpose == PURPOSE
            if runs:
                found.append(_Session(began=not found))
        elif runs:
            _take(found[-1], event)
    return found


def _take(session: _Session, event: Event) -> None:
    match event:
        case (
            StepRequested()
            | StepAttempted()
            | StepCompleted()
            | StepFailed()
            | StepBlocked()
            | StepInDoubt()
        ):
            session.ran.add(event.step)
        case StepSettled() if event.verdict is Verdict.HAPPENED:
            session.settled.add(event.step)
        case AgentLeft():
            session.left = event
        case _:
            pass


def _led(ran: set[int], steps: Mapping[int, Step]) -> set[int]:
    """Steps, and those that their chains lead back to."""
    found: set[int] = set()
    ahead = list(ran)
    while ahead:
        number = ahead.pop()
        step = steps.get(number)
        if step is None or number in found:
            continue
        found.add(number)
        ahead += step.after
        if step.parent is not None:
            ahead.append(step.parent)
    return found
