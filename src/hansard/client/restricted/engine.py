"""A session's core at the client: the scopes of its calls. Results are kept by the service."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, NoReturn

import msgspec

from hansard.agents.policy import gate
from hansard.agents.steps.ledger import Mode
from hansard.agents.steps.placeholders import SecretProvider
from hansard.agents.steps.recorder import Settle
from hansard.agents.steps.scope import OpenCalls, Scope
from hansard.client.restricted.link import SessionLink
from hansard.domain.ids import AgentStream
from hansard.domain.redaction import Redaction
from hansard.operations.declare import TRUSTED
from hansard.operations.protocol.errors import NotOffered
from hansard.operations.protocol.shapes import decode_arm
from hansard.operations.protocol.wire import Began, Joined


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a session that stay in this process."""

    mode: Mode
    rules: Sequence[gate.GateRule] = ()
    scrub: Redaction | None = None
    secrets: SecretProvider | None = None
    settle: Settle | None = None


class RemoteScope(Scope):
    """A scope of calls whose results the service keeps; its child scopes are sent to the service.

    Both sides identify a scope by its path.
    """

    __slots__ = ()

    def item(self, name: str) -> Scope:
        """Begin a child scope of a given name."""
        apart = self.open > 0
        self.session.note(Began(self.path, name, apart))
        return self.child(f"{self.path}/{name}", apart=apart)

    def child(self, path: str, *, apart: bool = False) -> RemoteScope:
        """Return a child scope that the service knows already."""
        made = RemoteScope(self.session, path, "", (), self.step)
        made.nests = self.nests
        made.apart = apart
        made.usage = self.usage
        return made

    def join(self, children: list[Scope]) -> None:
        """Continue after child scopes."""
        if children:
            self.session.note(Joined(self.path, tuple(child.path for child in children)))


class RemoteLedger(OpenCalls):
    """The calls that are open at the client."""

    def __init__(self, stream: AgentStream, note: Callable[[Began | Joined], None]) -> None:
        super().__init__(stream, RemoteScope)
        self.note = note


class RemoteCore:
    """The state that a session's operations share, and the link to the service."""

    def __init__(self, link: SessionLink, stream: AgentStream, settings: EngineOptions) -> None:
        self.link = link
        self.stream = stream
        self.settings = settings
        self.arm = decode_arm(link.opened.arm)
        self.ledger = RemoteLedger(stream, link.note)
        self.known: dict[str, str] = {}
        """The values that placeholders of the session stand for."""

    def scope(self, tool: str) -> Scope:
        """Return the scope of a call made here. Raises SessionEnded, NoScope, ToolError."""
        return self.ledger.scope(tool)


class TrustedOnly:
    """A mixin that raises NotOffered for attributes that only the class `_trusted` has.

    `_remedy` holds the remedy of each. To a type checker they do not exist.
    """

    _called: ClassVar[str]
    _trusted: ClassVar[type]
    _remedy: ClassVar[Mapping[str, str]]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name in self._remedy or (not name.startswith("_") and hasattr(self._trusted, name)):
                raise NotOffered(f"{self._called}.{name}", self._remedy.get(name, TRUSTED))
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=self)
