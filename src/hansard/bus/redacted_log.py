"""The one place where secrets are removed from what is stored, whatever wrote it.

A `RedactedLog` wraps a workspace's log and scrubs each commit before it is encoded; a
`RedactedBlobs` wraps its blobs and refuses one that holds a secret, since its address is its
digest. A program without redaction has neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec

from hansard.bus.commits import revive
from hansard.bus.log import Append, AppendsHere, Blobs, EventLog, ReadsBack, Stored
from hansard.domain.errors import BadValue, Corrupt, UnknownEvent
from hansard.domain.events import Commit, Recorded
from hansard.domain.redaction import Redaction, holds_secret

_encoder = msgspec.json.Encoder()


class ForwardingLog:
    """A log that wraps another one, which does all that this one does not define itself."""

    def __init__(self, base: EventLog) -> None:
        self.base = base

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base, name)


class ChangedLog(ForwardingLog):
    """A log that changes each commit before it is written, whichever method writes it."""

    def changed(self, append: Append) -> Append:
        """Return a commit as it is written."""
        raise NotImplementedError

    async def append(self, append: Append) -> Stored:
        """See `EventLog.append`."""
        return await self.base.append(self.changed(append))

    async def append_all(self, appends: Sequence[Append]) -> list[Stored]:
        """See `EventLog.append_all`."""
        return await self.base.append_all([self.changed(each) for each in appends])

    async def append_groups(self, groups: Sequence[Sequence[Append]]) -> list[list[Stored]]:
        """See `EventLog.append_groups`."""
        clean = [[self.changed(each) for each in group] for group in groups]
        return await self.base.append_groups(clean)

    async def append_bulk(self, appends: Iterable[Append]) -> int:
        """See `EventLog.append_bulk`."""
        return await self.base.append_bulk(self.changed(each) for each in appends)

    def append_here(self, append: Append) -> Stored | None:
        """See `AppendsHere.append_here`."""
        here = cast("AppendsHere", self.base)
        return here.append_here(self.changed(append))

    async def append_again(self, append: Append, tried_s: float) -> Stored:
        """See `AppendsHere.append_again`."""
        here = cast("AppendsHere", self.base)
        return await here.append_again(self.changed(append), tried_s)

    async def as_read(self, commits: list[Stored]) -> list[Stored]:
        """See `ReadsBack.as_read`."""
        return await cast("ReadsBack", self.base).as_read(commits)


class RedactedLog(ChangedLog):
    """A log whose commits are scrubbed before they are encoded."""

    def __init__(self, base: EventLog, redaction: Redaction) -> None:
        super().__init__(base)
        self.redaction = redaction

    def changed(self, append: Append) -> Append:
        """Return the commit without secrets."""
        return scrubbed(append, self.redaction)


class RedactedBlobs:
    """Blobs that refuse one that holds a secret."""

    def __init__(self, base: Blobs, redaction: Redaction) -> None:
        self.base = base
        self._redaction = redaction

    async def put(self, data: bytes) -> str:
        """See `Blobs.put`. Raises BadValue for a blob that holds a secret."""
        if self._redaction.holds(data):
            fact = "it holds a secret, and nothing was stored"
            raise BadValue(f"a blob of {len(data):,} bytes", fact, "leave the secret out of it")
        return await self.base.put(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base, name)


def scrubbed(append: Append, redaction: Redaction) -> Append:
    """Return an append without secrets; the same object if there are none.

    Raises BadValue for a secret in a field that cannot be replaced: a stream's name, the writer of
    the commit and its principals, the correlation, the exact bytes of a copied commit.
    """
    commit = append.commit
    _check_envelope(append, commit, redaction)
    if append.copied is not None:
        if redaction.holds(append.copied.body):
            raise holds_secret(f"a copied commit of {append.copied.origin.log}")
        return append
    events = tuple(_scrubbed_event(each, redaction) for each in commit.events)
    if all(new is old for new, old in zip(events, commit.events, strict=True)):
        return append
    return msgspec.structs.replace(append, commit=msgspec.structs.replace(commit, events=events))


def _check_envelope(append: Append, commit: Commit, redaction: Redaction) -> None:
    for name, value in (
        ("stream", append.stream),
        ("actor", commit.actor),
        ("correlation", commit.correlation),
        ("traceparent", commit.traceparent),
    ):
        if value is not None and redaction.fields(value, "run") is not value:
            raise holds_secret(f"a commit's {name}")


def _scrubbed_event(recorded: Recorded, redaction: Redaction) -> Recorded:
    occurred = recorded.occurred_at
    if occurred is not None:
        occurred = redaction.fields(occurred, "at")
    data = recorded.data
    if redaction.may_hold(bytes(data)):
        data = _scrubbed_data(recorded, redaction)
    if data is recorded.data and occurred is recorded.occurred_at:
        return recorded
    return msgspec.structs.replace(recorded, data=data, occurred_at=occurred)


def _scrubbed_data(recorded: Recorded, redaction: Redaction) -> msgspec.Raw:
    try:
        event = revive(recorded)
    except UnknownEvent:
        return redaction.raw(recorded.data)
    clean = redaction.fields(event)
    if clean is event:
        return recorded.data
    scrubbed_event = msgspec.structs.replace(recorded, data=msgspec.Raw(_encoder.encode(clean)))
    try:
        revive(scrubbed_event)
    except Corrupt:
        fact = "a field that cannot be replaced holds a secret"
        raise BadValue(recorded.type, fact, "leave the secret out of it") from None
    return scrubbed_event.data
