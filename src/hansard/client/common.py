"""The methods shared by the records of trusted programs and of restricted agents.

There is one class for each client, sync and async; each is generic in the class of its sessions.
"""

from __future__ import annotations

import contextlib
import functools
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack

from hansard.agents.artifacts import prompts as evolving
from hansard.agents.artifacts.prompts import Evolver, Prompt
from hansard.agents.flow import is_coroutine_function
from hansard.agents.steps.scope import enters, kept, leaves
from hansard.bus.clock import OS_USER
from hansard.bus.portal import Portal
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
from hansard.domain.errors import BadValue
from hansard.operations.record import RecordOperations

P = ParamSpec("P")
R = TypeVar("R")

if TYPE_CHECKING:
    from typing_extensions import TypeVar as WithDefault

    AsyncS_co = WithDefault(
        "AsyncS_co", bound=AsyncCommonSession, covariant=True, default=AsyncCommonSession
    )
    S_co = WithDefault("S_co", bound=CommonSession, covariant=True, default=CommonSession)
else:  # TypeVar takes a default from Python 3.13 on
    AsyncS_co = TypeVar("AsyncS_co", covariant=True)
    S_co = TypeVar("S_co", covariant=True)


def waits(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], R]:
    """Return a sync method that runs `_async`'s method of that name on the process's loop."""

    @functools.wraps(method)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return self._portal.run(getattr(self._async, method.__name__)(*args, **kwargs))

    waiting: Any = call
    waiting.guards_secrets = True  # the one that it waits for does
    waits_for: Callable[Concatenate[Any, P], R] = waiting
    return waits_for


class AsyncCommonRecord(RecordOperations, Brief, Generic[AsyncS_co]):
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


class CommonRecord(Brief, Generic[S_co]):
    """The methods of every record for the sync client.

    Each method runs that of the async client on the loop of the process, and waits for it. See
    `AsyncCommonRecord`.
    """

    _async: AsyncCommonRecord[Any]
    _portal: Portal

    view = waits(AsyncCommonRecord.view)
    view_roles = waits(AsyncCommonRecord.view_roles)
    sql = waits(AsyncCommonRecord.sql)
    savings = waits(AsyncCommonRecord.savings)
    compare = waits(AsyncCommonRecord.compare)
    audit = waits(AsyncCommonRecord.audit)
    why = waits(AsyncCommonRecord.why)
    settle = waits(AsyncCommonRecord.settle)
    finish = waits(AsyncCommonRecord.finish)
    cancel = waits(AsyncCommonRecord.cancel)
    reopen = waits(AsyncCommonRecord.reopen)
    approve = waits(AsyncCommonRecord.approve)
    deny = waits(AsyncCommonRecord.deny)
    invalidate = waits(AsyncCommonRecord.invalidate)
    prompt = waits(AsyncCommonRecord.prompt)
    prompts = waits(AsyncCommonRecord.prompts)
    add_prompt = waits(AsyncCommonRecord.add_prompt)
    alias_prompt = waits(AsyncCommonRecord.alias_prompt)
    give_feedback = waits(AsyncCommonRecord.give_feedback)
    retire_prompt = waits(AsyncCommonRecord.retire_prompt)
    prompt_report = waits(AsyncCommonRecord.prompt_report)
    promote = waits(AsyncCommonRecord.promote)
    keep_actions = waits(AsyncCommonRecord.keep_actions)
    kept_actions = waits(AsyncCommonRecord.kept_actions)
    action_caches = waits(AsyncCommonRecord.action_caches)
    actions_log = waits(AsyncCommonRecord.actions_log)
    revert_actions = waits(AsyncCommonRecord.revert_actions)
    review_actions = waits(AsyncCommonRecord.review_actions)
    kept_experience = waits(AsyncCommonRecord.kept_experience)
    experiences = waits(AsyncCommonRecord.experiences)
    experience_log = waits(AsyncCommonRecord.experience_log)
    find_experience = waits(AsyncCommonRecord.find_experience)
    confirm_experience = waits(AsyncCommonRecord.confirm_experience)
    retire_experience = waits(AsyncCommonRecord.retire_experience)
    egress = waits(AsyncCommonRecord.egress)

    def evolve(
        self,
        reference: str,
        feedback: str | Sequence[str],
        *,
        using: Evolver | None = None,
        reason: str = "",
        by: str = OS_USER,
    ) -> Prompt:
        """Add a version of a prompt that answers feedback; return the newest version.

        If the feedback changes nothing, no version is added.

        Args:
            reference: The prompt, or one version of it.
            feedback: The feedback, or a list applied in order. `too_verbose` and `missing_context`
                have built-in rules.
            using: A function of the prompt and one piece of feedback that returns the new text; it
                may call a model. It replaces the built-in rules.
            reason: The reason on record.
            by: The author of the version.

        Raises:
            BadValue: No rule answers the feedback, `using` returned no text, or it is a coroutine
                function.
            NotFound: There is no such prompt.
            Refused: The prompt has no such version.
        """
        self._async._demand_own("evolve", by)  # noqa: SLF001 -- of the async client
        text = evolving.feedback_list(feedback)
        before = after = self.prompt(reference)
        for each in text:
            rule = evolving.rule_of(each, using)
            if is_coroutine_function(rule):
                remedy = "give a plain function, or use the async client"
                raise BadValue("using", "it is a coroutine function", remedy)
            after = evolving.with_text(after, rule(after, each))
        work = self._async._evolved(before, after, text, reason, by)  # noqa: SLF001 -- of the async client that it waits for
        return self._portal.run(work)

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
