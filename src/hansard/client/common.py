"""The methods shared by the records of trusted programs and of restricted agents.

There is one class for each client, sync and async; each is generic in the class of its sessions.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import AsyncGenerator, Generator
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack

from hansard.agents.steps.scope import enters, kept, leaves
from hansard.client.options import RunOptions
from hansard.client.session import (
    AsyncCommonSession,
    CommonSession,
    stay,
    stay_async,
    within,
    within_async,
)
from hansard.domain.choices import Brief
from hansard.operations.declare import Async, Sync
from hansard.operations.record import RecordOperations

if TYPE_CHECKING:
    from typing_extensions import TypeVar as WithDefault

    AsyncS_co = WithDefault(
        "AsyncS_co", bound=AsyncCommonSession, covariant=True, default=AsyncCommonSession
    )
    S_co = WithDefault("S_co", bound=CommonSession, covariant=True, default=CommonSession)
    A_co = WithDefault("A_co", bound=Async, covariant=True, default=Async)
    B_co = WithDefault("B_co", bound=Sync, covariant=True, default=Sync)
else:  # TypeVar takes a default from Python 3.13 on
    AsyncS_co = TypeVar("AsyncS_co", covariant=True)
    S_co = TypeVar("S_co", covariant=True)
    A_co = TypeVar("A_co", covariant=True)
    B_co = TypeVar("B_co", covariant=True)


class AsyncCommonRecord(RecordOperations[A_co], Brief, Generic[AsyncS_co, A_co]):
    """The methods of every record for the async client, of a trusted program or a restricted agent.

    A restricted agent gets `RoleRefused` for an operation that its role does not allow, and
    `NotOffered` for one that only a trusted program has.
    """

    @contextlib.asynccontextmanager
    async def run(
        self,
        workflow: str | None = None,
        *,
        agent: str | None = None,
        role: str | None = None,
        **options: Unpack[RunOptions],
    ) -> AsyncGenerator[AsyncS_co, None]:
        """Begin a run, or with `run=ID` join or resume one, as one agent in one role.

        Leaving the block ends the agent's session. The end of the last agent's session ends the
        run: completed, or failed if any agent left its block by an error.

        Args:
            workflow: What the run is an execution of; required for a new run.
            agent: The agent's name: `agent` if not given, or a restricted agent's principal. An
                agent has one role in a run.
            role: The agent's role: `agent` if not given, or that of a restricted agent's
                credentials.
            **options: See `RunOptions`.

        Raises:
            BadOption: An option is unknown; the message names the nearest one.
            BadName, BadValue: A name is malformed, or holds a secret.
            NotFound: `mode` reads a run, or an agent of it, that does not exist.
            Refused: The agent has another role in this run, or the run accepts no more agents.
            Fenced: At the first write, if the run was resumed elsewhere in the meantime.
            NotOffered: A restricted agent may not use one of the options.
        """
        begun = await self._begin(workflow, agent, role, dict(options))
        async with within_async(begun) as session:
            yield session

    async def open(
        self,
        workflow: str | None = None,
        *,
        agent: str | None = None,
        role: str | None = None,
        **options: Unpack[RunOptions],
    ) -> AsyncS_co:
        """Begin, join or resume a run as `run` does, without a block.

        The session stays open until `session.close()`, or until this record is closed. Where no
        block's session is current, a call of a `@hansard.tool` goes to it, if it is the only open
        one in this process (`hansard.sessions()`).

        Opening a session for the same agent and run again, in the same thread, ends the earlier one
        and replaces it.
        """
        session = await self._begin(workflow, agent, role, dict(options))
        return await stay_async(session, self, self._place())

    async def close(self, error: BaseException | None = None) -> None:
        """End the sessions opened without a block, as `session.close(error)` does; disconnect."""
        leaves(self)
        try:
            for session in kept(self):
                await session.close(error)
        finally:
            await self._disconnect()

    @abstractmethod
    async def _begin(
        self, workflow: str | None, agent: str | None, role: str | None, options: dict[str, Any]
    ) -> AsyncS_co: ...

    @abstractmethod
    def _place(self) -> str: ...

    @abstractmethod
    async def _disconnect(self) -> None: ...

    async def __aenter__(self) -> Self:
        enters(self)
        return self

    async def __aexit__(self, _: object, error: BaseException | None, *__: object) -> None:
        await self.close(error)


class CommonRecord(RecordOperations[B_co], Brief, Generic[S_co, B_co]):
    """The methods of every record for the sync client.

    Each method runs that of the async client on the loop of the process, and waits for it. See
    `AsyncCommonRecord`.
    """

    @contextlib.contextmanager
    def run(
        self,
        workflow: str | None = None,
        *,
        agent: str | None = None,
        role: str | None = None,
        **options: Unpack[RunOptions],
    ) -> Generator[S_co, None, None]:
        """Begin a run, or with `run=ID` join or resume one, as one agent in one role.

        Leaving the block ends the agent's session. The end of the last agent's session ends the
        run: completed, or failed if any agent left its block by an error.

        Args:
            workflow: What the run is an execution of; required for a new run.
            agent: The agent's name: `agent` if not given, or a restricted agent's principal. An
                agent has one role in a run.
            role: The agent's role: `agent` if not given, or that of a restricted agent's
                credentials.
            **options: See `RunOptions`.

        Raises:
            BadOption: An option is unknown; the message names the nearest one.
            BadName, BadValue: A name is malformed, or holds a secret.
            NotFound: `mode` reads a run, or an agent of it, that does not exist.
            Refused: The agent has another role in this run, or the run accepts no more agents.
            Fenced: At the first write, if the run was resumed elsewhere in the meantime.
            NotOffered: A restricted agent may not use one of the options.
        """
        begun = self._begin(workflow, agent, role, dict(options))
        with within(begun) as session:
            yield session

    def open(
        self,
        workflow: str | None = None,
        *,
        agent: str | None = None,
        role: str | None = None,
        **options: Unpack[RunOptions],
    ) -> S_co:
        """Begin, join or resume a run as `run` does, without a block.

        The session stays open until `session.close()`, or until this record is closed. Where no
        block's session is current, a call of a `@hansard.tool` goes to it, if it is the only open
        one in this process (`hansard.sessions()`).

        Opening a session for the same agent and run again, in the same thread, ends the earlier one
        and replaces it.
        """
        session = self._begin(workflow, agent, role, dict(options))
        return stay(session, self, self._place())

    def close(self, error: BaseException | None = None) -> None:
        """End the sessions opened without a block, as `session.close(error)` does; disconnect."""
        leaves(self)
        try:
            for session in kept(self):
                session.close(error)
        finally:
            self._disconnect()

    @abstractmethod
    def _begin(
        self, workflow: str | None, agent: str | None, role: str | None, options: dict[str, Any]
    ) -> S_co: ...

    @abstractmethod
    def _place(self) -> str: ...

    @abstractmethod
    def _disconnect(self) -> None: ...

    def __enter__(self) -> Self:
        enters(self)
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        self.close(error)
