"""Reading commits: one stream, several, a run; the newest state or one at a point.

A subject is written once and never changes. So a read may take any number of requests and still be
consistent: it fixes a position first, reads the names found after that, and drops later commits.
`direct` ensures that each answer reaches that position, from whichever replica.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from hansard.bus import subjects
from hansard.bus.clock import Slices
from hansard.bus.commits import check_each, check_versions, first_version, position_of, until
from hansard.bus.jetstream.direct import Direct
from hansard.bus.jetstream.wire import Message, TooMany
from hansard.bus.log import AtPosition, AtTime, Stored, UpTo
from hansard.bus.validation.reads import is_stream
from hansard.domain.ids import KeyStream, RunStream, StreamId

TAIL_VERSIONS_MAX = 4_000
"""Up to this many versions are requested by generated names, one per version; more are listed
first.
"""

HEAD_VERSIONS_MAX = 200
"""A read from the beginning up to one of these versions also uses generated names; a longer one
takes the whole stream in one answer if that fits.
"""

WILDCARDS_MAX = 200
"""Most streams in one request; more are read in groups, up to one position."""


class Reader:
    """Reads one workspace's log."""

    def __init__(self, workspace: str, direct: Direct, *, screened: bool = False) -> None:
        """`screened`: return stand-ins for commits that do not fit, and leave out subjects of no
        stream.
        """
        self._workspace = workspace
        self._stream = subjects.log_stream(workspace)
        self._direct = direct
        self._screened = screened

    async def read(
        self,
        stream: StreamId,
        *,
        after: int = 0,
        to: int | None = None,
        up_to: UpTo = None,
        inside: bool = False,
    ) -> list[Stored]:
        """See `EventLog.read`. 1 request up to 1,023 commits or with `to`, else 2 or more; of the
        newest state, 1 more with several replicas.
        """
        if to is not None and to <= after:
            return []
        cut = await self.cut(up_to)
        commits = await self._commits(stream, after, to, await self._required(cut))
        check_versions(stream, commits, first_version(commits, after, inside=inside))
        return commits if cut is None else until(commits, cut)

    async def read_streams(self, streams: Sequence[StreamId], up_to: UpTo = None) -> list[Stored]:
        """See `EventLog.read_streams`."""
        distinct = list(dict.fromkeys(streams))
        cut = await self.cut(up_to)
        if not distinct:
            return []
        at_once = WILDCARDS_MAX
        if len(distinct) <= WILDCARDS_MAX:
            try:
                commits = await self._wholes(distinct, cut)
            except TooMany:
                at_once = max(1, len(distinct) // 2)
            else:
                check_each(commits)
                return commits if cut is None else until(commits, cut)
        if cut is None:
            cut = await self.head()
        commits = []
        for start in range(0, len(distinct), at_once):
            commits += await self._together(distinct[start : start + at_once], cut)
        commits.sort(key=position_of)
        check_each(commits)
        return until(commits, cut)

    async def _together(self, streams: Sequence[StreamId], cut: int) -> list[Stored]:
        """Return the commits of up to 200 streams in one request, halved if they do not fit."""
        if len(streams) == 1:
            return await self._commits(streams[0], 0, None, cut)
        try:
            return await self._wholes(streams, cut)
        except TooMany:
            half = len(streams) // 2
            before = await self._together(streams[:half], cut)
            return before + await self._together(streams[half:], cut)

    async def _wholes(self, streams: Sequence[StreamId], target: int | None) -> list[Stored]:
        """Return all commits of some streams by position, in one request. Raises TooMany."""
        patterns = [f"{subjects.prefix(self._workspace, stream)}.*" for stream in streams]
        return self._decoded(await self._direct.many(self._stream, patterns, target))

    async def read_run(self, run: str, up_to: UpTo = None) -> list[Stored]:
        """See `EventLog.read_run`: the names first (2,000 in 5 to 8 ms), then 1,000 at a time."""
        return await self._matching(f"{subjects.run_prefix(self._workspace, run)}.>", up_to)

    async def read_boards(self, run: str, up_to: UpTo = None) -> list[Stored]:
        """See `EventLog.read_boards`."""
        return await self._matching(subjects.boards(self._workspace, run), up_to)

    async def read_kind(self, kind: str, up_to: UpTo = None) -> list[Stored]:
        """See `EventLog.read_kind`."""
        return await self._matching(subjects.all_of_kind(self._workspace, kind), up_to)

    async def _matching(self, pattern: str, up_to: UpTo) -> list[Stored]:
        cut = await self.cut(up_to)
        names, head = await self.names(pattern)
        messages = await self._direct.named(self._stream, names, head)
        commits: list[Stored] = []
        async with Slices() as slices:
            for message in messages:
                commits += self._decoded([message])
                if slices.over:
                    await slices.pause()
        commits.sort(key=position_of)
        check_each(commits)
        return until(commits, head if cut is None else cut)

    async def last(self, stream: StreamId) -> Stored | None:
        """See `EventLog.last`."""
        prefix = subjects.prefix(self._workspace, stream)
        message = await self._newest(prefix, None)
        return self._decode(message) if message is not None else None

    async def at(self, position: int) -> Stored | None:
        """Return the commit at a position."""
        message = await self._direct.at(self._stream, position) if position > 0 else None
        return self._decode(message) if message is not None else None

    async def runs(self, key: str | None = None) -> list[str]:
        """See `EventLog.runs`: 1 request for each 100,000 commits of the streams read."""
        kind = RunStream if key is None else KeyStream
        pattern = subjects.all_lives(self._workspace)
        if key is not None:
            pattern = subjects.all_of_key(self._workspace, key)
        names, head = await self.names(pattern)
        runs: dict[str, None] = {}
        digested: list[str] = []
        for name in names:
            token = name.split(".", 4)[3]
            if token.startswith("=="):
                digested.append(name)
            else:
                stream, _ = subjects.parse(name)  # Corrupt after a foreign write
                if isinstance(stream, kind):
                    runs[stream.run] = None
        for message in await self._direct.named(self._stream, digested, head):
            digested_stream = self._decode(message).stream
            if isinstance(digested_stream, kind):
                runs[digested_stream.run] = None
        return list(runs)

    async def head(self) -> int:
        """See `EventLog.head`."""
        state = (await self._direct.info(self._stream))["state"]
        return int(state["last_seq"])

    async def cut(self, up_to: UpTo) -> int | None:
        """Return the position where a read ends; None for the newest.

        A time becomes the last position stamped at or before it, so that the guarantees for
        positions (a transaction is whole or absent) also hold for times.
        """
        match up_to:
            case None:
                return None
            case AtPosition(position):
                return position
            case AtTime(stamp):
                head = await self.head()  # first: if none is later, all up to it are earlier
                later = await self._direct.since(self._stream, stamp, head)
                return later.position - 1 if later is not None else head
            case _:
                assert_never(up_to)

    def seen(self, message: Message) -> None:
        """Make every later read reach a message that was received in another way."""
        known = self._direct.known.of(self._stream)
        known.note(message.position, message.subject, len(message.data))

    async def names(self, pattern: str) -> tuple[list[str], int]:
        """Return all subjects that match, and a position up to which they are complete."""
        matches, head = await self._direct.names(self._stream, pattern)
        return await self._of_streams(matches) if self._screened else matches, head

    @staticmethod
    async def _of_streams(names: list[str]) -> list[str]:
        """Return the names that a stream's commit may have."""
        matches: list[str] = []
        async with Slices() as slices:
            for name in names:
                if is_stream(name):
                    matches.append(name)
                if slices.over:
                    await slices.pause()
        return matches

    async def _required(self, cut: int | None) -> int:
        """Return the position that a read must reach."""
        return await self._direct.required(self._stream) if cut is None else cut

    def _decode(self, message: Message) -> Stored:
        return message.screened() if self._screened else message.commit()

    def _decoded(self, messages: Iterable[Message]) -> list[Stored]:
        if not self._screened:
            return [message.commit() for message in messages]
        return [message.screened() for message in messages if is_stream(message.subject)]

    async def _newest(self, prefix: str, target: int | None) -> Message | None:
        """Return the newest message of a stream."""
        pattern = f"{prefix}.*"
        newest = await self._direct.last(self._stream, pattern, target)
        if newest is None or not self._screened or is_stream(newest.subject):
            return newest
        names, head = await self.names(pattern)
        messages = await self._direct.named(self._stream, names, head)
        return max(messages, key=lambda message: message.position, default=None)

    async def _commits(
        self, stream: StreamId, after: int, to: int | None, target: int
    ) -> list[Stored]:
        """Return a stream's commits with first versions in (after, to], by version, unchecked."""
        prefix = subjects.prefix(self._workspace, stream)
        if after == 0 and (to is None or to > HEAD_VERSIONS_MAX):
            try:
                messages = await self._direct.many(self._stream, [f"{prefix}.*"], target)
            except TooMany:
                pass
            else:
                return _by_version(self._decoded(messages), to)
        end = to
        if end is None or end - after > TAIL_VERSIONS_MAX:
            newest = await self._newest(prefix, target)
            if newest is None:
                return []
            end = subjects.parse(newest.subject)[1]
            end = end if to is None else min(to, end)
        if end - after <= TAIL_VERSIONS_MAX:
            names = [f"{prefix}.{version}" for version in range(after + 1, end + 1)]
        else:
            listed = [(int(n.rpartition(".")[2]), n) for n in (await self.names(f"{prefix}.*"))[0]]
            names = [name for version, name in sorted(listed) if after < version <= end]
        found = await self._direct.named(self._stream, names, target)
        return _by_version(self._decoded(found), to)


def _by_version(commits: list[Stored], to: int | None) -> list[Stored]:
    if to is not None:
        commits = [stored for stored in commits if stored.commit.version <= to]
    commits.sort(key=position_of)
    return commits
