"""The archive of one workspace's log: sealed generations stored as segments, and read as a source.

    <workspace>/segments/<first>-<last>-<digest>.segment
    <workspace>/log/<first>.json                            the manifest, last of all

A manifest is created once its segment was read back. So whichever process is killed, a segment with
a manifest is whole, and one without is not used. Two processes may store the same generation: the
first manifest of a position counts, and the other process continues after it.
"""

from __future__ import annotations

import asyncio
import bisect
import hashlib
import itertools
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import BinaryIO, cast

import msgspec
from cachetools import LRUCache

from hansard.bus import marks, subjects
from hansard.bus.archive.segment import (
    Footer,
    Frame,
    Manifest,
    Part,
    SegmentWriter,
    StreamIndex,
    manifest_of,
    run_of,
    scan,
)
from hansard.bus.archive.tiers import MOUNT, NOTHING, Tiers
from hansard.bus.errors import ArchiveUnavailable
from hansard.bus.loggers import logger
from hansard.bus.sources import Archived, End, Message, Source, end_of
from hansard.domain.choices import counted
from hansard.domain.errors import Corrupt

SEGMENT_BYTES_MAX = 64 * 1024 * 1024
"""A segment ends with the block that brings it to so many bytes: it is sent in one request."""

WRITE_MESSAGES = 4_096
"""Least messages that are written at once to a segment that goes on, in a thread."""

CHUNK_MESSAGES_MAX = 256
"""Most messages passed on at once."""

STORES_MAX = 4
"""Times that a generation is stored from the beginning because another process stores it, too."""

RUNS_KNOWN_MAX = 4_096
"""Most runs of which a source remembers which segments have them."""

_FILTER_TOKENS = 4
"""Tokens that name a run: `hansard.<workspace>.run.<run>`."""

_log = logger(__name__)


class WorkspaceArchive:
    """The archive of one workspace: the `Archive` of `hansard.bus.sources`."""

    def __init__(self, tiers: Tiers, workspace: str) -> None:
        self.tiers = tiers
        self.workspace = workspace
        self._segments: dict[int, Manifest] = {}

    @property
    def place(self) -> str:
        """The URL of the archive, without any secret."""
        return self.tiers.store.url

    async def store(self, generation: int, source: Source) -> Archived:
        """Store a sealed generation, as `Archive.store`. Raises ArchiveUnavailable, Corrupt."""
        for _ in range(STORES_MAX):
            stored = await self._store(generation, source)
            if stored is not None:
                return stored
        why = f"other processes store it at the same time, {STORES_MAX} times in a row"
        raise ArchiveUnavailable(self.place, "write", f"generation {generation}", why)

    def source(self, generations: Sequence[Archived]) -> ArchivedSource:
        """Return generations, oldest first and without a gap, as one source."""
        return ArchivedSource(self, generations)

    async def segments(self, first: int, last: int) -> list[Manifest]:
        """Return the manifests of the segments that begin at positions `first` to `last`."""
        known, names = self._segments, dict[int, str]()  # another reader may replace those known
        after = self._manifest_name(first - 1)
        for name in await self.tiers.store.names(f"{self.workspace}/log", after=after):
            number = name.rpartition("/")[2].removesuffix(".json")
            if number.isdecimal() and first <= int(number) <= last:
                names[int(number)] = name
        new = [begin for begin in names if begin not in known]
        manifests = await asyncio.gather(*(self.tiers.manifest(names[begin]) for begin in new))
        known |= dict(zip(new, manifests, strict=True))
        return [known[each] for each in sorted(known) if first <= each <= last]

    async def segments_of(self, generations: Sequence[Archived]) -> list[Manifest]:
        """Return the segments of archived generations. Raises Corrupt unless they hold exactly the
        messages that were archived, ArchiveUnavailable.
        """
        known = self._segments
        if any(_of(each, known) is None for each in generations):  # another process stored them
            manifests = await asyncio.to_thread(self.tiers.known, self.workspace)
            known = self._segments = {each.first: each for each in manifests}
        if any(_of(each, known) is None for each in generations):
            known = self._segments = {}  # those on the disk may be of an earlier log
            await self.segments(generations[0].first, generations[-1].last)
        segments: list[Manifest] = []
        for each in generations:
            parts = _of(each, known)
            if parts is None:
                await self.tiers.demand_any(self.workspace)
                fact = (
                    f"it does not have the {each.messages:,} messages at positions {each.first:,} "
                    f"to {each.last:,} that were stored there: restore its objects below "
                    f"{self.workspace!r}"
                )
                raise Corrupt(f"the archive at {self.place}", fact)
            segments += parts
        return segments

    async def _store(self, generation: int, source: Source) -> Archived | None:
        """Store what is missing of a generation; None if another process stored part of it."""
        stored = {each.first: each for each in await self.segments(source.first, source.last)}
        chain, count = "", 0
        following: Manifest | None = None
        writing: _Writing | None = None
        new: list[Message] = []
        pattern = f"{subjects.workspace_prefix(self.workspace)}.>"
        try:
            async for chunk in source.chunks(source.first - 1, source.last, pattern):
                for message in chunk:
                    if following is None and writing is None:
                        following = stored.get(message.position)
                        if following is None:
                            writing = _Writing(self.workspace)
                    chain = marks.link(chain, message.position, message.subject, message.body)
                    count += 1
                    if following is None:
                        new.append(message)
                    elif message.position >= following.last:
                        self._demand_same(following, chain, message.position)
                        await self._demand_sound(following)
                        following = None
                if writing is not None and len(new) >= WRITE_MESSAGES:
                    await asyncio.to_thread(writing.writer.extend, new)
                    new = []
                    if writing.writer.size >= SEGMENT_BYTES_MAX:
                        if not await self._finish(writing, chain):
                            return None
                        writing = None
            if writing is not None:
                await asyncio.to_thread(writing.writer.extend, new)
                if not await self._finish(writing, chain):
                    return None
        finally:
            if writing is not None:
                writing.file.close()
        archived = Archived(generation, source.first, source.last, count, chain, self.place)
        await self.segments_of([archived])
        return archived

    def _demand_same(self, stored: Manifest, chain: str, position: int) -> None:
        """Raise Corrupt if a stored segment has other messages than the log."""
        if position != stored.last or chain != stored.chain:
            fact = (
                f"it has other messages from position {stored.first:,} on: it is the archive of "
                f"another log of the name {self.workspace!r}; set HANSARD_ARCHIVE to a new folder"
            )
            raise Corrupt(f"the archive at {self.place}", fact)

    async def _demand_sound(self, stored: Manifest) -> None:
        """Keep the index of a segment that an earlier process stored. Raises Corrupt unless it is
        whole.
        """
        data = await self.tiers.store.get(stored.object)
        if data is None or hashlib.sha256(data).hexdigest() != stored.sha256:
            fact = f"it has {len(data or b''):,} bytes, or others than the {stored.size:,} stored"
            remedy = "restore it from a copy, or set HANSARD_ARCHIVE to a new folder"
            raise Corrupt(f"archive object {stored.object!r} at {self.place}", f"{fact}: {remedy}")
        await self.tiers.manifest(self._manifest_name(stored.first), index=True)

    async def demand_stored(self, listed: Sequence[Archived]) -> None:
        """See `Archive.demand_stored`. Raises ArchiveUnavailable if no object is there."""
        here = [each for each in listed if each.place == self.place]
        for fact in (await self.missing(here) if here else {}).values():
            await self.tiers.demand_any(self.workspace)
            kept = "nothing is stored there or deleted from the broker until then"
            raise Corrupt(f"the archive at {self.place}", f"{fact}; {kept}")

    async def missing(
        self, generations: Sequence[Archived], read: Callable[[int, int], None] | None = None
    ) -> dict[int, str]:
        """Return what the store lacks of archived generations, by their numbers: by its list of
        objects, and by the bytes of all of them if `read` is given, which is called with the number
        of segments read and of all. Raises ArchiveUnavailable.

        Caches do not count, but for the manifests that this machine knows. What is read is in L2
        afterwards, as far as its bound allows.
        """
        sizes = await self.tiers.store.names(self.workspace)
        lacks: dict[int, str] = {}
        if not sizes:
            return {
                each.generation: f"{NOTHING}, and the {each.messages:,} messages at positions "
                f"{each.first:,} to {each.last:,} were stored there: {MOUNT}"
                for each in generations
            }
        stored: dict[int, list[Manifest]] = {}
        for each in generations:
            try:
                stored[each.generation] = await self.segments_of([each])
            except Corrupt as error:
                lacks[each.generation] = error.fact
        done, total = 0, sum(map(len, stored.values()))
        for generation, segments in stored.items():
            gone: list[Manifest] = []
            for part in segments:
                name = self._manifest_name(part.first)
                whole = sizes.get(part.object) == part.size and name in sizes
                if not whole or (read is not None and not await self._is_as_stored(part)):
                    gone.append(part)
                done += 1
                if read is not None:
                    read(done, total)
            if gone:
                lacks[generation] = (
                    f"{len(gone):,} of {counted(len(segments), 'segment')} at positions "
                    f"{gone[0].first:,} to {gone[-1].last:,} are missing or damaged there, first "
                    f"{gone[0].object!r} or its manifest: restore the objects below "
                    f"{self.workspace!r} from a copy of the store"
                )
        return lacks

    async def _is_as_stored(self, segment: Manifest) -> bool:
        """Return whether the store has the bytes of a segment and of its manifest."""
        name = self._manifest_name(segment.first)
        data = await self.tiers.store.get(segment.object) or b""
        digest = await asyncio.to_thread(hashlib.sha256, data)
        try:
            is_same = manifest_of(await self.tiers.store.get(name), name) == segment
        except Corrupt:
            return False
        if digest.hexdigest() == segment.sha256:
            self.tiers.disk.write(segment, {0: data})
        return is_same and digest.hexdigest() == segment.sha256

    def _manifest_name(self, first: int) -> str:
        return f"{self.workspace}/log/{first:020d}.json"

    async def orphans(self, generations: Sequence[Archived]) -> tuple[int, dict[str, int], int]:
        """Return the number of segments in the store; those with their sizes that no manifest
        names, at the positions of archived generations: what killed processes left there, and no
        process completes, since the manifests of these generations are complete; and the number of
        segments at other positions, which a roll may be storing.

        Raises Corrupt if they are not, ArchiveUnavailable.
        """
        named = {each.object for each in await self.segments_of(generations)}
        sizes = await self.tiers.store.names(f"{self.workspace}/segments")
        rest = {name: size for name, size in sizes.items() if name not in named}
        others = len(rest)
        for name in [*rest]:
            first = name.rpartition("/")[2].partition("-")[0]
            begin = int(first) if first.isdecimal() else 0
            if not any(each.first <= begin <= each.last for each in generations):
                del rest[name]
        return len(sizes), rest, others - len(rest)

    async def _finish(self, writing: _Writing, chain: str) -> bool:
        """Store a written segment, read it back, and create its manifest; return False if another
        process created one for this position.
        """
        data, footer, place = await asyncio.to_thread(writing.finish)
        sha256 = hashlib.sha256(data).hexdigest()
        first, last = footer.first, footer.last
        name = f"{self.workspace}/segments/{first:020d}-{last:020d}-{sha256[:16]}.segment"
        await self.tiers.store.create(name, data)
        size = len(data)
        del data
        back = await self.tiers.store.get(name)
        if back is None or hashlib.sha256(back).hexdigest() != sha256:
            fact = f"read back, it has {len(back or b''):,} bytes, or others than the {size:,} sent"
            raise Corrupt(f"archive object {name!r} at {self.place}", fact)
        manifest = Manifest(
            workspace=self.workspace,
            first=first,
            last=last,
            count=footer.count,
            stamp=footer.stamp,
            object=name,
            size=size,
            sha256=sha256,
            chain=chain,
            footer=(place.offset, place.size),
            digest=place.digest.hex(),
            message_bytes=writing.writer.message_bytes,
        )
        body = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
        name = self._manifest_name(first)
        if not await self.tiers.store.create(name, body):
            return False
        self._segments[first] = await self.tiers.manifest(name, index=True)
        _log.info("segment archived", workspace=self.workspace, first=first, last=last, bytes=size)
        return True


def _of(generation: Archived, known: Mapping[int, Manifest]) -> list[Manifest] | None:
    """Return the known segments of a generation; None if they are not all of it."""
    parts = [known[each] for each in sorted(known) if generation.first <= each <= generation.last]
    whole = sum(part.count for part in parts) == generation.messages
    return parts if whole and (not parts or parts[-1].chain == generation.chain) else None


class _Writing:
    """A segment being written to a temporary file."""

    def __init__(self, workspace: str) -> None:
        self.file = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115 -- closed by the caller
        self.writer = SegmentWriter(self.file, workspace)

    def finish(self) -> tuple[bytes, Footer, Part]:
        """Write the rest, verify all of it, and return the bytes."""
        footer, place = self.writer.close()
        scan(self.file)
        self.file.seek(0)
        with self.file:
            return self.file.read(), footer, place


class _Selection:
    """The streams of a segment that filters match, each with the versions (None: all)."""

    def __init__(self, footer: Footer) -> None:
        self._footer = footer
        self.versions: dict[str, set[str] | None] = {}
        self.frames: set[int] = set()
        self.entries: list[tuple[StreamIndex, set[str] | None]] = []

    def add(self, entry: StreamIndex, versions: set[str] | None) -> None:
        before = self.versions.get(entry.prefix, set())
        both = None if versions is None or before is None else before | versions
        self.versions[entry.prefix] = both
        self.frames.update(entry.frames_of(versions))
        self.entries.append((entry, versions))

    def of(self, frames: Iterable[Frame]) -> list[Message]:
        """Return the selected messages of frames, by position."""
        messages: list[Message] = []
        for frame in frames:
            for prefix in frame.keys() & self.versions.keys():
                versions = self.versions[prefix]
                messages += [
                    each
                    for each in frame[prefix]
                    if versions is None or each.subject.rpartition(".")[2] in versions
                ]
        messages.sort(key=_position)
        return messages


class ArchivedSource:
    """Archived generations as a source. See `Source`; raises also ArchiveUnavailable, Corrupt."""

    def __init__(self, archive: WorkspaceArchive, generations: Sequence[Archived]) -> None:
        self._archive = archive
        self._tiers = archive.tiers
        self._generations = list(generations)
        self._known: list[Manifest] | None = None
        self._with_run: LRUCache[str, frozenset[int]] = LRUCache(RUNS_KNOWN_MAX)
        self.first = generations[0].first if generations else 1
        """The first position."""
        self.last = generations[-1].last if generations else 0
        """The last position."""

    async def many(self, filters: Sequence[str]) -> list[Message]:
        """See `Source.many`; the number is not limited."""
        exact = {each for each in filters if subjects.is_name(each)}
        by_prefix = _by_prefix(exact)
        rest = [each for each in filters if each not in exact]
        messages: list[Message] = []
        for segment in await self._holding(filters):
            selection = await self._selected(segment, rest, by_prefix)
            messages += selection.of(await self._frames(segment, selection.frames))
        return messages

    async def named(self, names: Sequence[str]) -> list[Message]:
        """See `Source.named`."""
        return await self.many(names)

    async def names(self, pattern: str) -> list[str]:
        """See `Source.names`."""
        names: list[str] = []
        for segment in await self._holding([pattern]):
            selection = await self._selected(segment, [pattern], {})
            for entry, versions in selection.entries:
                names += entry.names(versions)
        return names

    async def newest(self, pattern: str) -> Message | None:
        """See `Source.newest`."""
        async for segment, selection in self._newest_first(pattern):
            last = {entry.frames_of(versions)[-1] for entry, versions in selection.entries}
            return selection.of(await self._frames(segment, last))[-1]
        return None

    async def end(self, pattern: str) -> End | None:
        """See `Source.end`: of whole streams it is in the index, which the disk keeps."""
        async for _, selection in self._newest_first(pattern):
            ends = [entry.end for entry, versions in selection.entries if versions is None]
            known = [end for end in ends if end is not None]
            if len(known) == len(selection.entries):
                return max(known)
            newest = await self.newest(pattern)
            return end_of(newest) if newest is not None else None
        return None

    async def _newest_first(
        self, pattern: str
    ) -> AsyncGenerator[tuple[Manifest, _Selection], None]:
        """Yield the segments with messages that match a filter, newest first."""
        exact = subjects.is_name(pattern)
        named, filters = (_by_prefix([pattern]), []) if exact else ({}, [pattern])
        for segment in reversed(await self._holding([pattern])):
            selection = await self._selected(segment, filters, named)
            selection.entries = [each for each in selection.entries if each[0].frames_of(each[1])]
            if selection.entries:
                yield segment, selection

    async def at(self, position: int) -> Message | None:
        """See `Source.at`."""
        segments = await self._segments()
        index = bisect.bisect_right(segments, position, key=lambda each: each.first) - 1
        if index < 0 or position > segments[index].last:
            return None
        segment = segments[index]
        footer = await self._tiers.footer(segment)
        block = footer.block_of(position)
        if block is None:
            return None
        places = await self._tiers.places(segment, block.places)
        number = places.frame(position - block.first)
        if number is None:
            return None
        for frame in await self._frames(segment, [block.frame + number]):
            for messages in frame.values():
                index = bisect.bisect_left(messages, position, key=_position)
                if index < len(messages) and messages[index].position == position:
                    return messages[index]
        return None

    async def since(self, stamp: int) -> Message | None:
        """See `Source.since`."""
        for segment in await self._segments():
            if segment.stamp <= stamp:
                continue
            for block in (await self._tiers.footer(segment)).blocks:
                if block.stamp <= stamp:
                    continue
                places = await self._tiers.places(segment, block.places)
                for index, each in enumerate(places.stamps):
                    if each > stamp:
                        return await self.at(block.first + index)
        return None

    async def chunks(
        self, after: int, until: int, pattern: str
    ) -> AsyncGenerator[list[Message], None]:
        """See `Source.chunks`. One block is in memory at a time; it does not enter the caches."""
        everything = pattern == f"{subjects.workspace_prefix(self._archive.workspace)}.>"
        for segment in await self._segments():
            if segment.last <= after or segment.first > until:
                continue
            footer = await self._tiers.footer(segment)
            selection = await self._selected(segment, [pattern], {}) if not everything else None
            for block in footer.blocks:
                if block.last <= after or block.first > until:
                    continue
                numbers = range(block.frame, block.frame + block.frames)
                if selection is not None:
                    chosen = [each for each in numbers if each in selection.frames]
                    messages = selection.of(await self._frames(segment, chosen, keep=False))
                else:
                    frames = await self._frames(segment, numbers, keep=False)
                    by_stream = itertools.chain.from_iterable(each.values() for each in frames)
                    messages = sorted(itertools.chain.from_iterable(by_stream), key=_position)
                messages = [each for each in messages if after < each.position <= until]
                for start in range(0, len(messages), CHUNK_MESSAGES_MAX):
                    yield messages[start : start + CHUNK_MESSAGES_MAX]

    async def _segments(self) -> list[Manifest]:
        if self._known is None:
            self._known = await self._archive.segments_of(self._generations)
        return self._known

    async def _holding(self, filters: Sequence[str]) -> list[Manifest]:
        """Return the segments that may have messages of the runs that filters name; all of them for
        a filter of several runs.
        """
        segments = await self._segments()
        runs = [_run(each) for each in filters]
        chosen: set[int] = set()
        for run in dict.fromkeys(runs):
            if run is None:
                return segments
            numbers = self._with_run.get(run)
            if numbers is None:
                footers = [await self._tiers.footer(each) for each in segments]
                numbers = frozenset(n for n, each in enumerate(footers) if each.has_run(run))
                self._with_run[run] = numbers
            chosen |= numbers
        return [segments[number] for number in sorted(chosen)]

    async def _frames(
        self, segment: Manifest, numbers: Iterable[int], *, keep: bool = True
    ) -> list[Frame]:
        chosen = sorted(numbers)
        if not chosen:
            return []
        footer = await self._tiers.footer(segment)
        parts = [footer.frames[number] for number in chosen]
        return await self._tiers.frames(segment, parts, keep=keep)

    async def _selected(
        self, segment: Manifest, filters: Sequence[str], named: dict[str, set[str]]
    ) -> _Selection:
        """Return the streams of a segment that filters match, or that have named versions."""
        footer = await self._tiers.footer(segment)
        selection = _Selection(footer)
        by_page: dict[int, list[str]] = {}
        for prefix in named:
            if footer.has_run(run_of(f"{prefix}.")):
                by_page.setdefault(_page(footer, prefix), []).append(prefix)
        for each in filters:
            run = _run(each)
            if run is not None and not footer.has_run(run):
                continue
            begin = _literal(each)
            first = max(0, _page(footer, begin))
            last = max(0, _page(footer, begin + "\x7f"))
            for page in range(first, last + 1):
                by_page.setdefault(page, [])
        if not by_page:
            return selection
        numbers = sorted(number for number in by_page if 0 <= number < len(footer.pages))
        pages = await self._tiers.pages(segment, [footer.pages[each].part for each in numbers])
        for number, entries in zip(numbers, pages, strict=True):
            for prefix in by_page[number]:
                index = bisect.bisect_left(entries, prefix, key=_prefix)
                if index < len(entries) and entries[index].prefix == prefix:
                    selection.add(entries[index], named[prefix])
            for each in filters:
                begin = _literal(each)
                start = bisect.bisect_left(entries, begin, key=_prefix)
                for entry in entries[start:]:
                    if not entry.prefix.startswith(begin):
                        break
                    if _selects(each, entry.prefix):
                        token = each.rpartition(".")[2]
                        selection.add(entry, None if token in {"*", ">"} else {token})
        return selection


def _by_prefix(names: Iterable[str]) -> dict[str, set[str]]:
    """Return the versions in subjects, by the stream's prefix."""
    by_prefix: dict[str, set[str]] = {}
    for name in names:
        prefix, _, version = name.rpartition(".")
        by_prefix.setdefault(prefix, set()).add(version)
    return by_prefix


def _run(pattern: str) -> str | None:
    """Return the prefix of the run that a filter names; None for a filter of several."""
    head = pattern.split(".", _FILTER_TOKENS)[:_FILTER_TOKENS]
    return ".".join(head) if len(head) == _FILTER_TOKENS and not {"*", ">"} & {*head} else None


def _literal(pattern: str) -> str:
    """Return the beginning that all stream prefixes have that a filter selects."""
    tokens = pattern.split(".")[:-1]
    return ".".join(itertools.takewhile(lambda each: each != "*", tokens))


def _selects(pattern: str, prefix: str) -> bool:
    """Return whether a filter selects messages of a stream."""
    head, _, last = pattern.rpartition(".")
    if not head:
        return True
    if last == ">":
        return subjects.matches(head, prefix) or subjects.matches(f"{head}.>", prefix)
    return subjects.matches(head, prefix)


def _page(footer: Footer, prefix: str) -> int:
    """Return the number of the page of the index that a stream would be on; -1 before all."""
    return bisect.bisect_right(footer.pages, prefix, key=lambda page: page.first) - 1


_prefix = attrgetter("prefix")
_position = attrgetter("position")
