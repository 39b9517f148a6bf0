"""The session's core at the client: where its calls stand. What they come to, the service knows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from hansard.agents.errors import SessionEnded
from hansard.agents.policy import gate
from hansard.agents.steps.engine import StepEngine
from hansard.agents.steps.ledger import Mode
from hansard.agents.steps.recorder import Settle
from hansard.agents.steps.scope import Scope
from hansard.agents.steps.secrets import SecretProvider
from hansard.client.protocol.shapes import arm_of
from hansard.client.protocol.wire import Began, Joined
from hansard.client.restricted.link import SessionLink
from hansard.domain.ids import AgentStream
from hansard.domain.values import Scrub


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What the session was given, and keeps to itself."""

    mode: Mode
    rules: Sequence[gate.GateRule] = ()
    scrub: Scrub | None = None
    secrets: SecretProvider | None = None
    settle: Settle | None = None


class RemoteScope(Scope):
    """A chain of calls, of which the service keeps what came of them: it is told of its children.

    Both sides know a scope by its path.
    """

    __slots__ = ()

    def item(self, name: str) -> Scope:
        """A child scope of a given name that begins now."""
        apart = self.open > 0
        self.session.note(Began(self.path, name, apart))
        return self.child(f"{self.path}/{name}", apart=apart)

    def child(self, path: str, *, apart: bool = False) -> RemoteScope:
        """A child scope that the service knows already."""
        made = RemoteScope(self.session, path, "", (), self.step)
        made.nests = self.nests
        made.apart = apart
        made.usage = self.usage
        return made

    def join(self, children: list[Scope]) -> None:
        """Go on after child scopes."""
        if children:
            self.session.note(Joined(self.path, tuple(child.path for child in children)))


class RemoteLedger:
    """Which calls are open at the client."""

    def __init__(self, stream: AgentStream, note: Callable[[Began | Joined], None]) -> None:
        self.stream = stream
        self.note = note
        self.ended = False
        self.home: int | None = None
        self.lock = threading.RLock()
        self.root = RemoteScope(self, "", "", (), None)
        self.busy = 0
        self.client: Any = None

    def demand_open(self) -> None:
        """Raise SessionEnded where the session has ended."""
        if self.ended:
            raise SessionEnded(self.stream.run, self.stream.agent)

    def enter_call(self, scope: Scope) -> bool:
        """A call of this scope is open from here on; whether another one is."""
        with self.lock:
            busy = scope.open > 0
            scope.open += 1
            self.busy += 1
            return busy

    def leave_call(self, scope: Scope) -> None:
        """A call of this scope is over."""
        with self.lock:
            scope.open -= 1
            self.busy -= 1


class RemoteCore:
    """What a session's twins ask for, and how to ask the service."""

    def __init__(self, link: SessionLink, stream: AgentStream, settings: Given) -> None:
        self.link = link
        self.stream = stream
        self.settings = settings
        self.arm = arm_of(link.opened.arm)
        self.ledger = RemoteLedger(stream, link.note)

    def scope(self, tool: str) -> Scope:
        """The scope a call made here stands in. Raises SessionEnded, NoScope, ToolError."""
        return StepEngine.scope(cast("StepEngine", self), tool)  # it looks at the ledger alone
