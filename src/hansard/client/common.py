"""What every record has, whoever asks: a trusted program or a restricted agent.

`AsyncCommonRecord` says what that is, and `AsyncSessions` begins sessions in blocks and without;
`common_sync`, for the sync client, is made of both.
"""

from __future__ import annotations

import contextlib
import os
from abc import abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, Protocol, Self, TypedDict, Unpack

import msgspec

from hansard.agents.access.views import View
from hansard.agents.policy.gate import GateRule
from hansard.agents.steps.ledger import Mode
from hansard.agents.steps.recorder import Settle
from hansard.agents.steps.scope import kept
from hansard.agents.steps.secrets import SecretProvider
from hansard.bus.server.lease import Durability
from hansard.client.session import AsyncCommonSession, AsyncS, stay_async, within_async
from hansard.domain.brief import Brief
from hansard.domain.steps import Verdict
from hansard.inspect.answer import SqlAnswer


class Defaults(msgspec.Struct, frozen=True, kw_only=True):
    """What `connect` was given for all runs; `run` may say otherwise."""

    gate: Sequence[GateRule] = ()
    redact: Mapping[str, Any] = {}
    secrets: SecretProvider | None = None
    settle: Settle | None = None
    run: str | None = None
    mode: Mode | None = None


class Tables(Protocol):
    """Answers questions in SQL for a record; `hansard.client.tables` takes long to import."""

    async def ask(self, question: str, parameters: tuple[object, ...]) -> SqlAnswer:
        """The answer."""
        ...

    async def close(self) -> None:
        """Let go of what answers."""
        ...


class MoreSettings(TypedDict, total=False):
    """Settings that `connect` takes besides those that it names: see `settings.Settings`."""

    disk_wait_s: float | None
    nats_url: str | None
    nats_user: str | None
    nats_password: str | None
    nats_creds: str | os.PathLike[str] | None
    nats_nkey: str | os.PathLike[str] | None
    nats_ca: str | os.PathLike[str] | None
    nats_cert: str | os.PathLike[str] | None
    nats_key: str | os.PathLike[str] | None
    nats_replicas: int | None
    nats_system_user: str | None
    nats_system_password: str | None
    nats_system_creds: str | os.PathLike[str] | None
    run: str | None
    mode: Mode | str | None


class ConnectOptions(MoreSettings, total=False):
    """What `connect` takes besides a workspace and credentials; see there."""

    data_dir: str | os.PathLike[str] | None
    nats: str | None
    durability: Durability | str | None
    gate: Sequence[GateRule]
    redact: Mapping[str, Any] | None
    secrets: SecretProvider | None
    settle: Settle | None


class RecordOptions(TypedDict, total=False):
    """What a record takes for all of its runs; `run` may say otherwise."""

    gate: Sequence[GateRule] | None
    """Rules that every call must pass."""
    redact: Mapping[str, Any] | None
    """Secrets to keep out of the record, by name."""
    secrets: SecretProvider | None
    """Gives them back to live calls."""
    settle: Settle | None
    """A policy that settles doubt."""
    run: str | None
    """The run that sessions join, where they name none."""
    mode: Mode | str | None
    """`strict` or `offline`: only read, and run no tool."""


class RunOptions(TypedDict, total=False):
    """What `record.run` takes besides a workflow, an agent and a role."""

    run: str | None
    """The run's id; one of your own begins it the first time."""
    mode: Mode | str | None
    """`strict` or `offline`: only read, and run no tool."""
    conversation: str | None
    """What the run goes on with."""
    labels: Mapping[str, str] | None
    """Texts by name, to find the run by."""
    experiment: str | None
    """Of which experiment it is."""
    task: str | None
    """What it tries there."""
    trial: int | None
    """Which trial of it, from 0."""
    unit: str | None
    """What the arm is given to, where the plan's unit is a name of its own."""
    arm: str | None
    """Where the caller chooses it; `session.arm` is what it got."""
    gate: Sequence[GateRule] | None
    """Rules, in place of `connect`'s."""
    redact: Mapping[str, Any] | None
    """Secrets, in place of `connect`'s."""
    secrets: SecretProvider | None
    """In place of `connect`'s."""
    settle: Settle | None
    """In place of `connect`'s."""
    program: str | None
    """What runs it; the program's name if not given."""
    correlation: str | None
    """An id of yours that its commits carry."""
    traceparent: str | None
    """The W3C trace context that its commits carry."""
    on_behalf_of: Sequence[str] | None
    """Principals for whom the agent acts, the nearest first."""
    restricted: bool | None
    """Whether a role that was never defined may do nothing, in place of anything."""


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

    async def sql(self, question: str, *parameters: object) -> SqlAnswer:
        """The answer of the tables."""
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
        return self

    async def __aexit__(self, _: object, error: BaseException | None, *__: object) -> None:
        await self.close(error)
