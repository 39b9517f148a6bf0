"""Answers of earlier runs, found by a key: the step that answered a call, and stale declarations.

A key has one stream. Its newest event names the step that ran the call last, so that a lookup is
one request, and a restart loses nothing. The answer itself is stored in that step alone. Stale
declarations share one stream: each names a tool, a run or a key. An answer is valid where no
declaration that concerns it is newer than the one its own call read before it ran; so the answer of
a call that was running at the time of a declaration is stale, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar

import msgspec

from hansard.domain import ids
from hansard.domain.choices import chosen
from hansard.domain.decider import By, State
from hansard.domain.errors import BadValue
from hansard.domain.events import Event, event
from hansard.domain.fingerprint import digest
from hansard.domain.ids import WorkspaceStream

KIND = "reuse"
"""The kind of its streams; their ids are the keys, and `STALE`."""

STALE = WorkspaceStream(KIND, "stale")
"""The stream of stale declarations. The id cannot be a key: a key has 24 characters."""


@event("reuse.offered.v1")
class AnswerOffered(Event, frozen=True, kw_only=True):
    """A step ran a call whose answer later runs may reuse. Its writer is the step's agent.

    Attributes:
        key: See `key_of`.
        tool: The called tool.
        version: The tool's declared version.
        workflow: The workflow whose runs may reuse it; empty for any of the workspace.
        run: The step's run.
        role: Its agent's role.
        agent: Its agent.
        step: Its number.
        outcome: The version of its outcome in the agent's stream.
        digest: Digest of the answer.
        source: The digest of the tool's source text; empty where it has none.
        stale: The version of the stale declarations, as read before the call ran.
    """

    key: str
    tool: str
    run: str
    role: str
    agent: str
    step: int
    outcome: int
    digest: str
    version: str = ""
    workflow: str = ""
    source: str = ""
    stale: int = 0


@event("reuse.invalidated.v1")
class AnswersInvalidated(Event, frozen=True, kw_only=True):
    """Answers until here are stale: those of a tool, of a run, or of a key.

    Attributes:
        tool: The tool; empty for none.
        run: The run; empty for none.
        key: The key; empty for none.
        because: The reason.
    """

    tool: str = ""
    run: str = ""
    key: str = ""
    because: str = ""


ReuseEvent = AnswerOffered | AnswersInvalidated


class ReuseScope(StrEnum):
    """The runs whose answers are reused.

    Attributes:
        WORKFLOW: Runs of the same workflow.
        WORKSPACE: Any run of the workspace.
    """

    WORKFLOW = "workflow"
    WORKSPACE = "workspace"


class Reuse(msgspec.Struct, frozen=True, kw_only=True):
    """Permission to answer a call by that of an earlier run.

    Attributes:
        ttl_s: Largest age of an answer, in seconds.
        scope: The runs whose answers are reused.
    """

    ttl_s: float
    scope: ReuseScope = ReuseScope.WORKFLOW


def reuse(*, ttl_s: float, scope: str = "workflow") -> Reuse:
    """Build the value of `reuse=` for a tool that is pure or idempotent.

    A call that an earlier run made with equal arguments is answered by its outcome there, and does
    not run (docs/reuse.md).

    Args:
        ttl_s: Largest age of an answer, in seconds, by the log's time.
        scope: `workflow`, answers of runs of the same workflow; or `workspace`, of any.

    Raises:
        BadValue: `ttl_s` is no positive number, or `scope` is unknown.
    """
    value: object = ttl_s
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(ttl_s) or ttl_s <= 0:
        raise BadValue("ttl_s", f"{ttl_s!r:.80}", "give seconds, more than 0")
    return Reuse(ttl_s=float(ttl_s), scope=chosen(ReuseScope, scope, "scope"))


def key_of(tool: str, version: str, workflow: str, arguments: bytes) -> str:
    """Return the key of a call: its tool, declared version, arguments in RFC 8785 form, and the
    workflow whose runs share it (empty for any).
    """
    return digest(b"reuse", tool.encode(), version.encode(), workflow.encode(), arguments)


class Stale(State):
    """Stale declarations at a `version`: the version of the last one for each name.

    Attributes:
        version: The number of events.
        tools: Versions by tool.
        runs: Versions by run.
        keys: Versions by key.
    """

    noun: ClassVar[str] = "stale answers"

    tools: dict[str, int] = {}
    runs: dict[str, int] = {}
    keys: dict[str, int] = {}

    def holds(self, offered: AnswerOffered) -> bool:
        """Return whether an answer is still valid."""
        newest = max(
            self.tools.get(offered.tool, 0),
            self.runs.get(offered.run, 0),
            self.keys.get(offered.key, 0),
        )
        return newest <= offered.stale

    def _evolve(self, event: Event, by: By) -> None:
        """Apply one event in place."""
        if not isinstance(event, AnswersInvalidated):
            super()._evolve(event, by)
            return
        named = ((self.tools, event.tool), (self.runs, event.run), (self.keys, event.key))
        for versions, name in named:
            if name:
                versions[name] = self.version


def decide(event: AnswersInvalidated) -> Sequence[AnswersInvalidated]:
    """Return the events of declaring answers stale: always one, since answers offered after an
    earlier declaration become stale, too. Raises BadValue, BadName.
    """
    named = [(kind, getattr(event, kind)) for kind in ("tool", "run", "key")]
    named_one = [(kind, name) for kind, name in named if name]
    if len(named_one) != 1:
        fact = "none is named" if not named_one else " and ".join(kind for kind, _ in named_one)
        raise BadValue("what is invalidated", fact, "name one tool, one run or one key")
    [(kind, name)] = named_one
    ids.name(kind, name)
    return (event,)
