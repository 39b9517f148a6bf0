"""Marks: their knowledge of a log, and the findings beside it, without a broker."""

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from hansard.bus import marks
from hansard.bus.marks import Extent, Kept, Known, Mark, Witness
from hansard.bus.recheck import Compared

Message = tuple[int, str, bytes]
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
STREAM = "hansard_log-lab"


def log(count: int, first: int = 1, text: str = "x") -> list[Message]:
    """Return a log of `count` messages."""
    return [(n, f"hansard.lab.s.{n}", f"{text}{n}".encode()) for n in range(first, count + 1)]


def marked(messages: list[Message]) -> Mark:
    """Return the mark of a log."""
    mark = Mark(STREAM)
    for message in messages:
        mark = mark.then(*message)
    return mark


def findings(
    messages: list[Message], *known: Known, last: int | None = None
) -> list[tuple[str, str]]:
    """Return the findings of a log beside marks: kind and fact."""
    facts: list[tuple[str, str]] = []

    def count(kind: str, fact: str, where: Mapping[str, object], *, wrong: bool = True) -> None:
        assert wrong
        assert "position" in where
        facts.append((kind, fact))

    compared = Compared(known, count)
    for message in messages:
        compared.message(*message)
    compared.end(last if last is not None else messages[-1][0] if messages else 0)
    return facts


def test_the_digest_is_the_documented_one():
    """SHA-256 over the digest before, the position, the subject and the exact body."""
    first = hashlib.sha256((1).to_bytes(8, "big") + b"a.b\nbody").digest()
    second = hashlib.sha256(first + (7).to_bytes(8, "big") + b"a.c\n").hexdigest()
    mark = Mark(STREAM).then(1, "a.b", b"body").then(7, "a.c", b"")
    assert mark == Mark(STREAM, position=7, count=2, chained=7, chain=second, before=first.hex())


def test_what_is_kept_stays_readable(tmp_path: Path):
    """The bytes of a mark: a later version reads them."""
    mark = Mark(STREAM, 3, 3, 2, "ab", "cd")
    kept = Kept(mark, NOW, "strict", NOW, blobs=1, late="why", lost="what")
    marks.write(tmp_path, "lab", kept)
    golden = (
        b'{"mark":{"stream":"hansard_log-lab","position":3,"count":3,"chained":2,"chain":"ab",'
        b'"before":"cd"},'
        b'"written":"2026-01-02T03:04:05Z","durability":"strict","began":"2026-01-02T03:04:05Z",'
        b'"blobs":1,"late":"why","lost":"what"}'
    )
    path = marks.path_of(tmp_path, "lab")
    assert path.read_bytes() == golden
    assert marks.read(tmp_path, "lab") == kept
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(golden[:-9])
    with pytest.raises(marks.Damaged, match=r"lab\.json' cannot be read"):
        marks.read(tmp_path, "lab")


@pytest.mark.parametrize("known", [0, 1, 4, 5])
def test_a_log_that_went_on_is_as_it_was(known: int):
    """A mark lags behind, and that is no finding."""
    assert findings(log(5), Known("the mark", marked(log(known)))) == []


def test_a_log_that_lost_its_end():
    """The loss has its size, the marks that knew and their notes; marks that agree report once."""
    mark = marked(log(5))
    [(kind, fact)] = findings(log(3), Known("one", mark), Known("two", mark, "Beware"))
    assert kind == "loss"
    assert fact == (
        "the log ends at position 3, and one and two knew it up to 5: "
        "2 acknowledged commits are gone. Beware"
    )


def test_a_log_that_lost_what_was_in_the_middle():
    """The loss is counted and reported once."""
    mark = marked(log(5))
    [(kind, fact)] = findings([*log(2), *log(5, first=4)], Known("one", mark))
    assert (kind, fact) == (
        "loss",
        "up to position 5 the log holds 4 commits, and one counted 5: 1 are gone. ".strip(),
    )


def test_a_log_that_is_another():
    """A log with as many, but other messages is reported with the first differing position."""
    early, late = marked(log(2)), marked(log(5))
    now = [*log(3), *log(9, first=4, text="y")]
    [(kind, fact)] = findings(now, Known("one", early), Known("two", late))
    assert kind == "history"
    assert fact.startswith("positions 3 to 5 do not hold what two read there")


def test_a_mark_whose_digest_lags():
    """During a bulk load the end is counted before it is read."""
    lagging = msgspec.structs.replace(marked(log(2)), position=5, count=5)
    assert findings(log(6), Known("one", lagging)) == []
    assert [kind for kind, _ in findings(log(4), Known("one", lagging))] == ["loss"]
    other = [*log(1), *log(6, first=2, text="y")]
    assert [kind for kind, _ in findings(other, Known("one", lagging))] == ["history"]


def test_a_stream_that_is_only_begun_holds_nothing(tmp_path: Path):
    """A server that was killed while it made a stream leaves a folder: that is no lost log."""
    witness = Witness.of(tmp_path)
    folder = tmp_path / "nats/jetstream/HANSARD/streams" / STREAM / "msgs"
    folder.mkdir(parents=True)
    (folder / "1.blk").write_bytes(b"")
    assert witness.files(STREAM) is None
    marks.begin_missing(tmp_path, tmp_path / "nats", "strict")
    assert witness.kept("lab") is None
    (folder / "1.blk").write_bytes(b"x")
    assert witness.files(STREAM) == folder.parent
    marks.begin_missing(tmp_path, tmp_path / "nats", "strict")
    kept = witness.kept("lab")
    assert kept is not None
    assert kept.late is not None


def compared(
    kept: Kept | None, messages: list[Message], *, last: int | None = None, blobs: int = 0
) -> str:
    """Return the loss that a log of these messages shows beside a mark."""
    by_position = {position: (subject, body) for position, subject, body in messages}
    last = last if last is not None else max(by_position, default=0)
    extent = Extent(min(by_position, default=last + 1), last, len(messages))
    newest = by_position.get(kept.mark.chained) if kept is not None else None
    return marks.loss(kept, extent, blobs, newest) or ""


@pytest.mark.parametrize(
    ("left", "message"),
    [
        (
            log(4),
            "its log ends at position 4, and .* on the disk up to 5: 1 acknowledged commit is",
        ),
        (
            log(5, first=3),
            r"holds 3 commits: 2 acknowledged commits are gone \(missing: position 1",
        ),
        ([*log(2), *log(9, first=4)], "goes to position 9 and holds 8 commits: 1 acknowledged"),
        ([*log(4), *log(9, first=5, text="y")], "position 5 of its log is not the commit that was"),
        ([*log(4), *log(9, first=6)], "holds 8 commits: 1 acknowledged commit is gone"),
        ([], "its log ends at position 0"),
    ],
)
def test_a_mark_is_compared_as_a_whole(left: list[Message], message: str):
    """A loss anywhere, or another message at the mark, is found, also after more commits."""
    kept = Kept(marked(log(5)), NOW, "strict", NOW)
    assert compared(kept, log(5)) == compared(kept, log(9)) == ""
    assert re.search(message, compared(kept, left))


def test_a_log_that_lost_every_message_but_not_its_last_position():
    """A server that keeps the last position in its index counts no message."""
    kept = Kept(marked(log(5)), NOW, "strict", NOW)
    assert "holds 0 commits: 5 acknowledged commits are gone" in compared(kept, [], last=5)


def test_without_a_mark_no_position_may_be_missing():
    """This holds for an outside broker's log and for a young one without a mark."""
    assert compared(None, log(5)) == compared(None, []) == ""
    assert "2 acknowledged commits are gone" in compared(None, log(5, first=3))


def test_a_mark_that_is_begun_late_takes_the_log_as_it_is():
    """After the operator removes the mark, the rest is accepted, and a further loss is reported."""
    begun = Kept(Mark(STREAM), NOW, "strict", NOW, late="its mark was removed")
    left = [*log(5, first=3), *log(9, first=7)]
    assert compared(begun, left) == ""
    mark = msgspec.structs.replace(marked(left), count=len(left))
    later = msgspec.structs.replace(begun, mark=mark)
    assert compared(later, left) == ""
    assert "1 acknowledged commit is gone" in compared(later, left[1:])


def test_a_loss_that_an_outside_operator_accepted():
    """The metadata of the stream states how many positions may be missing."""
    state = {"first_seq": 3, "last_seq": 5, "messages": 3}
    config = {"metadata": {marks.ACCEPTED: "2"}}
    assert marks.loss(None, Extent.of({"state": state, "config": config}), 0, None) is None
    config = {"metadata": {marks.ACCEPTED: "1"}}
    message = marks.loss(None, Extent.of({"state": state, "config": config}), 0, None)
    assert message is not None
    assert "1 acknowledged commit is gone" in message


def test_a_loss_stays_until_the_log_agrees_with_its_mark_again():
    """A log that grows after a loss still differs from its mark; a restored one does not."""
    kept = Kept(marked(log(5)), NOW, "strict", NOW, lost="its log ends at position 4, and ...")
    assert compared(kept, [*log(4), *log(9, first=5, text="y")])
    assert compared(kept, log(9)) == ""
    unchecked = msgspec.structs.replace(kept.mark, before="")
    older = msgspec.structs.replace(kept, mark=unchecked)
    assert "ends at position 4" in compared(older, log(9)), "a mark of before cannot tell"
    blobs = msgspec.structs.replace(kept, blobs=3, lost=marks.blobs_short_of(kept, -1))
    assert "large payloads" in compared(blobs, log(9), blobs=4)
