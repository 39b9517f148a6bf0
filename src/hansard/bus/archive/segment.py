"""The format of a segment: a range of positions of a log in one file that is read in parts.

    magic
    for each block (8,192 messages, or 16 MB):
        frames      messages sorted by stream, so that a run's are together; zstd of MessagePack
        places      the frame and the time of each position of the block
    pages           for 100 streams each: their frames, and the versions in them
    footer          the parts of blocks and pages, and the runs of the segment
    end             length and digest of the footer, and the magic again

A part (frame, places, page, footer) has its offset, size and digest where it is referred to, so
that it can be read alone, from any copy, and is checked each time. A segment never changes. It
holds the exact bytes of each commit; a large payload stays in the workspace's blobs.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import msgspec

from hansard.bus.log import Origin, RawMessage
from hansard.bus.reads import is_stream
from hansard.bus.sources import End, Message, end_of
from hansard.domain.errors import Corrupt, import_extra

MAGIC = b"HANSARD SEGMENT 1\n"

BLOCK_MESSAGES_MAX = 8_192
BLOCK_BYTES_MAX = 16 * 1024 * 1024
"""Most messages and bytes of a block, which is in memory as a whole while it is written, and while
positions are read in order.
"""

FRAME_BYTES_MIN = 16 * 1024
FRAME_BYTES_MAX = 64 * 1024
"""A frame ends with a run once it has so many bytes, and within one once it has more."""

PAGE_STREAMS_MAX = 100
"""Most streams in one page of the index."""

LEVEL = 6
"""Zstandard level: within 5 % of level 12 on recorded runs, in a fifth of its time."""

DIGEST_BYTES = 16
FORMAT = 1

NO_FRAME = 0xFFFF
"""Place of a position without a message: the log lost it, and its operator accepted that."""

MESSAGE_BYTES = 400
"""Size of a decoded message in memory besides its body, in bytes."""


class Part(msgspec.Struct, frozen=True, array_like=True):
    """A range of a segment's bytes, and the BLAKE2b digest of them."""

    offset: int
    size: int
    digest: bytes

    def check(self, data: bytes) -> bool:
        """Return whether these are its bytes."""
        return len(data) == self.size and digest(data) == self.digest


class Block(msgspec.Struct, frozen=True, array_like=True):
    """A range of positions: its messages are in the frames from number `frame` on."""

    first: int
    last: int
    stamp: int
    frame: int
    frames: int
    places: Part


class Page(msgspec.Struct, frozen=True, array_like=True):
    """Part of the index: the streams from prefix `first` on."""

    first: str
    part: Part


class Footer(msgspec.Struct, frozen=True):
    """The content of a segment; `stamp` is the newest time of a message, in ns since 1970.

    `runs` has, in order, 32 bits of the digest of each run (or other aggregate) in the segment: a
    run that is not among them has no message here. `chain` is the digest over all messages.
    """

    workspace: str
    first: int
    last: int
    count: int
    stamp: int
    chain: bytes
    blocks: list[Block]
    frames: list[Part]
    pages: list[Page]
    runs: bytes
    version: int = FORMAT

    def has_run(self, prefix: str) -> bool:
        """Return whether messages of a run may be in the segment; `prefix` begins a subject."""
        runs = memoryview(self.runs).cast("I")
        number = run_number(prefix)
        index = bisect.bisect_left(runs, number)
        return index < len(runs) and runs[index] == number

    def block_of(self, position: int) -> Block | None:
        """Return the block of a position; None if it is outside of all."""
        index = bisect.bisect_right(self.blocks, position, key=lambda block: block.first) - 1
        block = self.blocks[index] if index >= 0 else None
        return block if block is not None and position <= block.last else None


class StreamIndex(msgspec.Struct, array_like=True):
    """One stream in a segment: `counts` of the versions are in each of the `frames`, in order.
    `end` is that of its newest message; None if it is to be read from that.

    A version that is no number (a subject that Hansard did not write) is a text.
    """

    prefix: str
    frames: list[int]
    counts: list[int]
    versions: list[int | str]
    end: End | None = None

    def frames_of(self, versions: set[str] | None) -> list[int]:
        """Return the frames with some versions; with all of them for None."""
        if versions is None:
            return self.frames
        chosen: list[int] = []
        start = 0
        for frame, count in zip(self.frames, self.counts, strict=True):
            if any(str(each) in versions for each in self.versions[start : start + count]):
                chosen.append(frame)
            start += count
        return chosen

    def names(self, versions: set[str] | None) -> list[str]:
        """Return the subjects of some versions; of all for None."""
        tokens = map(str, self.versions)
        return [f"{self.prefix}.{each}" for each in tokens if versions is None or each in versions]


class Places(msgspec.Struct, frozen=True, array_like=True):
    """Where the positions of a block are: frame (from the block's first on) and time of each."""

    frames: bytes
    stamps: list[int]

    def frame(self, index: int) -> int | None:
        """Return the frame of the position with this index in the block; None if it has no
        message.
        """
        number: int = memoryview(self.frames).cast("H")[index]
        return None if number == NO_FRAME else number


class _Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    position: int
    stamp: int
    subject: str
    body: bytes
    origin: Origin | None = None
    fault: tuple[str, str] | None = None


class Manifest(msgspec.Struct, frozen=True):
    """The description of a stored segment, in an object of its own: it exists only once the segment
    was stored and read back.

    `stamp` is the newest time of a message. `footer` is where the footer is, and `digest` its
    digest. `message_bytes` is the size of the bodies.
    `chain` is the rolling digest (`marks.link`) of its generation up to `last`.
    """

    workspace: str
    first: int
    last: int
    count: int
    stamp: int
    object: str
    size: int
    sha256: str
    chain: str
    footer: tuple[int, int]
    digest: str
    message_bytes: int
    version: int = FORMAT

    @property
    def footer_part(self) -> Part:
        """The place of the footer."""
        return Part(*self.footer, bytes.fromhex(self.digest))


def manifest_of(body: bytes | None, name: str) -> Manifest:
    """Decode an object's content. Raises Corrupt if it is no manifest."""
    try:
        return msgspec.json.decode(body or b"", type=Manifest)
    except msgspec.DecodeError as error:
        fact = f"it is no manifest of a segment ({error}): restore it from a copy"
        raise Corrupt(f"archive object {name!r}", fact) from error


def digest(data: bytes) -> bytes:
    """Return the digest of a part."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def run_of(subject: str) -> str:
    """Return the part of a subject that names its run, or another aggregate: 4 tokens."""
    return ".".join(subject.split(".", 4)[:4])


def run_number(prefix: str) -> int:
    """Return 32 bits of the digest of a run's prefix."""
    return int.from_bytes(hashlib.blake2b(prefix.encode(), digest_size=4).digest(), sys.byteorder)


def _zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd  # noqa: PLC0415 -- of this version on

        return zstd
    name = "backports.zstd"
    return import_extra(name, "the archive", name, "archive")


_encode = msgspec.msgpack.Encoder().encode
_rows = msgspec.msgpack.Decoder(list[_Row])


def pack(content: object) -> bytes:
    """Encode and compress the content of a part."""
    data: bytes = _zstd().compress(_encode(content), LEVEL)
    return data


def unpack(data: bytes) -> bytes:
    """Decompress a part."""
    content: bytes = _zstd().decompress(data)
    return content


Frame = dict[str, list[Message]]
"""The messages of a frame, by the prefix of their subjects (all but the version)."""


def frame_of(data: bytes) -> Frame:
    """Decode a frame that was decompressed."""
    frame: Frame = {}
    for row in _rows.decode(data):
        fault = Corrupt(*row.fault) if row.fault is not None else None
        message = Message(row.position, row.stamp, row.subject, row.body, row.origin, fault)
        frame.setdefault(row.subject.rpartition(".")[0], []).append(message)
    return frame


def _row(message: RawMessage) -> _Row:
    fault = message.fault
    return _Row(
        message.position,
        message.stamp,
        message.subject,
        message.body,
        message.origin,
        (fault.where, fault.fact) if fault is not None else None,
    )


class Chain:
    """Rolling digest of messages in order, with their positions, times and origins."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)

    def add(self, messages: Iterable[RawMessage]) -> None:
        """Add messages."""
        for data in map(_encode, map(_row, messages)):
            self._hash.update(struct.pack("<Q", len(data)))
            self._hash.update(data)

    @property
    def digest(self) -> bytes:
        """The digest of all that was added."""
        return self._hash.digest()


class SegmentWriter:
    """Writes a segment to a file: `extend` it with messages in order, then `close`."""

    def __init__(self, file: BinaryIO, workspace: str) -> None:
        self._file = file
        self._workspace = workspace
        self._block: list[RawMessage] = []
        self._block_bytes = 0
        self._blocks: list[Block] = []
        self._frames: list[Part] = []
        self._index: dict[str, StreamIndex] = {}
        self._chain = Chain()
        self._offset = 0
        self.count = 0
        self.message_bytes = 0
        self.first = 0
        self.last = 0
        self.stamp = 0
        self._write(MAGIC)

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._offset

    def extend(self, messages: Iterable[RawMessage]) -> None:
        """Add the next messages."""
        for message in messages:
            self._add(message)

    def _add(self, message: RawMessage) -> None:
        size = len(message.body) + len(message.subject)
        full = len(self._block) == BLOCK_MESSAGES_MAX or self._block_bytes + size > BLOCK_BYTES_MAX
        spans = self._block and message.position - self._block[0].position >= NO_FRAME
        if self._block and (full or spans):
            self._end_block()
        self._block.append(message)
        self._block_bytes += size
        self.first = self.first or message.position
        self.last = message.position
        self.stamp = max(self.stamp, message.stamp)
        self.count += 1
        self.message_bytes += len(message.body)

    def close(self) -> tuple[Footer, Part]:
        """Write the rest; return the footer and its place."""
        if self._block:
            self._end_block()
        pages: list[Page] = []
        streams = sorted(self._index)
        for start in range(0, len(streams), PAGE_STREAMS_MAX):
            prefixes = streams[start : start + PAGE_STREAMS_MAX]
            part = self._part([self._index[each] for each in prefixes])
            pages.append(Page(prefixes[0], part))
        runs = array("I", sorted({run_number(run_of(f"{each}.")) for each in streams}))
        footer = Footer(
            self._workspace,
            self.first,
            self.last,
            self.count,
            self.stamp,
            self._chain.digest,
            self._blocks,
            self._frames,
            pages,
            runs.tobytes(),
        )
        place = self._part(footer)
        self._write(struct.pack("<QQ", place.offset, place.size) + place.digest + MAGIC)
        return footer, place

    def _end_block(self) -> None:
        block, self._block, self._block_bytes = self._block, [], 0
        self._chain.add(block)
        first, last, frame = block[0].position, block[-1].position, len(self._frames)
        frames = array("H", [NO_FRAME]) * (last - first + 1)
        stamps = [0] * (last - first + 1)
        for number, messages in enumerate(_framed(block)):
            self._frames.append(self._part([_row(message) for message in messages]))
            for message in messages:
                frames[message.position - first] = number
                stamps[message.position - first] = message.stamp
                self._note(message, frame + number)
        for prefix, message in {each.subject.rpartition(".")[0]: each for each in block}.items():
            self._index[prefix].end = end_of(message) if is_stream(message.subject) else None
        places = self._part(Places(frames.tobytes(), stamps))
        self._blocks.append(
            Block(first, last, self.stamp, frame, len(self._frames) - frame, places)
        )

    def _note(self, message: RawMessage, frame: int) -> None:
        prefix, _, token = message.subject.rpartition(".")
        entry = self._index.get(prefix)
        if entry is None:
            entry = self._index[prefix] = StreamIndex(prefix, [], [], [])
        if not entry.frames or entry.frames[-1] != frame:
            entry.frames.append(frame)
            entry.counts.append(0)
        entry.counts[-1] += 1
        number = int(token) if token.isascii() and token.isdigit() else -1
        entry.versions.append(number if str(number) == token else token)

    def _part(self, content: object) -> Part:
        data = pack(content)
        part = Part(self._offset, len(data), digest(data))
        self._write(data)
        return part

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._offset += len(data)


def _framed(block: Sequence[RawMessage]) -> Iterator[list[RawMessage]]:
    """Yield the messages of each frame of a block: sorted by stream, a run together."""
    by_stream = sorted(block, key=lambda each: (each.subject.rpartition(".")[0], each.position))
    frame: list[RawMessage] = []
    size = 0
    for _, messages in itertools.groupby(by_stream, key=lambda each: run_of(each.subject)):
        if size >= FRAME_BYTES_MIN:
            yield frame
            frame, size = [], 0
        for message in messages:
            if size >= FRAME_BYTES_MAX:
                yield frame
                frame, size = [], 0
            frame.append(message)
            size += len(message.body) + len(message.subject)
    if frame:
        yield frame


def scan(file: BinaryIO) -> Footer:
    """Read a whole segment, and return its footer. Raises Corrupt unless all its parts are sound,
    and its messages those that its digest and its index were made of.
    """
    where = "an archive segment"
    footer = footer_of(file, where)
    chain, count, names = Chain(), 0, 0
    for block in footer.blocks:
        messages: list[RawMessage] = []
        for part in footer.frames[block.frame : block.frame + block.frames]:
            for each in frame_of(unpack(_read(file, part, where))).values():
                messages += each
        messages.sort(key=lambda message: message.position)
        places = msgspec.msgpack.decode(unpack(_read(file, block.places, where)), type=Places)
        placed = sum(
            places.frame(index) is not None for index in range(block.last - block.first + 1)
        )
        if placed != len(messages) or (messages[0].position, messages[-1].position) != (
            block.first,
            block.last,
        ):
            raise Corrupt(where, f"the block from position {block.first:,} on is not whole")
        chain.add(messages)
        count += len(messages)
    for page in footer.pages:
        entries = msgspec.msgpack.decode(
            unpack(_read(file, page.part, where)), type=list[StreamIndex]
        )
        names += sum(len(entry.versions) for entry in entries)
    if chain.digest != footer.chain or not count == names == footer.count:
        fact = f"it has {count:,} messages, {names:,} of them in its index, not {footer.count:,}"
        raise Corrupt(where, f"{fact}, or they are other ones")
    return footer


def footer_of(file: BinaryIO, where: str) -> Footer:
    """Read the footer of a segment file. Raises Corrupt."""
    size = 16 + DIGEST_BYTES + len(MAGIC)
    end = file.seek(0, 2)
    file.seek(max(0, end - size))
    data = file.read()
    if len(data) < size or not data.endswith(MAGIC):
        raise Corrupt(where, "its end is missing")
    offset, length = struct.unpack_from("<QQ", data)
    part = Part(offset, length, data[16 : 16 + DIGEST_BYTES])
    return decode_footer(unpack(_read(file, part, where)), where)


def decode_footer(data: bytes, where: str) -> Footer:
    """Decode a footer that was decompressed. Raises Corrupt if a later version of Hansard wrote the
    segment.
    """
    footer = msgspec.msgpack.decode(data, type=Footer)
    if footer.version > FORMAT:
        raise Corrupt(
            where, f"it has format {footer.version}, newer than {FORMAT}: upgrade Hansard"
        )
    return footer


def _read(file: BinaryIO, part: Part, where: str) -> bytes:
    file.seek(part.offset)
    data = file.read(part.size)
    if not part.check(data):
        raise Corrupt(where, f"{part.size:,} bytes from {part.offset:,} on are not those written")
    return data
