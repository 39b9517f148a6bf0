"""Rechecks approvals: an intent that names one goes by a grant that was given for its call."""

from __future__ import annotations

from collections.abc import Iterator

from hansard.domain.approval import ApprovalGranted, ApprovalRequested
from hansard.domain.events import Event
from hansard.domain.ids import AgentStream, KeyStream, StreamId
from hansard.domain.steps import StepAttempted, StepRequested


class Approvals:
    """What was asked, granted and used, by run and approval; events come by position."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, str], ApprovalRequested] = {}
        self._granted: set[tuple[str, str]] = set()
        self._calls: dict[tuple[AgentStream, int], tuple[str, str]] = {}
        self._users: dict[tuple[str, str], tuple[AgentStream, int]] = {}

    def event(self, stream: StreamId, event: Event) -> Iterator[str]:
        """What is wrong with an event, as far as approvals go."""
        match stream, event:
            case KeyStream(run=run), ApprovalRequested():
                self._asked.setdefault((run, event.approval), event)
            case KeyStream(run=run), ApprovalGranted():
                self._granted.add((run, event.approval))
            case AgentStream(), StepRequested(approval=str(name)):
                self._calls[stream, event.step] = event.call, event.fingerprint
                yield from self._used(stream, event.step, name)
            case AgentStream(), StepRequested():
                self._calls[stream, event.step] = event.call, event.fingerprint
            case AgentStream(), StepAttempted(approval=str(name)):
                yield from self._used(stream, event.step, name)
            case _:
                pass

    def _used(self, stream: AgentStream, step: int, name: str) -> Iterator[str]:
        told = f"step {step} goes by approval {name}"
        asked = self._asked.get((stream.run, name))
        if asked is None:
            yield f"{told}, which nobody asked for"
            return
        if (stream.run, name) not in self._granted:
            yield f"{told}, which nobody granted before"
        call = self._calls.get((stream, step), (asked.call, asked.fingerprint))
        if (asked.agent, asked.call, asked.fingerprint) != (stream.agent, *call):
            yield f"{told}, which was asked for by {asked.agent!r} for another call"
        first = self._users.setdefault((stream.run, name), (stream, step))
        if first != (stream, step):
            yield f"{told}, which step {first[1]} of {first[0].agent!r} went by already"
