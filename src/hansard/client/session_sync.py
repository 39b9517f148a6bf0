"""The session of the sync client.

Made by `python -m tests.structure.twins`: do not edit it, but
`hansard.client.session`, from which it is made.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack
from uuid import UUID

from hansard.agents.access.views import View
from hansard.agents.annotations.inputs import stated
from hansard.agents.annotations.statements import Checkpoint
from hansard.agents.annotations.windows import Compaction, summarizer
from hansard.agents.board.twins_sync import Board
from hansard.agents.errors import SessionEnded
from hansard.agents.memory.twins_sync import Memory
from hansard.agents.steps.recorder import Call
from hansard.agents.steps.scope import keep
from hansard.agents.steps.streams import iterate
from hansard.agents.team.twins_sync import Team
from hansard.client.beginning import Asked, begun
from hansard.client.options import SessionOptions
from hansard.client.resumable_sync import Resumable
from hansard.client.session import OnPortal, T, Trusted, _labelled
from hansard.domain.choices import NOTHING, by_name
from hansard.domain.compaction import Bound
from hansard.domain.snapshot import Snapshot
from hansard.inspect import snapshots


class CommonSession(OnPortal):
    """One agent at work in one run, for the sync client: what every session has, a trusted
    program's (`Session`) and a restricted agent's. Made by `record.run(...)`.

    After its `with` each of these raises `SessionEnded`.
    """

    board: Board
    """State that all agents of the run share, by key."""
    memory: Memory
    """Files that outlive runs: the agent's own, those of the user it acts for, and those of all."""
    team: Team
    """The tasks that the run's agents share, and the messages between them."""

    def close(self, error: BaseException | None = None) -> None:
        """End the session, as leaving its block would: completed, or failed where an error is
        given. Streams of tools that are half read are closed first. It does nothing the second
        time, nor in a forked child. Raises as any write.
        """
        ending = self._closing()
        if ending is not None:
            self._explain(error)
            self._end_streams()
            self._portal.run(ending(error))

    def view(self, at: object = None, *, key: bytes | None = None) -> View:
        """What this agent's role may see of the run; that it was served is put on record.

        Args:
            at: A point of the run; now without one.
            key: 32 secret bytes or more, where a mask of the role hashes.

        Raises:
            NotFound: There is no such point.
            ViewDiffers: It is on record, and derived again it is another one.
        """
        found: View = self._drive(self._flows.views.view(at, key))
        return found

    def checkpoint(self, name: str, /, **data: Any) -> None:
        """Put a named stage on record, with data that can be read back."""
        self._drive(self.facts.checkpoint(name, data))

    def checkpoint_data(self, name: str) -> dict[str, Any] | None:
        """The data of the newest checkpoint of a name; None where there is none."""
        found: dict[str, Any] | None = self._drive(self.facts.checkpoint_data(name))
        return found

    def decide(
        self,
        question: str,
        *,
        selected: str,
        alternatives: Iterable[Any] = (),
        inputs: Iterable[Any] = (),
        threshold: float | None = None,
        confidence: float | None = None,
        because: str = "",
    ) -> None:
        """Put a decision on record.

        Args:
            question: What is decided.
            selected: What is chosen.
            alternatives: Texts, or dicts of id, score, reason, rejected_because.
            inputs: What it was made from: values that calls returned or parts of them, steps
                (`ada#3`), entries of the board (or `key@version`), views, ids of events and
                commits. Each is recorded as the event that it came from.
            threshold: What a score had to reach.
            confidence: How sure the agent was.
            because: Why.

        Raises:
            BadValue: An input came from nowhere, or a number is not finite; nothing is recorded.
        """
        self._drive(
            self.facts.decide(
                question,
                selected,
                alternatives=alternatives,
                inputs=stated(inputs),
                threshold=threshold,
                confidence=confidence,
                because=because,
            )
        )

    def message(
        self,
        role: str,
        content: Any,
        *,
        tokens: int | None = None,
        label: str = "",
        fields: Mapping[str, Any] = NOTHING,
    ) -> None:
        """Add a message to the context window, in the provider's form.

        Args:
            role: The message's: `user`, `assistant`, `tool` ...
            content: A text, or what the provider takes.
            tokens: How many tokens it has; None where nobody counted.
            label: `secret untrusted`, say, where it is more than public and trusted.
            fields: What else the provider's form has (`tool_calls`, `name` ...).

        Raises:
            BadValue: It cannot be recorded, or `tokens` is no whole number.
        """
        self._drive(self.facts.message(role, content, tokens, _labelled(fields, label)))

    def resource(self, uri: str, operation: str = "read") -> None:
        """Put on record that a resource was used."""
        self._drive(self.facts.resource(uri, operation))

    def hand_off(self, to: str, payload: Mapping[str, Any] = NOTHING, *, because: str = "") -> None:
        """Hand the work over to another agent or role.

        Args:
            to: The agent or role.
            payload: What it needs, by name.
            because: Why.

        Raises:
            BadName, BadValue: `to` is no name, or the payload cannot be recorded.
        """
        self._drive(self.facts.hand_off(to, because, by_name("payload", payload)))

    def context(self) -> list[dict[str, Any]]:
        """This run's part of the context window in the provider's message form: what this agent has
        stated in it, a summary in the place of what was compacted. `window()` has all of it.
        """
        return self._drive(self.facts.context())

    def latest_checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint of this agent, of whatever name; None where there is none."""
        found: Checkpoint | None = self._drive(self.facts.latest_checkpoint())
        return found

    def resumable(self, items: Iterable[T], *, every: int = 1, name: str = "items") -> Resumable[T]:
        """The items not yet done: a loop that goes on where it stood.

        Args:
            items: In the same order each time.
            every: Progress is recorded after so many; up to as many are done again on resume.
            name: Of the loop, where an agent has several.

        Raises:
            BadValue: `every` is less than 1; when the loop begins.
        """
        progress = functools.partial(self._progress, name, every)
        return Resumable(items, every, progress, self._drive)


class Session(Trusted, CommonSession):
    """A trusted program's session, for the sync client: what `record.run` gives, or without a
    record `with hansard.Session() as session`, which opens the record and a run, and
    closes both where the block ends.

    Until its block is entered each of its methods raises `NotBegun`, after it `SessionEnded`.

    Args:
        workflow: What the run is an execution of, where it begins; HANSARD_WORKFLOW if not given,
            else the program's name: `agent` for `python agent.py`, `interactive` at a prompt, in a
            notebook and for `python -c`.
        agent: Who acts: HANSARD_AGENT, or `agent`, if not given.
        role: Its role: HANSARD_ROLE, or `agent`, if not given.
        workspace: Which one; HANSARD_WORKSPACE, or `default`, if not given.
        **options: What `connect` and `record.run` take: `run`, `mode`, `gate`, `settle` ...; see
            `SessionOptions`.

    Raises:
        BadOption: There is no such option; the message names the nearest.
    """

    _asked: Asked | None = None
    _block: AbstractContextManager[Self]

    def __init__(
        self,
        workflow: str | None = None,
        *,
        agent: str | None = None,
        role: str | None = None,
        workspace: str | None = None,
        **options: Unpack[SessionOptions],
    ) -> None:
        self._asked = Asked(
            workflow=workflow, agent=agent, role=role, workspace=workspace, options=dict(options)
        )

    def __enter__(self) -> Self:
        """Open the record and begin, join or resume the run. Raises as `connect` and `record.run`;
        Refused where it is open already, SessionEnded where it was.
        """
        asked = self._beginning()
        OnPortal.__init__(self, *begun(asked))
        self._asked = None
        self._block = within(self)
        return self._block.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the session, and close what it opened."""
        self._block.__exit__(kind, error, trace)

    def snapshot(self) -> Snapshot:
        """The agent's state as it stands, large payloads included: it reads all that the agent did.
        Its id is a point for `at=`, and what `record.replay_from` takes.
        """
        self.engine.ledger.demand_open()
        return self._portal.run(snapshots.now(self.engine.workspace, self.engine.stream))

    def window(self, *, full: bool = False, close: bool = True) -> list[dict[str, Any]]:
        """The whole context window in the provider's form, ready to be sent to a model: what the
        conversation held before this run, then what this agent has stated in it; a summary in the
        place of messages that were compacted. This agent has seen it: their labels are its own.

        Args:
            full: All messages, without the summaries.
            close: Answer each tool call that has no answer on record and gets none any more, as
                after a run that was cut off: providers refuse a window that has one. The answer
                says so, and is not recorded.
        """
        flow = self._flows.windows.window(full=full, close=close)
        found: list[dict[str, Any]] = self._drive(flow)
        return found

    def compact(
        self,
        summarize: Callable[..., Any],
        *,
        keep: int = 4,
        max_messages: int | None = None,
        max_tokens: int | None = None,
        count: Callable[[dict[str, Any]], int] | None = None,
        role: str = "system",
    ) -> Compaction | None:
        """Have a summary stand for the window's earlier messages, if it is too long. They stay on
        record; `compaction.dropped` and `window(full=True)` have them.

        Nothing is half done: the summary is one event, which says what it stands for. Instructions
        at the window's begin stay, and an answer to a call stays with that call.

        Args:
            summarize: Is given the messages to be dropped, in the provider's form, and returns a
                text. Its call is a step like any other, answered from the record on a resume: of
                the tool that it was declared as, else `pure` and of kind `model`.
            keep: So many of the newest messages stay.
            max_messages: Only if the window has more than these.
            max_tokens: Only if it has more than these. Without either it is compacted at once.
            count: How many tokens a message has, where that was not said with each (`tokens=`).
            role: The role of the message that the summary is.

        What comes of it is the window now, and what was dropped; None where it was within its
        bounds.

        Raises:
            Refused: Nothing is left to drop, or another agent of the run compacted some of these
                messages.
            BadValue: The summary is empty, or longer than what it stands for; or tokens are bounded
                and of some message not known. Nothing of it is on record but the failed call.
        """
        bound = Bound(keep=keep, messages=max_messages, tokens=max_tokens)
        plan = self._drive(self._flows.windows.planned(bound, count, role))
        if plan is None:
            return None
        spec = summarizer(summarize, plan)
        summary = self._drive(self._flows.windows.summarized(spec, plan))
        made: Compaction = self._drive(self._flows.windows.compacted(plan, summary))
        return made

    def save(self, *aggregates: Any) -> list[int]:
        """Save what happened to aggregates of the program's own: their new events and the step that
        caused them, together, whole or not at all. The versions that they are at, in order.

        Called again by a program that is resumed or replayed, it writes nothing, and the aggregates
        become what was saved then: with the ids and times of then.

        Args:
            *aggregates: Aggregates of the `eventsourcing` library, of classes that are declared
                with `hansard.aggregate_type`. One that nothing happened to is left as it is.

        Raises:
            AggregateConflict: Another was first: one of them is at another version. Get it again,
                and decide again.
            BadValue: A class or event is not declared, or an event cannot be recorded so that an
                equal one comes back.
            ShadowedEffect: In a fork that shadows effects, for what its parent never saved.
        """
        versions: list[int] = self._drive(self._flows.aggregates.save(aggregates))
        return versions

    def get(
        self,
        cls: type[T],
        aggregate_id: UUID | str,
        *,
        at: object = None,
        version: int | None = None,
    ) -> T:
        """An aggregate of the program's own, rebuilt from its events as it stands, or stood. That
        it was read, and at which version, is put on record; a replay is given the same.

        Args:
            cls: Its class, declared with `hansard.aggregate_type`.
            aggregate_id: Its id.
            at: A point: a position, a time, the id of a commit or event of it, or '@3' for its
                version; now without one.
            version: Its version, as `at='@3'` says it.

        Raises:
            NotFound: There was no such aggregate then.
            UndeclaredEvent: It has an event on record under a tag that is not declared.
            BadValue: The class is not declared.
        """
        found: T = self._drive(self._flows.aggregates.get(cls, aggregate_id, at, version))
        return found

    def _items(self, call: Call) -> Generator[Any, None, None]:
        return iterate(self.engine, call, self._drive)


def opened(*made_of: Any) -> Session:
    """A session that is open already, of what `OnPortal` is made of."""
    session = Session.__new__(Session)
    OnPortal.__init__(session, *made_of)
    return session


S = TypeVar("S", bound=CommonSession)


@contextlib.contextmanager
def within(session: S) -> Generator[S, None, None]:
    """A session's block: it is current inside, and ends with it."""
    with session.use():
        try:
            yield session
        except BaseException as error:
            session.close(error)
            raise
        else:
            session.close()


def stay(session: S, record: Any, where: str) -> S:
    """Have calls find a session without a block; one that it takes the place of ends."""
    for old in keep(session, record, where):
        old.close(SessionEnded(old.run, old.agent))
    return session
