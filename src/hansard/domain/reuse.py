"""Answers of earlier runs, found by a key: which step answered a call, and what is declared stale.

A key has one stream. Its newest event names the step that ran the call last, so that a look at it
is one request, and a restart loses nothing. The answer itself stands in that step alone. What is
declared stale stands in one stream: of a tool, a run or a key. An answer counts where nothing that
concerns it was declared after the look that its own call made before it ran: so a call that was
under way meanwhile is stale, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from hansard.domain import ids
from hansard.domain.choices import chosen
from hansard.domain.errors import BadValue, Refused
from hansard.domain.events import Event, event
from hansard.domain.fingerprint import digest
from hansard.domain.ids import WorkspaceStream
from hansard.domain.quarantined import Quarantined

KIND = "reuse"
"""The kind of its streams; their ids are the keys, and `STALE`."""

STALE = WorkspaceStream(KIND, "stale")
"""What was declared stale. No key is called so: a key has 24 characters."""


@event("reuse.offered.v1")
class AnswerOffered(Event, frozen=True, kw_only=True):
    """A step ran a call whose answer later runs may take. Its writer is the step's agent.

    Attributes:
        key: See `key_of`.
        tool: What was called.
        version: As declared.
        workflow: The workflow whose runs may take it; empty for any of the workspace.
        run: The step's run.
        role: Its agent's role.
        agent: Its agent.
        step: Its number.
        outcome: The version of its outcome in the agent's stream.
        digest: Of the answer.
        source: The digest of the tool's source text; empty where it has none.
        stale: The version of what was declared stale, as it was looked at before the call ran.
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
        because: Why.
    """

    tool: str = ""
    run: str = ""
    key: str = ""
    because: str = ""


ReuseEvent = AnswerOffered | AnswersInvalidated


class ReuseScope(StrEnum):
    """Whose answers are taken.

    Attributes:
        WORKFLOW: Those of runs of the same workflow.
        WORKSPACE: Those of any run of the workspace.
    """

    WORKFLOW = "workflow"
    WORKSPACE = "workspace"


class Reuse(msgspec.Struct, frozen=True, kw_only=True):
    """That a call may be answered by an earlier run's.

    Attributes:
        ttl_s: Seconds that an answer may be old.
        scope: Whose answers are taken.
    """

    ttl_s: float
    scope: ReuseScope = ReuseScope.WORKFLOW


def reuse(*, ttl_s: float, scope: str = "workflow") -> Reuse:
    """For `reuse=` of a tool that is pure or idempotent: a call that an earlier run made with equal
    arguments is answered by what came of it there, and does not run (docs/reuse.md).

    Args:
        ttl_s: Seconds that an answer may be old, by the log's time.
        scope: `workflow`, answers of runs of the same workflow; or `workspace`, of any.

    Raises:
        BadValue: It is no time, or no scope.
    """
    value: object = ttl_s
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(ttl_s) or ttl_s <= 0:
        raise BadValue("ttl_s", f"{ttl_s!r:.80}", "give seconds, more than 0")
    return Reuse(ttl_s=float(ttl_s), scope=chosen(ReuseScope, scope, "scope"))


def key_of(tool: str, version: str, workflow: str, arguments: bytes) -> str:
    """The key of a call: of its tool, the declared version and its arguments in RFC 8785 form, and
    of the workflow whose runs share it; empty for any.
    """
    return digest(b"reuse", tool.encode(), version.encode(), workflow.encode(), arguments)


class Stale(msgspec.Struct):
    """What was declared stale at a `version`: the version at which each was last.

    Attributes:
        version: A count of events.
        tools: By the tool.
        runs: By the run.
        keys: By the key.
    """

    version: int = 0
    tools: dict[str, int] = {}
    runs: dict[str, int] = {}
    keys: dict[str, int] = {}

    def holds(self, offered: AnswerOffered) -> bool:
        """Whether an answer is none of these."""
        newest = max(
            self.tools.get(offered.tool, 0),
            self.runs.get(offered.run, 0),
            self.keys.get(offered.key, 0),
        )
        return newest <= offered.stale


def initial() -> Stale:
    """The state before the first event."""
    return Stale()


def fold(state: Stale, events: Iterable[Event]) -> Stale:
    """The state after more events; the given one is left as it is."""
    made = Stale(state.version, dict(state.tools), dict(state.runs), dict(state.keys))
    for each in events:
        made.version += 1
        match each:
            case AnswersInvalidated():
                for names, name in (
                    (made.tools, each.tool),
                    (made.runs, each.run),
                    (made.keys, each.key),
                ):
                    if name:
                        names[name] = made.version
            case Quarantined():
                continue
            case _:
                message = f"{each.tag} says of nothing that it is stale"
                raise Refused(message)
    return made


def decide(event: AnswersInvalidated) -> Sequence[AnswersInvalidated]:
    """The events that declaring answers stale leads to, each time it is said: what was offered
    since is stale, too. Raises BadValue, BadName.
    """
    named = [(kind, getattr(event, kind)) for kind in ("tool", "run", "key")]
    given = [(kind, name) for kind, name in named if name]
    if len(given) != 1:
        fact = "none is named" if not given else " and ".join(kind for kind, _ in given)
        raise BadValue("what is invalidated", fact, "name one tool, one run or one key")
    [(kind, name)] = given
    ids.name(kind, name)
    return (event,)
