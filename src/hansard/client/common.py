"""What every record has, whoever asks: a trusted program or a restricted agent.

`AsyncCommonRecord` and `CommonRecord` list it; `AsyncSessions` and `SyncSessions` begin sessions in
blocks and without.
"""

from __future__ import annotations

import contextlib
import os
from abc import abstractmethod
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Generic, Protocol, Self, Unpack

from hansard.agents.access.views import View
from hansard.agents.prompts.store import Prompt
from hansard.agents.steps.scope import enters, kept, leaves
from hansard.client.options import RunOptions
from hansard.client.reports import (
    AuditOptions,
    AuditReport,
    CompareOptions,
    ComparisonReport,
    DecisionList,
    DecisionReport,
)
from hansard.client.session import (
    AsyncCommonSession,
    AsyncS,
    CommonSession,
    S,
    stay,
    stay_async,
    within,
    within_async,
)
from hansard.client.sql_answer import SqlAnswer
from hansard.domain.choices import NOTHING, Brief
from hansard.domain.steps import Verdict
from hansard.inspect.savings import SavingsAnswer


class AsyncCommonRecord(Protocol):
    """What every record has for the async client. See `Record` for each.

    What a restricted agent's role may not do raises `RoleRefused`, and what only a trusted program
    may do `NotOffered`.
    """

    def run(
        self,
        workflow: str | None = None,
        *,
        agent: str | None = None,
        role: str | None = None,
        **options: Unpack[RunOptions],
    ) -> AbstractAsyncContextManager[AsyncCommonSession]:
        """Begin, join or resume a run."""
        ...

    async def open(
        self,
        workflow: str | None = None,
        *,
        agent: str | None = None,
        role: str | None = None,
        **options: Unpack[RunOptions],
    ) -> AsyncCommonSession:
        """Like `run`, without a block."""
        ...

    async def view(
        self, run: str, at: str | None = None, *, role: str | None = None, key: bytes | None = None
    ) -> View:
        """What a role may see of a run."""
        ...

    async def view_roles(self) -> list[str]:
        """The roles whose views may be shown."""
        ...

    async def sql(
        self, question: str, *parameters: object, tables: Mapping[str, Any] = NOTHING
    ) -> SqlAnswer:
        """The answer of the tables."""
        ...

    async def savings(
        self,
        run: str | None = None,
        *,
        workflow: str | None = None,
        month: str | None = None,
        by: str = "run",
    ) -> SavingsAnswer:
        """What replays saved."""
        ...

    async def compare(self, experiment: str, **options: Unpack[CompareOptions]) -> ComparisonReport:
        """The arms of an experiment beside each other."""
        ...

    async def audit(self, run: str | None = None, **options: Unpack[AuditOptions]) -> AuditReport:
        """What is missing or odd."""
        ...

    async def why(self, decision: str) -> DecisionReport | DecisionList:
        """Why something was decided."""
        ...

    async def apply_roles(self, path: str | os.PathLike[str]) -> dict[str, bool]:
        """Give the roles of a file their rules."""
        ...

    async def approve(self, approval: str, *, because: str = "") -> None:
        """Grant what an agent asks."""
        ...

    async def deny(self, approval: str, *, because: str = "") -> None:
        """Deny what an agent asks."""
        ...

    async def settle(
        self,
        run: str,
        step: str,
        verdict: Verdict | str,
        *,
        result: Any = None,
        because: str = "",
    ) -> None:
        """Say what is true of a step in doubt."""
        ...

    async def reopen(self, run: str, task: str, *, because: str = "") -> bool:
        """Have a task that failed be done after all."""
        ...

    async def finish(self, run: str, *, because: str = "") -> bool:
        """Say that a run has ended as it should."""
        ...

    async def cancel(self, run: str, *, because: str = "") -> bool:
        """Say that a run is cancelled."""
        ...

    async def prompt(self, reference: str) -> Prompt:
        """A version of a prompt."""
        ...

    async def prompts(self) -> list[Prompt]:
        """The prompts, each as its newest version."""
        ...

    async def add_prompt(
        self,
        name: str,
        text: str,
        *,
        model: str = ...,
        parameters: Mapping[str, Any] = ...,
        parents: Sequence[int] = ...,
        feedback_applied: Sequence[str] = ...,
        because: str = ...,
    ) -> int:
        """Add a version to a prompt."""
        ...

    async def alias_prompt(
        self,
        reference: str,
        alias: str,
        *,
        because: str = ...,
        expected: int | None = ...,
        take_away: bool = ...,
    ) -> bool:
        """Have an alias name a version."""
        ...

    async def give_feedback(
        self, reference: str, text: str = "", *, rating: float | None = None
    ) -> int:
        """Say something of a version."""
        ...

    async def retire_prompt(self, reference: str, *, because: str = "") -> bool:
        """Have a version not be used any more."""
        ...

    async def invalidate(
        self, *, tool: str = "", run: str = "", key: str = "", because: str = ""
    ) -> None:
        """Declare answers stale that later runs might be given."""
        ...

    async def close(self, error: BaseException | None = None) -> None:
        """End what is open, and let go."""
        ...


class AsyncSessions(Brief, Generic[AsyncS]):
    """Begins sessions for the async client; who does it says how."""

    @contextlib.asynccontextmanager
    async def run(
        self,
        workflow: str | None = None,
        *,
        agent: str | None = None,
        role: str | None = None,
        **options: Unpack[RunOptions],
    ) -> AsyncGenerator[AsyncS, None]:
        """Begin a run, or with `run=ID` join or resume one, as one agent in one role.

        Leaving the block ends the agent's session, and with the last of its agents the run:
        completed, or failed where one of them left its block by an error.

        Args:
            workflow: What the run is an execution of; needed where it begins.
            agent: Who acts: `agent` if not given, or a restricted agent's principal. One name has
                one role in a run.
            role: Its role: `agent` if not given, or that of a restricted agent's credentials.
            **options: See `RunOptions`.

        Raises:
            BadOption: There is no such option; the message names the nearest.
            BadName, BadValue: A name is not one, or holds a secret.
            NotFound: `mode` reads a run, or an agent of it, that is not there.
            Refused: The agent has another role in this run, or the run takes no more.
            Fenced: At the first write, where the run was resumed elsewhere meanwhile.
            NotOffered: It is not for a restricted agent.
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
    ) -> AsyncS:
        """Like `run`, without a block: the session stays open until `session.close()`, or until
        this record is closed. Wherever no block's session is current, a call of a `@hansard.tool`
        goes to it, if it is the only one in this process (`hansard.sessions()`).

        Opened again for the same agent and run, in the same thread, it takes the place of the
        earlier one, which has then ended.
        """
        session = await self._begin(workflow, agent, role, dict(options))
        return await stay_async(session, self, self._place())

    async def close(self, error: BaseException | None = None) -> None:
        """End the sessions that are open without a block, as `session.close(error)` does, and let
        go of the broker.
        """
        leaves(self)
        try:
            for session in kept(self):
                await session.close(error)
        finally:
            await self._let_go()

    @abstractmethod
    async def _begin(
        self, workflow: str | None, agent: str | None, role: str | None, options: dict[str, Any]
    ) -> AsyncS: ...

    @abstractmethod
    def _place(self) -> str: ...

    @abstractmethod
    async def _let_go(self) -> None: ...

    async def __aenter__(self) -> Self:
        enters(self)
        return self

    async def __aexit__(self, _: object, error: BaseException | None, *__: object) -> None:
        await self.close(error)


class CommonRecord(Protocol):
    """What every record has for the sync client. See `Record` for each.

    What a restricted agent's role may not do raises `RoleRefused`, and what only a trusted program
    may do `NotOffered`.
    """

    def run(
        self,
        workflow: str | None = None,
        *,
        agent: str | None = None,
        role: str | None = None,
        **options: Unpack[RunOptions],
    ) -> AbstractContextManager[CommonSession]:
        """Begin, join or resume a run."""
        ...

    def open(
        self,
        workflow: str | None = None,
        *,
        agent: str | None = None,
        role: str | None = None,
        **options: Unpack[RunOptions],
    ) -> CommonSession:
        """Like `run`, without a block."""
        ...

    def view(
        self, run: str, at: str | None = None, *, role: str | None = None, key: bytes | None = None
    ) -> View:
        """What a role may see of a run."""
        ...

    def view_roles(self) -> list[str]:
        """The roles whose views may be shown."""
        ...

    def sql(
        self, question: str, *parameters: object, tables: Mapping[str, Any] = NOTHING
    ) -> SqlAnswer:
        """The answer of the tables."""
        ...

    def savings(
        self,
        run: str | None = None,
        *,
        workflow: str | None = None,
        month: str | None = None,
        by: str = "run",
    ) -> SavingsAnswer:
        """What replays saved."""
        ...

    def compare(self, experiment: str, **options: Unpack[CompareOptions]) -> ComparisonReport:
        """The arms of an experiment beside each other."""
        ...

    def audit(self, run: str | None = None, **options: Unpack[AuditOptions]) -> AuditReport:
        """What is missing or odd."""
        ...

    def why(self, decision: str) -> DecisionReport | DecisionList:
        """Why something was decided."""
        ...

    def apply_roles(self, path: str | os.PathLike[str]) -> dict[str, bool]:
        """Give the roles of a file their rules."""
        ...

    def approve(self, approval: str, *, because: str = "") -> None:
        """Grant what an agent asks."""
        ...

    def deny(self, approval: str, *, because: str = "") -> None:
        """Deny what an agent asks."""
        ...

    def settle(
        self,
        run: str,
        step: str,
        verdict: Verdict | str,
        *,
        result: Any = None,
        because: str = "",
    ) -> None:
        """Say what is true of a step in doubt."""
        ...

    def reopen(self, run: str, task: str, *, because: str = "") -> bool:
        """Have a task that failed be done after all."""
        ...

    def finish(self, run: str, *, because: str = "") -> bool:
        """Say that a run has ended as it should."""
        ...

    def cancel(self, run: str, *, because: str = "") -> bool:
        """Say that a run is cancelled."""
        ...

    def prompt(self, reference: str) -> Prompt:
        """A version of a prompt."""
        ...

    def prompts(self) -> list[Prompt]:
        """The prompts, each as its newest version."""
        ...

    def add_prompt(
        self,
        name: str,
        text: str,
        *,
        model: str = ...,
        parameters: Mapping[str, Any] = ...,
        parents: Sequence[int] = ...,
        feedback_applied: Sequence[str] = ...,
        because: str = ...,
    ) -> int:
        """Add a version to a prompt."""
        ...

    def alias_prompt(
        self,
        reference: str,
        alias: str,
        *,
        because: str = ...,
        expected: int | None = ...,
        take_away: bool = ...,
    ) -> bool:
        """Have an alias name a version."""
        ...

    def give_feedback(self, reference: str, text: str = "", *, rating: float | None = None) -> int:
        """Say something of a version."""
        ...

    def retire_prompt(self, reference: str, *, because: str = "") -> bool:
        """Have a version not be used any more."""
        ...

    def invalidate(
        self, *, tool: str = "", run: str = "", key: str = "", because: str = ""
    ) -> None:
        """Declare answers stale that later runs might be given."""
        ...

    def close(self, error: BaseException | None = None) -> None:
        """End what is open, and let go."""
        ...


class SyncSessions(Brief, Generic[S]):
    """Begins sessions for the sync client; who does it says how."""

    @contextlib.contextmanager
    def run(
        self,
        workflow: str | None = None,
        *,
        agent: str | None = None,
        role: str | None = None,
        **options: Unpack[RunOptions],
    ) -> Generator[S, None, None]:
        """Begin a run, or with `run=ID` join or resume one, as one agent in one role.

        Leaving the block ends the agent's session, and with the last of its agents the run:
        completed, or failed where one of them left its block by an error.

        Args:
            workflow: What the run is an execution of; needed where it begins.
            agent: Who acts: `agent` if not given, or a restricted agent's principal. One name has
                one role in a run.
            role: Its role: `agent` if not given, or that of a restricted agent's credentials.
            **options: See `RunOptions`.

        Raises:
            BadOption: There is no such option; the message names the nearest.
            BadName, BadValue: A name is not one, or holds a secret.
            NotFound: `mode` reads a run, or an agent of it, that is not there.
            Refused: The agent has another role in this run, or the run takes no more.
            Fenced: At the first write, where the run was resumed elsewhere meanwhile.
            NotOffered: It is not for a restricted agent.
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
    ) -> S:
        """Like `run`, without a block: the session stays open until `session.close()`, or until
        this record is closed. Wherever no block's session is current, a call of a `@hansard.tool`
        goes to it, if it is the only one in this process (`hansard.sessions()`).

        Opened again for the same agent and run, in the same thread, it takes the place of the
        earlier one, which has then ended.
        """
        session = self._begin(workflow, agent, role, dict(options))
        return stay(session, self, self._place())

    def close(self, error: BaseException | None = None) -> None:
        """End the sessions that are open without a block, as `session.close(error)` does, and let
        go of the broker.
        """
        leaves(self)
        try:
            for session in kept(self):
                session.close(error)
        finally:
            self._let_go()

    @abstractmethod
    def _begin(
        self, workflow: str | None, agent: str | None, role: str | None, options: dict[str, Any]
    ) -> S: ...

    @abstractmethod
    def _place(self) -> str: ...

    @abstractmethod
    def _let_go(self) -> None: ...

    def __enter__(self) -> Self:
        enters(self)
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        self.close(error)
