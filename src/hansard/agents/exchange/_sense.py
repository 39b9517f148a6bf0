"""Whether events can be folded: what became of a call comes after it."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from hansard.agents.exchange.format import Damaged
from hansard.domain.events import Event
from hansard.domain.ids import AgentStream, RunStream, StreamId, in_run
from hansard.domain.run import RunForked, RunStarted
from hansard.domain.steps import StepEvent, StepRequested

_OF_STEPS = frozenset(get_args(StepEvent))


class _Numbers(msgspec.Struct):
    """Steps of one agent: all from 1 `up_to` a number, and those beyond it."""

    up_to: int = 0
    beyond: set[int] = set()

    def add(self, number: int) -> None:
        self.beyond.add(number)
        while self.up_to + 1 in self.beyond:
            self.up_to += 1
            self.beyond.remove(self.up_to)

    def has(self, number: int) -> bool:
        return 0 < number <= self.up_to or number in self.beyond


class Sense:
    """Takes the events of a section in order. Memory: some bytes a stream, whatever its length."""

    def __init__(self) -> None:
        self._steps: dict[StreamId, _Numbers] = {}
        self._parents: dict[str, str | None] = {}
        self._trusted: set[StreamId] = set()

    def take(self, stream: StreamId, event: Event | None) -> None:
        """Check an event; None is one of a type that this version does not know, and what it says
        of calls neither. Raises Damaged.
        """
        if event is None:
            self._trusted.add(stream)
        elif isinstance(stream, RunStream):
            if isinstance(event, RunStarted | RunForked):
                parent = event.parent if isinstance(event, RunForked) else None
                self._parents.setdefault(stream.run, parent)
        elif isinstance(stream, AgentStream) and type(event) in _OF_STEPS:
            self._step(stream, event)

    def _step(self, stream: AgentStream, event: Any) -> None:
        if isinstance(event, StepRequested):
            if not bytes(event.arguments).lstrip().startswith(b"{"):
                raise Damaged(f"the arguments of step {event.step} are not given by name")
            self._steps.setdefault(stream, _Numbers()).add(event.step)
        elif not self._is_known(stream, event.step):
            raise Damaged(
                f"a {event.tag} of step {event.step} of agent {stream.agent!r}, which was never "
                "requested"
            )

    def _is_known(self, stream: AgentStream, number: int) -> bool:
        """Whether a step was requested, in this run or in one that it is a fork of; a parent that
        is not in the section is trusted.
        """
        mine: StreamId = stream
        run: str | None = stream.run
        while run is not None:
            if mine in self._steps and self._steps[mine].has(number):
                return True
            if run not in self._parents or mine in self._trusted:
                return True
            run = self._parents[run]
            mine = in_run(stream, run or "")
        return False
