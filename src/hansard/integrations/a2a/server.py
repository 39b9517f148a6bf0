"""Server of an agent: the requests and answers of each task are a run of the record.

Over any transport of the SDK (JSON-RPC, REST, gRPC), an executor gets a message and emits events.
Both are steps of the run, and so are the executor's tool calls; an event is recorded before its
client gets it.
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

# A2A's messages as values of the record: their JSON as the protocol defines it.

RUN, KEY = "hansard/run", "hansard/key"
"""Key in a message's metadata: the sender's run, and the key of that call."""

P = TypeVar("P", bound=Proto)


def plain(message: Proto) -> dict[str, Any]:
    """Return a message as JSON, without unset fields."""
    found: dict[str, Any] = MessageToDict(message)
    return found


def proto(value: Any, kind: type[P]) -> P:
    """Build a message of a kind from JSON; fields unknown to this SDK are dropped."""
    message: P = kind()
    ParseDict(value, message, ignore_unknown_fields=True)
    return message


def marked(message: Message, run: str, key: str) -> None:
    """Add the call's key to a message."""
    message.metadata.update({RUN: run, KEY: key})


def mark(message: Message, name: str) -> str:
    """Return a field of the sender's call in a message; empty if it has none."""
    text = plain(message).get("metadata", {}).get(name)
    return text if isinstance(text, str) else ""


TASK_LABEL, CONTEXT_LABEL = "a2a_task", "a2a_context"
CALLER_LABEL, CALL_LABEL = "a2a_caller_run", "a2a_caller_key"
"""Labels of a run: its task, its context, and the sender: the run, and the key of the step there.
The sender's claims are not verified.
"""


PROGRAM = "hansard.integrations.a2a"
"""Program of the runs."""


class RecordedExecutor(AgentExecutor):
    """Executor whose tasks are runs.

    The session of a task is current in it: tools declared with `hansard.tool` are its steps.
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
        """Wrap an executor.

        Args:
            executor: The executor that does the work.
            record: The record; it must stay open as long as the executor is used.
            workflow: The workflow of the runs.
            agent: The agent's name.
            role: The agent's role.
        """
        self._executor = executor
        self._record = record
        self._workflow = workflow
        self._agent, self._role = agent, role

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Execute a message in a run of its own.

        Raises the executor's error, which is recorded, and as `record.run`.
        """
        async with self._run(context) as session:
            await _record_request(session, context)
            await self._executor.execute(context, _RecordedQueue(event_queue, session))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Cancel the work of a task; the resulting events are recorded in a run, too."""
        async with self._run(context) as session:
            await self._executor.cancel(context, _RecordedQueue(event_queue, session))

    def _run(self, context: RequestContext) -> AbstractAsyncContextManager[AsyncSession]:
        return self._record.run(
            self._workflow,
            agent=self._agent,
            role=self._role,
            program=PROGRAM,
            labels=_labels(context),
        )


class _RecordedQueue(EventQueue):
    """Event queue that records events before it passes them on."""

    def __init__(self, queue: EventQueue, session: AsyncSession) -> None:
        self._queue = queue
        self._session = session

    async def enqueue_event(self, event: Event) -> None:
        """Enqueue an event."""

        async def tell(**_: Any) -> None:
            await self._queue.enqueue_event(event)

        fields = {"kind": type(event).__name__, "event": plain(event)}
        await self._session.call(_tool("a2a:tell", "tool", Effects.ONCE, tell), (), fields)


async def _record_request(session: AsyncSession, context: RequestContext) -> None:
    """Record the request of an executor."""

    async def take(**_: Any) -> dict[str, Any] | None:
        return None if context.message is None else plain(context.message)

    fields = {"task": context.task_id, "context": context.context_id}
    await session.call(_tool("a2a:message", "resource", Effects.PURE, take), (), fields)


def _labels(context: RequestContext) -> dict[str, str]:
    message = context.message
    found = {
        TASK_LABEL: context.task_id or "",
        CONTEXT_LABEL: context.context_id or "",
        CALLER_LABEL: "" if message is None else mark(message, RUN),
        CALL_LABEL: "" if message is None else mark(message, KEY),
    }
    return {name: value for name, value in found.items() if value}


def _tool(name: str, kind: str, effects: Effects, run: Callable[..., Any]) -> ForwardedTool:
    return ForwardedTool(
        function=run, name=name, kind=kind, effects=effects, signature=inspect.Signature()
    )
