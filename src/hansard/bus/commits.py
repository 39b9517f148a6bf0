"""Commits as bytes and back, envelopes for appends, and checks that every log makes on reads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from hansard.bus import slices, subjects
from hansard.bus.clock import Clock
from hansard.bus.errors import TooLarge
from hansard.bus.log import COMMIT_BYTES_MAX, Append, Origin, Stored
from hansard.domain import decider
from hansard.domain.decider import Quarantined
from hansard.domain.errors import BadValue, Corrupt, UnknownEvent
from hansard.domain.events import REGISTRY, UPCASTERS, Actor, Commit, Event, Recorded, Tx
from hansard.domain.ids import StreamId, WorkspaceStream, uuid8
from hansard.domain.label import Label
from hansard.domain.payload import Fetch

# ------------------------------ commits and events to bytes and back
#
# The body of a message is JSON in a fixed field order, and is read back exactly. Each decode
# checks that body and subject agree. Old event versions are upcast to the newest one.

UPCAST_STEPS_MAX = 32
"""Longest chain of upcasters; a longer one is a cycle."""

_encoder = msgspec.json.Encoder()
_commit = msgspec.json.Decoder(Commit)
_decoders: dict[type[Event], msgspec.json.Decoder[Any]] = {}


def encode(stream: StreamId, commit: Commit) -> bytes:
    """Encode a commit to the exact bytes to store."""
    if commit.stream is None and subjects.is_digested(stream):
        commit = msgspec.structs.replace(commit, stream=stream)
    return _encoder.encode(commit)


def decode(subject: str, body: bytes) -> tuple[StreamId, Commit]:
    """Decode a stored message's stream and commit. Raises Corrupt if body and subject differ."""
    stream, version = subjects.parse(subject)
    try:
        commit = _commit.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"message on {subject!r}", f"its body is not a commit ({error})") from error
    if commit.version != version:
        raise Corrupt(f"message on {subject!r}", f"its body says version {commit.version}")
    if not commit.events:
        raise Corrupt(f"message on {subject!r}", "its commit has no events")
    if commit.stream is not None:
        workspace = subject.split(".", 2)[1]
        if subjects.subject(workspace, commit.stream, version) != subject:
            raise Corrupt(f"message on {subject!r}", f"its body says stream {commit.stream}")
        stream = commit.stream
    elif ".==" in subject:
        raise Corrupt(f"message on {subject!r}", "its body does not give the name behind a digest")
    return stream, commit


def record(event: Event, event_id: str) -> Recorded:
    """Encode a domain event for storage."""
    return Recorded(event.tag, event_id, msgspec.Raw(_encoder.encode(event)))


def revive(recorded: Recorded) -> Event:
    """Decode a stored event to a domain event, upcast to the current version.

    Raises UnknownEvent for a tag of a newer version, Corrupt for data that does not fit the tag.
    """
    where = f"event {recorded.id}"
    if recorded.enc is not None:
        raise UnknownEvent(f"{recorded.type} (encrypted with {recorded.enc.alg})", where)
    cls = REGISTRY.get(recorded.type)
    if cls is None and recorded.type == Quarantined.tag:
        cls = Quarantined  # not registered, since it is never stored
    elif cls is None and recorded.type not in UPCASTERS:
        slices.load()
        cls = REGISTRY.get(recorded.type)
    try:
        if cls is not None and recorded.type not in UPCASTERS:
            decoder = _decoders.get(cls)
            if decoder is None:
                decoder = _decoders[cls] = msgspec.json.Decoder(cls)
            event: Event = decoder.decode(recorded.data)
            return event
        return _upcast(recorded, where)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(where, f"its data is not a {recorded.type} ({error})") from error


def _upcast(recorded: Recorded, where: str) -> Event:
    tag = recorded.type
    if tag not in UPCASTERS:
        raise UnknownEvent(tag, where)
    data: dict[str, Any] = msgspec.json.decode(recorded.data)
    for _ in range(UPCAST_STEPS_MAX):
        upcaster = UPCASTERS.get(tag)
        if upcaster is None:
            break
        tag, data = upcaster(data)
    cls = REGISTRY.get(tag)
    if cls is None or tag in UPCASTERS:
        raise UnknownEvent(tag, where)
    return msgspec.json.decode(_encoder.encode(data), type=cls)


def revive_all(commits: Iterable[Commit]) -> list[Event]:
    """Decode the domain events of commits, in order."""
    return [revive(recorded) for commit in commits for recorded in commit.events]


# Blobs that a recorded payload refers to.


async def drive_fetch(fetch: Fetch, get: Callable[[str, int], Awaitable[bytes]]) -> Any:
    """Run a domain fetch like `run_fetch`, awaiting each blob. Raises as `get`."""
    try:
        request = next(fetch)
        while True:
            request = fetch.send(await get(*request))
    except StopIteration as stop:
        return stop.value


TRANSACTION_COMMITS_MAX = 1_000
"""Most commits in one transaction: the limit of a JetStream atomic batch."""

TRANSACTION_BYTES_MAX = 8 * 1024 * 1024
"""Largest sum of bodies in one transaction: what the connection to a broker buffers."""


def new_commit(
    clock: Clock,
    version: int,
    actor: Actor,
    events: Iterable[Event],
    *,
    epoch: int = 0,
    label: Label | None = None,
) -> Commit:
    """Create a commit of events, with ids and time; `label` is the writer's."""
    return Commit(
        id=clock.new_id(),
        version=version,
        at=clock.now(),
        actor=actor,
        epoch=epoch,
        label=label,
        events=tuple(record(event, clock.new_id()) for event in events),
    )


def enveloped(append: Append) -> tuple[Append, bytes]:
    """Return the append as stored (with its stream's name if the subject cannot carry it), and its
    body. Raises TooLarge.
    """
    commit = append.commit
    if append.copied is not None:
        return append, _fitting(commit, append.stream, append.copied.body)
    if commit.stream is None and subjects.is_digested(append.stream):
        commit = replace(commit, stream=append.stream)
        append = replace(append, commit=commit)
    return append, _fitting(commit, append.stream, encode(append.stream, commit))


def _fitting(commit: Commit, stream: StreamId, body: bytes) -> bytes:
    if len(body) > COMMIT_BYTES_MAX:
        what = f"commit {commit.id} (version {commit.version} of {stream})"
        raise TooLarge(what, len(body), COMMIT_BYTES_MAX)
    return body


def transaction(appends: Sequence[Append]) -> list[Append]:
    """Return the appends with `tx` filled in; equal commits give equal transactions.

    Raises TooLarge (over 1,000), BadValue (one stream twice).
    """
    if len(appends) > TRANSACTION_COMMITS_MAX:
        raise TooLarge("a transaction's list of commits", len(appends), TRANSACTION_COMMITS_MAX)
    if len({append.stream for append in appends}) != len(appends):
        remedy = "merge a stream's events into one commit"
        raise BadValue("append_all", "one stream is written twice", remedy)
    tx = uuid8(*(append.commit.id for append in appends))
    return [
        replace(append, commit=replace(append.commit, tx=Tx(tx, index, len(appends))))
        for index, append in enumerate(appends)
    ]


def transactions(groups: Sequence[Sequence[Append]]) -> list[Append]:
    """Return the appends of several transactions in order; a single commit has no `tx`.

    Raises TooLarge (over 1,000), BadValue (one stream twice in a transaction).
    """
    count = sum(map(len, groups))
    if count > TRANSACTION_COMMITS_MAX:
        raise TooLarge("several transactions' list of commits", count, TRANSACTION_COMMITS_MAX)
    return [
        append for group in groups for append in (transaction(group) if len(group) > 1 else group)
    ]


def wholes(appends: Iterable[Append]) -> Iterator[list[Append]]:
    """Yield each single commit, and the commits of each transaction together. Raises TooLarge."""
    whole: list[Append] = []
    for append in appends:
        tx = append.commit.tx
        if whole and (tx is None or whole[0].commit.tx is None or tx.id != whole[0].commit.tx.id):
            yield whole
            whole = []
        whole.append(append)
        if len(whole) > TRANSACTION_COMMITS_MAX:
            raise TooLarge("a transaction's list of commits", len(whole), TRANSACTION_COMMITS_MAX)
    if whole:
        yield whole


def torn(before: Tx | None, now: Tx | None) -> tuple[str, str]:
    """Return how a commit breaks the transaction order of the log: what the previous commit lacks,
    and what this one lacks; empty texts if it is in order. None: no transaction, or no commit.
    """
    due = None
    if before is not None and before.index + 1 < before.count:
        due = replace(before, index=before.index + 1)
    if now == due:
        return "", ""
    cut = f"transaction {due.id} has {due.index} of its {due.count} commits" if due else ""
    if now is None or now.index == 0:
        return cut, ""
    return cut, f"commit {now.index} of {now.count} of transaction {now.id} without the first"


def stored_from(
    position: int, stamp: int, subject: str, body: bytes, origin: Origin | None = None
) -> Stored:
    """Decode a message of the log to a commit. Raises Corrupt."""
    stream, commit = decode(subject, body)
    return Stored(position, stamp, stream, commit, body, origin)


def check_versions(stream: StreamId, commits: Iterable[Stored], version: int) -> None:
    """Raise Corrupt unless the commits' versions continue without a gap from `version`."""
    for stored in commits:
        if stored.commit.version != version:
            raise Corrupt(
                f"stream {stream}",
                f"version {version} is missing: position {stored.position} has version "
                f"{stored.commit.version}",
            )
        version = stored.commit.last_version + 1


def first_version(commits: Sequence[Stored], after: int, *, inside: bool) -> int:
    """Return the version that the first of the commits read must have."""
    return commits[0].commit.version if inside and commits else after + 1


def check_each(commits: Iterable[Stored]) -> None:
    """Raise Corrupt unless each stream's versions continue without a gap, from 1 for a stream that
    outlives runs. In a fork they continue from the parent's; see `check_begins`.
    """
    following: dict[StreamId, int] = {}
    for stored in commits:
        first = 1 if isinstance(stored.stream, WorkspaceStream) else None
        version = following.get(stored.stream, None if is_stand_in(stored) else first)
        if version is not None and stored.commit.version != version:
            check_versions(stored.stream, [stored], version)
        following[stored.stream] = stored.commit.last_version + 1


def check_begins(commits: Iterable[Stored], at: Mapping[str, int]) -> None:
    """Raise Corrupt unless each stream's first commit follows the version that it had at the fork's
    cut (`at`, by stream name), or is version 1 if it had none.
    """
    begun: set[StreamId] = set()
    for stored in commits:
        if stored.stream not in begun and not is_stand_in(stored):
            check_versions(stored.stream, [stored], at.get(str(stored.stream), 0) + 1)
        begun.add(stored.stream)


def is_stand_in(stored: Stored) -> bool:
    """Return whether a commit replaces a message that does not fit: its version proves nothing."""
    return any(recorded.type == decider.TAG for recorded in stored.commit.events)


def until(commits: Iterable[Stored], position: int) -> list[Stored]:
    """Return the commits up to a position, without any transaction that ends after it.

    A transaction's commits have consecutive positions, so each determines its last one.
    """
    return [stored for stored in commits if whole_at(stored) <= position]


def whole_at(stored: Stored) -> int:
    """Return the position from which a commit counts: the last one of its transaction, else its
    own.
    """
    tx = stored.commit.tx
    return stored.position if tx is None else stored.position - tx.index + tx.count - 1


def position_of(stored: Stored) -> int:
    """Return the key that sorts commits by position."""
    return stored.position
