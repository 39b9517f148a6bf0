"""One scenario for both clients.

A scenario is an `async def` that awaits every call it makes on the session. Played with the async
client it runs in a loop. Played with the sync client every awaited thing is done at once, in the
scenario's own thread and with no loop anywhere: the coroutine never suspends, so it is driven to
its end by one `send`. Tools are written as `async def` and become plain functions there.
"""

import asyncio
import contextlib
import functools
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import hansard
from hansard.bus.log import Stored
from hansard.operations.declare import Noun

FACTS = ("checkpoint", "checkpoint_data", "decide", "message", "resource", "hand_off", "context")

WAITING = {"close", "snapshot", "latest_checkpoint", "save", "get", "window", "compact"}
"""Other methods of a session that wait."""


def at_once(work: Coroutine[Any, Any, Any]) -> Any:
    """Drive a coroutine that never suspends to its end, without a loop."""
    try:
        work.send(None)
    except StopIteration as stop:
        return stop.value
    work.close()
    raise AssertionError("a scenario waited for something that is not the client's")


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a scenario's tool or branch as the plain function that the sync client calls."""
    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        def generate(*args: Any, **kwargs: Any) -> Iterator[Any]:
            inner = function(*args, **kwargs)
            try:
                while True:
                    try:
                        item = at_once(inner.__anext__())
                    except StopAsyncIteration:
                        return
                    yield item
            finally:
                at_once(inner.aclose())

        return generate

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return at_once(function(*args, **kwargs))

    return call


class SyncTool:
    """A tool of the sync client, awaited."""

    def __init__(self, tool: Callable[..., Any]) -> None:
        self.raw = tool

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Something to await, or to iterate."""
        if self.raw.spec.is_stream:  # type: ignore[attr-defined] # a hansard.Tool
            return self._iterate(*args, **kwargs)
        return self._call(*args, **kwargs)

    async def _call(self, *args: Any, **kwargs: Any) -> Any:
        return self.raw(*args, **kwargs)

    async def _iterate(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        items = self.raw(*args, **kwargs)
        try:
            for item in items:
                yield item
        finally:
            items.close()


class Twin:
    """Wrapper of an object of either client's session, with its methods awaited."""

    def __init__(self, raw: Any, *, is_async: bool) -> None:
        self.raw = raw
        self.is_async = is_async

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.raw, name)
        if self.is_async or not self._waits(name):
            return attribute
        if isinstance(attribute, Noun):
            return Twin(attribute, is_async=False)

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            return attribute(*args, **kwargs)

        return awaited

    def _waits(self, name: str) -> bool:
        """Return whether a method of the async client must be awaited."""
        return name not in ("transaction", "claimed")  # used in `with`


class TwinSession(Twin):
    """A session of either client, awaited."""

    @property
    def board(self) -> Twin:
        """The board, awaited."""
        return Twin(self.raw.board, is_async=self.is_async)

    @property
    def team(self) -> Twin:
        """The tasks and messages, awaited."""
        return Twin(self.raw.team, is_async=self.is_async)

    def _waits(self, name: str) -> bool:
        return name in FACTS or name in WAITING

    def tool(self, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        """Declare an `async def` as a tool of this session."""

        def declare(function: Callable[..., Any]) -> Any:
            if self.is_async:
                return self.raw.tool(**options)(function)
            for name in ("shadow", "effects"):  # anything called like a tool is awaited like one
                options[name] = _plain_option(options.get(name))
            arguments = {name: value for name, value in options.items() if value is not None}
            return SyncTool(self.raw.tool(**arguments)(plain(function)))

        return declare

    async def gather(self, *branches: Callable[[], Any]) -> list[Any]:
        """Run branches (functions that give something to await) side by side."""
        if self.is_async:
            results: list[Any] = await self.raw.gather(*(branch() for branch in branches))
            return results
        return list(self.raw.gather(*(functools.partial(_run, branch) for branch in branches)))

    def resumable(self, items: Any, **options: Any) -> "TwinLoop":
        """Yield the remaining items."""
        return TwinLoop(self.raw.resumable(items, **options), is_async=self.is_async)


async def _items(raw: Any, *, is_async: bool) -> AsyncGenerator[Any, None]:
    if is_async:
        async for item in raw:
            yield item
    else:
        for item in raw:
            yield item


class TwinLoop:
    """A loop of either client, iterated with `async for`."""

    def __init__(self, raw: Any, *, is_async: bool) -> None:
        self.raw = raw
        self._left = _items(raw, is_async=is_async)

    def __aiter__(self) -> "TwinLoop":
        return self

    async def __anext__(self) -> Any:
        return await anext(self._left)

    async def aclose(self) -> None:
        """Leave it."""
        await self._left.aclose()
        closed = self.raw.aclose() if hasattr(self.raw, "aclose") else self.raw.close()
        if closed is not None:
            await closed


def _plain_option(value: Any) -> Any:
    if inspect.iscoroutinefunction(value):
        return plain(value)
    if isinstance(value, hansard.reconcile(at_once).__class__):
        return hansard.reconcile(_plain_option(value.ask))
    return value


async def _branch(branch: Callable[[], Any]) -> Any:
    return await branch()


def _run(branch: Callable[[], Any]) -> Any:
    return at_once(_branch(branch))


@contextlib.asynccontextmanager
async def _entered(block: Any, *, is_async: bool) -> AsyncIterator[TwinSession]:
    """Enter a block of either client, which gives a session."""
    if is_async:
        async with block as session:
            yield TwinSession(session, is_async=True)
    else:
        with block as session:
            yield TwinSession(session, is_async=False)


class TwinRecord(Twin):
    """A record of either client, awaited."""

    def run(self, workflow: str | None = "w", **options: Any) -> Any:
        """Begin, join, resume or replay a run."""
        options = {"agent": "ada", "role": "writer", **options}
        return _entered(self.raw.run(workflow, **options), is_async=self.is_async)

    def replay_from(self, snapshot: Any, **options: Any) -> Any:
        """Resume from a snapshot."""
        return _entered(self.raw.replay_from(snapshot, **options), is_async=self.is_async)

    async def open(self, workflow: str | None = "w", **options: Any) -> TwinSession:
        """Open a session without a block."""
        options = {"agent": "ada", "role": "writer", **options}
        opened = self.raw.open(workflow, **options)
        session = await opened if self.is_async else opened
        return TwinSession(session, is_async=self.is_async)

    async def io(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Await something of the bus, on the loop that owns it."""
        return await work if self.is_async else self.raw._portal.run(work)

    async def commits(self, run: str) -> list[Stored]:
        """Return a run's own commits from the log."""
        stored: list[Stored] = await self.io(self.raw.workspace.log.read_run(run))
        return stored

    async def tags(self, run: str, agent: str | None = "ada") -> list[str]:
        """Return the tags of an agent's events in order (of every event, for None)."""
        return [
            recorded.type
            for stored in await self.commits(run)
            if agent is None or getattr(stored.stream, "agent", None) == agent
            for recorded in stored.commit.events
        ]

    async def steps(self, run: str, agent: str = "ada") -> list[Any]:
        """Return an agent's steps."""
        view = await self.state(run)
        return list(view.agent(agent).steps.values())


class Lab:
    """A fresh workspace on the test session's broker, opened by one of the two clients."""

    def __init__(self, kind: str, data_dir: Path, workspace: str) -> None:
        self.is_async = kind == "async"
        self.data_dir = data_dir
        self.workspace = workspace

    @contextlib.asynccontextmanager
    async def connect(self, **options: Any) -> AsyncIterator[TwinRecord]:
        """Open the workspace; each connection is another process's, as far as the record knows."""
        options = {"workspace": self.workspace, "data_dir": self.data_dir, **options}
        if self.is_async:
            async with hansard.connect_async(**options) as record:
                yield TwinRecord(record, is_async=True)
        else:
            with hansard.connect(**options) as record:
                yield TwinRecord(record, is_async=False)

    def session(self, *args: Any, **options: Any) -> Any:
        """Return a session that opens its own record, not begun yet."""
        return (hansard.AsyncSession if self.is_async else hansard.Session)(*args, **options)

    def begun(self, session: Any) -> Any:
        """Enter the session's block."""
        return _entered(session, is_async=self.is_async)

    def play(self, scenario: Coroutine[Any, Any, None]) -> None:
        """Play a scenario with this client."""
        if self.is_async:
            asyncio.run(scenario)
        else:
            at_once(scenario)


def is_scenario(test: Callable[..., Any]) -> bool:
    """Return whether a test takes a workspace or a record of either client."""
    parameters = inspect.signature(test).parameters
    return "lab" in parameters or any(each.annotation is TwinRecord for each in parameters.values())


def twins(scenario: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Return a test that plays its scenario with the client of its `lab`: with that, or with a
    `record` of it that is open meanwhile.
    """
    signature = inspect.signature(scenario)
    parameters = [
        each.replace(name="lab") if each.annotation is TwinRecord else each
        for each in signature.parameters.values()
    ]

    async def recorded(lab: Lab, fixtures: dict[str, Any]) -> None:
        async with lab.connect() as record:
            await scenario(record=record, **fixtures)

    @functools.wraps(scenario)
    def test(**fixtures: Any) -> None:
        lab: Lab = fixtures["lab"]
        if "record" in signature.parameters:
            lab.play(recorded(fixtures.pop("lab"), fixtures))
        else:
            lab.play(scenario(**fixtures))

    test.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined] # as inspect reads it
    return test
