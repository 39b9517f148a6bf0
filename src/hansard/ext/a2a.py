"""Agents that speak Agent2Agent: a client whose requests are steps, and a recorded server.

Sending a message is a step with an effect: its updates are the step's items, each recorded before
the program gets it. If the connection broke, the client looks for the agent's task of that message,
which carries the call's key; if there is none, that proves nothing, and the call is in doubt. A
read is a step that may run again. The ids that a program draws for its messages differ each time
and are no part of the call's key.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from functools import partial
from typing import Any, Protocol, TypeVar

import httpx
from a2a.client import (
    A2ACardResolver,
    A2AClientError,
    Client,
    ClientCallContext,
    ClientCallInterceptor,
    ClientConfig,
    create_client,
)
from a2a.client import errors as client_errors
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.events.event_queue import Event
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
)
from a2a.utils import errors as agent_errors
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message as Proto

from hansard.agents.errors import NotDone
from hansard.agents.steps.tools import ForwardedTool, Happened
from hansard.client.record import AsyncRecord
from hansard.client.session import AsyncCommonSession, AsyncSession
from hansard.domain import ids
from hansard.domain.steps import Effects

# Server of an agent: the requests and answers of each task are a run of the record.
#
# Over any transport of the SDK (JSON-RPC, REST, gRPC), an executor gets a message and emits events.
# Both are steps of the run, and so are the executor's tool calls; an event is recorded before its
# client gets it.

# A2A's messages as values of the record: their JSON as the protocol defines it.

RUN, KEY = "hansard/run", "hansard/key"
"""Key in a message's metadata: the sender's run, and the key of that call."""

P = TypeVar("P", bound=Proto)
Q_contra = TypeVar("Q_contra", contravariant=True)
A_co = TypeVar("A_co", covariant=True)


def plain(message: Proto) -> dict[str, Any]:
    """Return a message as JSON, without unset fields."""
    content: dict[str, Any] = MessageToDict(message)
    return content


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


PROGRAM = "hansard.ext.a2a"
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
        await self._session.call(_spec("tell", Effects.ONCE, tell), (), fields)


async def _record_request(session: AsyncSession, context: RequestContext) -> None:
    """Record the request of an executor."""

    async def take(**_: Any) -> dict[str, Any] | None:
        return None if context.message is None else plain(context.message)

    fields = {"task": context.task_id, "context": context.context_id}
    await session.call(_spec("message", Effects.PURE, take), (), fields)


def _labels(context: RequestContext) -> dict[str, str]:
    message = context.message
    labels = {
        TASK_LABEL: context.task_id or "",
        CONTEXT_LABEL: context.context_id or "",
        CALLER_LABEL: "" if message is None else mark(message, RUN),
        CALL_LABEL: "" if message is None else mark(message, KEY),
    }
    return {name: value for name, value in labels.items() if value}


PAGES_MAX, PAGE_TASKS = 20, 100
"""Most pages, and tasks per page, searched for a task whose connection broke, newest first."""

REFUSED_MIN, FAILED_MIN = 400, 500
"""Smallest HTTP status by which a server reports that it did nothing."""

ERRORS = tuple(
    each
    for module in (client_errors, agent_errors)
    for each in vars(module).values()
    if isinstance(each, type) and issubclass(each, agent_errors.A2AError)
)
"""Errors of an agent and of the SDK's client; a replay raises them unchanged."""


async def recorded(
    session: AsyncCommonSession,
    url: str,
    agent: str,
    *,
    config: ClientConfig | None = None,
    interceptors: Sequence[ClientCallInterceptor] = (),
) -> RecordedClient:
    """Connect a recorded client to the agent at a URL.

    Its card is read in a step, so that a replay makes no request.

    Args:
        session: The session in which requests are steps.
        url: The address of the card; it is no part of the key of a call.
        agent: The other agent's name on record.
        config: The SDK's configuration.
        interceptors: The SDK's interceptors.

    Raises BadName, and the errors of the SDK's resolver of cards.
    """

    async def agent_card(_: Proto, *, context: ClientCallContext | None) -> AgentCard:
        del context
        async with httpx.AsyncClient() as http:
            return await A2ACardResolver(http, url).get_agent_card()

    named = ids.name("agent", agent)
    answer = await _answer_to(
        session, named, "agent_card", agent_card, AgentCard(), None, Effects.PURE
    )
    card = proto(answer, AgentCard)
    client = await create_client(card, client_config=config, interceptors=[*interceptors])
    return RecordedClient(client, session, agent)


class _Method(Protocol[Q_contra, A_co]):
    """Method of the SDK's client."""

    async def __call__(
        self, request: Q_contra, *, context: ClientCallContext | None = None
    ) -> A_co:
        """Send a request."""
        ...


def _recorded(name: str, effects: Effects, kind: type[Proto] | None) -> Any:
    """Return the SDK's method of a name as a step; the answer is of a kind, if it has any."""

    async def method(
        self: RecordedClient, request: Proto, *, context: ClientCallContext | None = None
    ) -> Proto | None:
        ask = getattr(self._client, name)
        answer = await _answer_to(self._session, self._agent, name, ask, request, context, effects)
        return None if kind is None else proto(answer, kind)

    return method


class RecordedClient(Client):
    """Client of another agent in a session; it wraps a client of the SDK."""

    def __init__(self, client: Client, session: AsyncCommonSession, agent: str) -> None:
        """Wrap a client of the SDK.

        Args:
            client: The SDK's client; it is closed with this one.
            session: The session in which requests are steps.
            agent: The other agent's name on record.

        Raises BadName.
        """
        super().__init__()
        self._client = client
        self._session = session
        self._agent = ids.name("agent", agent)

    async def send_message(
        self, request: SendMessageRequest, *, context: ClientCallContext | None = None
    ) -> AsyncIterator[StreamResponse]:
        """Send a message and yield its updates.

        Raises the errors of the SDK and of a tool call: InDoubt if it is unknown whether the agent
        accepted it.
        """

        async def forward(key: str, **_: Any) -> Any:
            sent = SendMessageRequest()
            sent.CopyFrom(request)
            marked(sent.message, self._session.run, key)
            try:
                async for update in self._client.send_message(sent, context=context):
                    yield plain(update)
            except A2AClientError as error:
                raise _client_error(error) from error

        fields = plain(request)
        fields.get("message", {}).pop("messageId", None)
        ask = self._task_lookup(request, context)
        spec = _spec("send_message", Effects.RECONCILE, forward, ask)
        async with aclosing(
            self._session.call(spec, (), {"agent": self._agent, **fields})
        ) as items:
            async for item in items:
                yield proto(item, StreamResponse)

    def _task_lookup(
        self, request: SendMessageRequest, context: ClientCallContext | None
    ) -> Callable[..., Any]:
        async def ask_for_its_task(key: str, **_: Any) -> Happened | None:
            """Look for the task of a message by its key; its absence proves nothing."""
            listing = ListTasksRequest(
                tenant=request.tenant,
                context_id=request.message.context_id,
                page_size=PAGE_TASKS,
                history_length=PAGE_TASKS,
                include_artifacts=True,
            )
            for _page in range(PAGES_MAX):
                page = await self._client.list_tasks(listing, context=context)
                for task in page.tasks:
                    if any(mark(each, KEY) == key for each in task.history):
                        return Happened([plain(StreamResponse(task=task))])
                if not page.next_page_token:
                    break
                listing.page_token = page.next_page_token
            return None

        return ask_for_its_task

    async def subscribe(
        self, request: SubscribeToTaskRequest, *, context: ClientCallContext | None = None
    ) -> AsyncIterator[StreamResponse]:
        """Follow a task; its updates are recorded."""

        async def forward(**_: Any) -> Any:
            async for update in self._client.subscribe(request, context=context):
                yield plain(update)

        spec = _spec("subscribe", Effects.PURE, forward)
        fields = {"agent": self._agent, **plain(request)}
        async with aclosing(self._session.call(spec, (), fields)) as items:
            async for item in items:
                yield proto(item, StreamResponse)

    get_task: _Method[GetTaskRequest, Task] = _recorded("get_task", Effects.PURE, Task)
    list_tasks: _Method[ListTasksRequest, ListTasksResponse] = _recorded(
        "list_tasks", Effects.PURE, ListTasksResponse
    )
    cancel_task: _Method[CancelTaskRequest, Task] = _recorded(
        "cancel_task", Effects.IDEMPOTENT, Task
    )
    create_task_push_notification_config: _Method[
        TaskPushNotificationConfig, TaskPushNotificationConfig
    ] = _recorded("create_task_push_notification_config", Effects.ONCE, TaskPushNotificationConfig)
    get_task_push_notification_config: _Method[
        GetTaskPushNotificationConfigRequest, TaskPushNotificationConfig
    ] = _recorded("get_task_push_notification_config", Effects.PURE, TaskPushNotificationConfig)
    list_task_push_notification_configs: _Method[
        ListTaskPushNotificationConfigsRequest, ListTaskPushNotificationConfigsResponse
    ] = _recorded(
        "list_task_push_notification_configs", Effects.PURE, ListTaskPushNotificationConfigsResponse
    )
    delete_task_push_notification_config: _Method[DeleteTaskPushNotificationConfigRequest, None] = (
        _recorded("delete_task_push_notification_config", Effects.IDEMPOTENT, None)
    )

    async def get_extended_agent_card(
        self,
        request: GetExtendedAgentCardRequest,
        *,
        context: ClientCallContext | None = None,
        signature_verifier: Callable[[AgentCard], None] | None = None,
    ) -> AgentCard:
        """Return the extended card; a recorded one was verified when it was read."""
        ask = partial(self._client.get_extended_agent_card, signature_verifier=signature_verifier)
        name, effects = "get_extended_agent_card", Effects.PURE
        card = await _answer_to(self._session, self._agent, name, ask, request, context, effects)
        return proto(card, AgentCard)

    async def add_interceptor(self, interceptor: ClientCallInterceptor) -> None:
        """Add an interceptor of the SDK; it sees requests sent, not answers from the record."""
        await self._client.add_interceptor(interceptor)

    async def close(self) -> None:
        """Close the client."""
        await self._client.close()


async def _answer_to(
    session: AsyncCommonSession,
    agent: str,
    name: str,
    ask: Callable[..., Any],
    request: Proto,
    context: ClientCallContext | None,
    effects: Effects,
) -> Any:
    """Return a request's answer as JSON, from the record or from the agent."""

    async def forward(**_: Any) -> Any:
        try:
            answer = await ask(request, context=context)
        except A2AClientError as error:
            raise _client_error(error) from error
        return None if answer is None else plain(answer)

    spec = _spec(name, effects, forward)
    return await session.call(spec, (), {"agent": agent, **plain(request)})


def _spec(
    name: str, effects: Effects, forward: Callable[..., Any], ask: Callable[..., Any] | None = None
) -> ForwardedTool:
    return ForwardedTool(
        function=forward,
        name=f"a2a:{name}",
        kind="resource" if effects is Effects.PURE else "tool",
        effects=effects,
        doubtful_errors=(A2AClientError,),
        raises=ERRORS,
        reconcile=ask,
        key_argument="key" if ask is not None else None,
        signature=inspect.Signature(),
    )


def _client_error(error: A2AClientError) -> Exception:
    """Return an error of the SDK's client, or NotDone if the request surely was not sent."""
    cause = error.__cause__
    unreached = isinstance(cause, httpx.ConnectError | httpx.ConnectTimeout)
    refused = (
        isinstance(cause, httpx.HTTPStatusError)
        and REFUSED_MIN <= cause.response.status_code < FAILED_MIN
    )
    return NotDone(str(error)) if unreached or refused else error
