"""An agent that others ask over A2A: what each task was asked and told is a run of the record.

Whatever the SDK serves it by (JSON-RPC, REST, gRPC), an executor gets a message and tells events.
Both are steps of the run, and so is what the executor does with tools meanwhile; an event is on
record before its client gets it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.events.event_queue import Event
from a2a.types import Message
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message as Proto

from hansard.client.record import AsyncRecord
from hansard.client.session import AsyncSession
from hansard.domain.steps import Effects
from hansard.integrations.forwarded import ForwardedTool

# A2A's messages as values of the record: their JSON, as the protocol itself writes it.

RUN, KEY = "hansard/run", "hansard/key"
"""In the metadata of a message: the run of who sent it, and the key of that call."""

P = TypeVar("P", bound=Proto)


def plain(message: Proto) -> dict[str, Any]:
    """A message as JSON has it; fields that are not set are left out."""
    found: dict[str, Any] = MessageToDict(message)
    return found


def proto(value: Any, kind: type[P]) -> P:
    """The message of a kind that JSON tells of. A field that this SDK does not know is left out."""
    message: P = kind()
    ParseDict(value, message, ignore_unknown_fields=True)
    return message


def marked(message: Message, run: str, key: str) -> None:
    """Say in a message of which call it is."""
    message.metadata.update({RUN: run, KEY: key})


def mark(message: Message, name: str) -> str:
    """What a message says of the call that it is of; empty for nothing."""
    text = plain(message).get("metadata", {}).get(name)
    return text if isinstance(text, str) else ""


TASK_LABEL, CONTEXT_LABEL = "a2a_task", "a2a_context"
CALLER_LABEL, CALL_LABEL = "a2a_caller_run", "a2a_caller_key"
"""A run's labels: the task that it is of, its context, and who sent it: the run, and the key of the
step there. What a sender says of itself is its word.
"""


PROGRAM = "hansard.integrations.a2a"
"""What a run says that it is of."""


class RecordedExecutor(AgentExecutor):
    """An executor whose tasks are runs. The session of a task is the current one in it: tools that
    `hansard.tool` declares are its steps.
    """

    def __init__(
        self,
        executor: AgentExecutor,
        record: AsyncRecord,
        *,
        workflow: str = "a2a",
        agent: str | None = None,
        role: str | None = None,
    ) -> None:
        """Args:
        executor: What does the work.
        record: Where it is recorded; it is open as long as this is asked.
        workflow: Of the runs.
        agent: Who does the work.
        role: In which role.
        """
        self._executor = executor
        self._record = record
        self._workflow = workflow
        self._agent, self._role = agent, role

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Do the work of a message, in a run of its own. Raises as the executor, whose error is on
        record, and as `record.run`.
        """
        async with self._run(context) as session:
            await _record_request(session, context)
            await self._executor.execute(context, _Recorded(event_queue, session))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Have the work of a task called off; what is told of that is recorded in a run, too."""
        async with self._run(context) as session:
            await self._executor.cancel(context, _Recorded(event_queue, session))

    def _run(self, context: RequestContext) -> AbstractAsyncContextManager[AsyncSession]:
        return self._record.run(
            self._workflow,
            agent=self._agent,
            role=self._role,
            program=PROGRAM,
            labels=_labels(context),
        )


class _Recorded(EventQueue):
    """Puts events on record before it passes them on."""

    def __init__(self, queue: EventQueue, session: AsyncSession) -> None:
        self._queue = queue
        self._session = session

    async def enqueue_event(self, event: Event) -> None:
        """Tell an event."""

        async def tell(**_: Any) -> None:
            await self._queue.enqueue_event(event)

        fields = {"kind": type(event).__name__, "event": plain(event)}
        await self._session.call(_spec("a2a:tell", "tool", Effects.ONCE, tell), (), fields)


async def _record_request(session: AsyncSession, context: RequestContext) -> None:
    """Put on record what an executor is asked."""

    async def take(**_: Any) -> dict[str, Any] | None:
        return None if context.message is None else plain(context.message)

    fields = {"task": context.task_id, "context": context.context_id}
    await session.call(_spec("a2a:message", "resource", Effects.PURE, take), (), fields)


def _labels(context: RequestContext) -> dict[str, str]:
    message = context.message
    found = {
        TASK_LABEL: context.task_id or "",
        CONTEXT_LABEL: context.context_id or "",
        CALLER_LABEL: "" if message is None else mark(message, RUN),
        CALL_LABEL: "" if message is None else mark(message, KEY),
    }
    return {name: value for name, value in found.items() if value}


def _spec(name: str, kind: str, effects: Effects, run: Callable[..., Any]) -> ForwardedTool:
    return ForwardedTool(
        function=run, name=name, kind=kind, effects=effects, signature=inspect.Signature()
    )
