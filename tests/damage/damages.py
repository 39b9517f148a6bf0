"""Ways to damage a data directory, and the expected message for each.

Formats: a block of nats-server 2.15.1 is records after one another: length (4 bytes, the highest
bit says that there are headers), sequence (8), time (8), length of the subject (2), subject,
[length of headers (4), headers,] body, checksum (8).
"""

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import msgspec

from hansard.bus import marks

WORKSPACE = "lab"
LENGTH, SEQUENCE, SUBJECT, SUM = 0, 4, 24, -3
"""Offsets in a record at which to flip a bit; the body's is in its middle."""


class Files(msgspec.Struct, frozen=True):
    """The files of a data directory that no process uses, and an older copy of it."""

    home: Path
    older: Path

    def stream(self, kind: str = "log", home: Path | None = None) -> Path:
        """Return the folder of a stream."""
        return (home or self.home) / f"nats/jetstream/HANSARD/streams/hansard_{kind}-{WORKSPACE}"

    def blocks(self, kind: str = "log", home: Path | None = None) -> list[Path]:
        """Return its blocks in order."""
        paths = (self.stream(kind, home) / "msgs").glob("*.blk")
        return sorted(paths, key=lambda path: int(path.stem))

    @property
    def index(self) -> Path:
        """Return the server's index of the blocks, which makes it start faster."""
        return self.stream() / "msgs/index.db"

    @property
    def mark(self) -> Path:
        """The broker's mark."""
        return marks.path_of(self.home, WORKSPACE)

    @property
    def tables(self) -> Path:
        """The tables."""
        return self.home / f"projections/{WORKSPACE}.duckdb"


Do = Callable[[Files], object]


class Damage(msgspec.Struct, frozen=True):
    """One way to do damage, and a pattern for the message of `check`.

    `wrong`: True if it is an error; otherwise it is only reported, or harmless, with no pattern.
    `refused`: True if `connect` refuses. `answered`: True if `sql` may answer from intact tables.
    """

    name: str
    do: Do
    fact: str = ""
    wrong: bool = True
    refused: bool = False
    answered: bool = False


def cut(path: Path, size: int) -> None:
    """Cut a file to so many bytes; a negative number is cut off."""
    left = size if size >= 0 else path.stat().st_size + size
    with path.open("r+b") as file:
        file.truncate(left)


def flip(path: Path, at: int) -> None:
    """Flip a bit of the byte at a place."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def records(block: Path) -> list[tuple[int, int]]:
    """Return the offset and length of each record of a block."""
    content, places, at = block.read_bytes(), [], 0
    while at < len(content):
        length = struct.unpack_from("<I", content, at)[0] & 0x7FFF_FFFF
        places.append((at, length))
        at += length
    return places


def swap(one: Path, other: Path) -> None:
    """Swap two files."""
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def replaced(target: Path, source: Path) -> None:
    """Put a copy in the place of a file or folder."""
    if source.is_dir():
        shutil.rmtree(target)
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)


def emptied(stream: Path) -> None:
    """Remove all blocks of a stream."""
    for block in stream.glob("msgs/*.blk"):
        block.unlink()


def middle(block: Path) -> int:
    """Return the offset of the middle record of a block."""
    places = records(block)
    return places[len(places) // 2][0]


def flipped(which: int, record: float, part: int | None) -> Do:
    """Flip a bit in a block: of the first (0.0), middle (0.5) or last (1.0) record; None: body."""

    def do(files: Files) -> None:
        block = files.blocks()[which]
        places = records(block)
        at, length = places[round(record * (len(places) - 1))]
        place = length // 2 if part is None else part
        flip(block, at + (place if place >= 0 else length + place))

    return do


def unindexed(do: Do) -> Do:
    """Return the damage with the index removed: the server counts again from the blocks."""

    def both(files: Files) -> None:
        do(files)
        files.index.unlink(missing_ok=True)

    return both


GONE = r"positions \d+ to \d+ are missing"
SHORT = r"the log ends at position \d+, and the broker's mark and the tables .*knew it up to \d+"
FEWER = r"the log holds \d+ commits, and the broker's mark and the tables .*counted \d+"
OFFERED = r"does not offer its stream 'hansard_log-lab', and .* holds messages of it"
MARK_SHORT = r"its log ends at position 0, and at .* it was on the disk up to \d+"


def _both(
    name: str, do: Do, fact: str, unindexed_fact: str, *, hidden: bool = False
) -> list[Damage]:
    """Return a damage to the blocks, with and without index (`hidden`: only a read shows it)."""
    return [
        Damage(name, do, fact, refused=not hidden, answered=hidden),
        Damage(f"{name}, no index", unindexed(do), unindexed_fact, refused=True),
    ]


BLOCKS = [
    *_both(
        "last block cut in a record",
        lambda f: cut(f.blocks()[-1], middle(f.blocks()[-1]) + 99),
        GONE,
        SHORT,
    ),
    *_both(
        "last block cut between records",
        lambda f: cut(f.blocks()[-1], middle(f.blocks()[-1])),
        GONE,
        SHORT,
    ),
    *_both("last block's last byte cut", lambda f: cut(f.blocks()[-1], -1), GONE, SHORT),
    *_both("last block emptied", lambda f: cut(f.blocks()[-1], 0), GONE, SHORT),
    *_both("last block gone", lambda f: f.blocks()[-1].unlink(), GONE, SHORT),
    *_both(
        "middle block cut", lambda f: cut(f.blocks()[1], middle(f.blocks()[1]) + 99), GONE, GONE
    ),
    *_both("middle block gone", lambda f: f.blocks()[1].unlink(), GONE, GONE),
    *_both("first block gone", lambda f: f.blocks()[0].unlink(), FEWER, FEWER),
    *_both("all blocks gone", lambda f: emptied(f.stream()), GONE, SHORT),
    *_both("last two blocks swapped", lambda f: swap(*f.blocks()[-2:]), GONE, SHORT),
    *_both("first two blocks swapped", lambda f: swap(*f.blocks()[:2]), FEWER, FEWER),
    *_both("a bit of the first record's body", flipped(0, 0.0, None), FEWER, FEWER, hidden=True),
    *_both("a bit of a middle record's body", flipped(1, 0.5, None), GONE, GONE, hidden=True),
    *_both("a bit of a middle record's length", flipped(1, 0.5, LENGTH), GONE, GONE),
    *_both(
        "a bit of a middle record's sequence", flipped(1, 0.5, SEQUENCE), GONE, GONE, hidden=True
    ),
    *_both("a bit of a middle record's subject", flipped(1, 0.5, SUBJECT), GONE, GONE, hidden=True),
    *_both("a bit of a middle record's checksum", flipped(1, 0.5, SUM), GONE, GONE, hidden=True),
    *_both("a bit of the last record's body", flipped(-1, 1.0, None), GONE, SHORT),
    *_both("a bit of the last record's checksum", flipped(-1, 1.0, SUM), GONE, SHORT),
    Damage("a bit of the last record's sequence", flipped(-1, 1.0, SEQUENCE), SHORT, refused=True),
    Damage("a bit of a late record's length", flipped(-1, 0.5, LENGTH), SHORT, refused=True),
    Damage(
        "the folder of the blocks gone",
        lambda f: shutil.rmtree(f.stream() / "msgs"),
        SHORT,
        refused=True,
    ),
]
"""Damages to the blocks of the log."""


def _older_stream(files: Files) -> None:
    replaced(files.stream(), files.stream(home=files.older))


def _older_block(files: Files) -> None:
    replaced(files.blocks()[1], files.blocks(home=files.older)[1])


def _older_store(files: Files) -> None:
    replaced(files.home / "nats", files.older / "nats")


COPIES = [
    *_both("an older copy of a block", _older_block, GONE, GONE),
    Damage("an older copy of the stream", _older_stream, SHORT, refused=True),
    Damage("an older copy of the store", _older_store, SHORT, refused=True),
]
"""Files that a careless copy puts back."""

STREAM = [
    *(
        Damage(f"{name} {how}", do, OFFERED, refused=True)
        for name in ("meta.inf", "meta.sum")
        for how, do in (
            ("gone", lambda f, name=name: (f.stream() / name).unlink()),
            ("emptied", lambda f, name=name: cut(f.stream() / name, 0)),
            ("with a bit flipped", lambda f, name=name: flip(f.stream() / name, 3)),
        )
    ),
    Damage(
        "the stream's folder gone", lambda f: shutil.rmtree(f.stream()), MARK_SHORT, refused=True
    ),
    Damage(
        "the stream's folder renamed",
        lambda f: f.stream().rename(f.stream().with_name("other")),
        MARK_SHORT,
        refused=True,
    ),
    Damage("the store gone", lambda f: shutil.rmtree(f.home / "nats"), MARK_SHORT, refused=True),
]
"""Damages to the server's metadata of a stream."""

BLOBS = [
    Damage(
        "the blobs' block gone",
        lambda f: f.blocks("blob")[0].unlink(),
        r"blob .* was not found",
        answered=True,
    ),
    Damage(
        "the blobs' block cut",
        lambda f: cut(f.blocks("blob")[0], 999),
        r"blob .* was not found",
        answered=True,
    ),
    Damage(
        "a bit of a blob",
        lambda f: flip(f.blocks("blob")[0], 50_000),
        r"blob .*(was not found|cannot load)",
        answered=True,
    ),
    Damage(
        "the blobs' stream gone",
        lambda f: shutil.rmtree(f.stream("blob")),
        "its stream of large payloads ends at 0",
        refused=True,
    ),
    Damage(
        "the blobs' meta.inf gone",
        lambda f: (f.stream("blob") / "meta.inf").unlink(),
        r"blob .* was not found",
        refused=True,
    ),
]
"""Damages to the large payloads."""

TABLES = [
    Damage(
        "the tables cut",
        lambda f: cut(f.tables, f.tables.stat().st_size // 2),
        "the tables cannot be read",
        answered=True,
    ),
    Damage(
        "the tables emptied", lambda f: cut(f.tables, 0), "the tables cannot be read", answered=True
    ),
    Damage(
        "the tables' header spoilt",
        lambda f: flip(f.tables, 4096 + 20),
        "the tables cannot be read",
        answered=True,
    ),
]
"""Damages to the tables."""

MARKS = [
    Damage(
        "the mark gone",
        lambda f: f.mark.unlink(),
        "its mark was removed",
        wrong=False,
        answered=True,
    ),
    Damage(
        "the mark spoilt",
        lambda f: cut(f.mark, 20),
        "json' cannot be read",
        wrong=False,
        answered=True,
    ),
    Damage(
        "an older mark",
        lambda f: replaced(f.mark, marks.path_of(f.older, WORKSPACE)),
        r"compared with the broker's mark",
        wrong=False,
        answered=True,
    ),
]
"""Damages to the mark itself: reported, and no loss."""

HARMLESS = [
    Damage("the index gone", lambda f: f.index.unlink(), wrong=False, answered=True),
    Damage("the index emptied", lambda f: cut(f.index, 0), wrong=False, answered=True),
    Damage("a bit of the index", lambda f: flip(f.index, 40), wrong=False, answered=True),
    Damage(
        "a bit of a snapshot", lambda f: flip(f.blocks("snap")[0], 60), wrong=False, answered=True
    ),
    Damage(
        "the snapshots' block gone",
        lambda f: f.blocks("snap")[0].unlink(),
        wrong=False,
        answered=True,
    ),
]
"""Damage to derived files, which are rebuilt."""

ALL = [*BLOCKS, *COPIES, *STREAM, *BLOBS, *TABLES]
"""Damages that must never be reported as clean."""
