"""Damaged files: a clear error at the wrong line, and no partial import."""

import asyncio
import hashlib
import json
import random

import pytest

from hansard import settings
from hansard.agents.exchange.writer import LINE_BYTES_MAX
from hansard.client.opening import open_workspace
from hansard.domain.ids import run_of
from tests.exchange.support import (
    PEAK_BYTES_MAX,
    Zoo,
    blob_messages,
    bring,
    bring_in,
    exported,
    lines_of,
    log_of,
    measured,
    sealed,
)

pytestmark = pytest.mark.later

KINDS = ("team", "fork of a fork", "talk 3", "retried")


def line_at(data: bytes, offset: int) -> int:
    """Return the line of a byte, from 1."""
    return data.count(b"\n", 0, offset) + 1


def flipped(data: bytes, chance: random.Random) -> tuple[bytes, int]:
    """Flip a bit in a random line, so that short lines are hit as often as long ones."""
    lines = data.splitlines(keepends=True)
    number = chance.randrange(len(lines))
    at = sum(map(len, lines[:number])) + chance.randrange(len(lines[number]))
    changed = bytearray(data)
    changed[at] ^= 1 << chance.randrange(8)
    return bytes(changed), number + 1


def truncated(data: bytes, chance: random.Random) -> tuple[bytes, int]:
    """Cut off the end, in the middle of a line or between two."""
    at = chance.randrange(1, len(data))
    if chance.random() < 0.3:
        at = data.index(b"\n", at - 1) + 1
    at = min(at, len(data) - 1)
    return data[:at], line_at(data, at - 1)


def dropped(data: bytes, chance: random.Random) -> tuple[bytes, int]:
    """Remove a line; the error is at its successor, or at the last line."""
    lines = data.splitlines(keepends=True)
    number = chance.randrange(len(lines))
    del lines[number]
    return b"".join(lines), min(number + 1, len(lines))


def doubled(data: bytes, chance: random.Random) -> tuple[bytes, int]:
    """Repeat a line."""
    lines = data.splitlines(keepends=True)
    number = chance.randrange(len(lines))
    lines.insert(number, lines[number])
    return b"".join(lines), number + 2


def moved(data: bytes, chance: random.Random) -> tuple[bytes, int]:
    """Swap two lines."""
    lines = data.splitlines(keepends=True)
    one, two = sorted(chance.sample(range(len(lines)), 2))
    lines[one], lines[two] = lines[two], lines[one]
    return b"".join(lines), one + 1


def inserted(data: bytes, chance: random.Random) -> tuple[bytes, int]:
    """Insert a foreign or an empty line."""
    lines = data.splitlines(keepends=True)
    number = chance.randrange(len(lines) + 1)
    lines.insert(number, chance.choice([b"\n", b"{}\n", b"\xef\xbb\xbf\n", b"\x00\n"]))
    return b"".join(lines), number + 1


DAMAGES = [flipped, truncated, dropped, doubled, moved, inserted]


@pytest.mark.slow(cases=1)
@pytest.mark.long
@pytest.mark.parametrize("damage", DAMAGES)
async def test_any_damage_is_reported_by_its_line(
    home, zoo: Zoo, workspace, tmp_path, rounds, evidence, damage
):
    """Random damage of each kind: exactly the damaged line is named, and the log stays empty.

    Only damage before or after a whole export (a doubled header or end, a foreign line) leaves the
    export importable.
    """
    files = [await asyncio.to_thread(exported, home, "zoo", zoo.runs[kind]) for kind in KINDS]
    commits = [lines_of(data)[-1]["commits"] for data in files]
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    path = tmp_path / "x.jsonl"
    count = rounds(60, 2_000)
    opened = await open_workspace(settings.load(data_dir=home, workspace=workspace))
    try:
        for number in range(count):
            chosen = chance.randrange(len(files))
            data, line = damage(files[chosen], chance)
            if data == files[chosen]:
                continue
            path.write_bytes(data)
            where = (seed, number, KINDS[chosen])
            result = await bring(opened, path)
            lines = [bad.line for bad in result.bads]
            if damage is moved and line == 1:  # the header is met again where it is now
                lines = lines[:1]
            assert lines == [line], (where, result.bads)
            assert len(result.bads[0].reason) > 20, where
            assert result.bytes == len(data), where
            after = files[chosen].count(b"\n") + 1
            if (damage, line) in {(doubled, 2), (doubled, after), (inserted, 1), (inserted, after)}:
                assert result.tally.commits == commits[chosen], where
                continue
            assert (result.tally.new, result.tally.commits, result.tally.runs) == (0, 0, 0), where
        head = await opened.log.head()
    finally:
        await opened.close()
    if damage not in {doubled, inserted}:
        assert head == 0
        assert await asyncio.to_thread(blob_messages, home, workspace) == 0
    evidence.record(f"export.damage.{damage.__name__}", rounds=count, half_imported=0)


def test_a_damaged_section_does_not_keep_the_others(home, zoo: Zoo, workspace, tmp_path):
    """A damaged section is reported once, and those before and after it are imported."""
    one, two, three = (exported(home, "zoo", zoo.runs[k]) for k in ("settled", "team", "doubt"))
    half = two[: len(two) // 2]
    result = bring_in(home, workspace, tmp_path / "x.jsonl", one + half + b"\n" + three)
    assert [bad.line for bad in result.bads] == [line_at(one + half, len(one + half))]
    runs = {run_of(stored.stream) for stored in log_of(home, workspace)}
    assert runs == {zoo.runs["settled"], zoo.runs["doubt"]}


def test_a_truncated_section_and_a_whole_one(home, zoo: Zoo, workspace, tmp_path):
    """A section cut between two lines is reported at the first line of the next one."""
    one, two = (exported(home, "zoo", zoo.runs[k]) for k in ("settled", "team"))
    cut = one[: one.rindex(b"\n", 0, -1) + 1]
    result = bring_in(home, workspace, tmp_path / "x.jsonl", cut + two)
    assert [bad.line for bad in result.bads] == [cut.count(b"\n") + 1]
    assert "before the end of this one" in result.bads[0].reason
    assert result.tally.runs == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data.replace(b"\n", b"\r\n"), "ends as on Windows"),
        (lambda data: data[:-1], "cut off"),
        (lambda data: b"", "is empty"),
        (lambda data: data.decode().encode("utf-16"), "not a line of 'hansard export'"),
        (lambda data: json.dumps(lines_of(data)).encode(), "cut off"),
        (lambda data: b'{"messages": []}\n', "it looks like chat-jsonl: use 'hansard import chat"),
    ],
)
def test_what_programs_do_to_text(home, zoo: Zoo, workspace, tmp_path, change, reason):
    """Changed line ends, encodings and formats are reported, and nothing is imported."""
    data = change(exported(home, "zoo", zoo.runs["settled"]))
    result = bring_in(home, workspace, tmp_path / "x.jsonl", data)
    assert len(result.bads) == 1
    assert reason in result.bads[0].reason
    assert log_of(home, workspace) == []


def test_what_is_beside_a_whole_export(home, zoo: Zoo, workspace, tmp_path):
    """A byte order mark before an export and foreign lines after it are reported once."""
    data = exported(home, "zoo", zoo.runs["settled"])
    lines = data.splitlines(keepends=True)
    result = bring_in(home, f"{workspace}-bom", tmp_path / "x.jsonl", b"\xef\xbb\xbf" + data)
    assert [bad.line for bad in result.bads] == [1]
    assert (result.tally.runs, result.tally.new) == (1, len(lines) - 2)
    for number, more in enumerate((b"\n", b"\n\n{}\n", lines[-1], lines[2] + lines[3])):
        result = bring_in(home, f"{workspace}-{number}", tmp_path / "x.jsonl", data + more)
        assert [bad.line for bad in result.bads] == [len(lines) + 1]
        assert (result.tally.runs, result.tally.new) == (1, len(lines) - 2)


def test_a_cut_file_with_another_one_after_it(home, zoo: Zoo, workspace, tmp_path):
    """`cat cut.jsonl whole.jsonl`: a header in the middle of a line is found."""
    one, two = (exported(home, "zoo", zoo.runs[k]) for k in ("retried", "team"))
    whole = lines_of(two)[-1]["commits"]
    for number, at in enumerate((1, 40, len(one) // 3, len(one) - 1)):
        path = tmp_path / "x.jsonl"
        data = one[:at] + two + one[:at]
        result = bring_in(home, f"{workspace}-{number}", path, data)
        lines = [line_at(data, at - 1), line_at(data, len(data) - 1)]
        assert [bad.line for bad in result.bads] == lines
        assert "the header of an export follows in the same line" in result.bads[0].reason
        assert (result.tally.runs, result.tally.new) == (1, whole)
        assert result.bytes == path.stat().st_size


# ---------------------------------------------------------------- well sealed, and still wrong


def forged(data: bytes, change) -> bytes:
    """Return an export changed by somebody who recomputes its digests."""
    lines = lines_of(data)
    change(lines)
    return sealed(lines)


def _body(line, **fields):
    line["body"] = json.dumps({**json.loads(line["body"]), **fields})


def _of(lines, kind, skip=0):
    return [n for n, line in enumerate(lines) if line.get("stream", {}).get("type") == kind][skip]


def _without(kind, skip=0):
    def change(lines):
        del lines[_of(lines, kind, skip)]
        lines[-1]["commits"] -= 1

    return change


def _field(place, name, value):
    def change(lines):
        lines[place][name] = value

    return change


def _in_body(place, **fields):
    return lambda lines: _body(lines[place], **fields)


def _data(text):
    """Add an event with this data, verbatim, to the last commit."""

    def change(lines):
        line = lines[-2]
        event = '{"type":"some.thing.v1","id":"e","data":' + text + "}"
        line["body"] = line["body"].removesuffix("]}") + "," + event + "]}"

    return change


AT = "2026-01-01T00:00:00.000000000Z"

FORGED = [
    (_field(0, "format", 2), "format 2, this version reads 1: upgrade"),
    (_field(0, "format", "1"), "upgrade hansard"),
    (_field(0, "more", 1), "upgrade hansard"),
    (_field(0, "carries", ["another"]), "not those of the header"),
    (_field(1, "kind", "verdict"), "upgrade hansard"),
    (_field(1, "version", 2), "its body says version 1"),
    (_field(1, "version", 0), "is not a version"),
    (_field(1, "body", "[]"), "its body is not a commit"),
    (_field(1, "body", ""), "its body is not a commit"),
    (_field(1, "body", "[" * 100_000 + "]" * 100_000), "its body is not a commit"),
    (_field(1, "stream", {"type": "life", "run": ""}), "give a non-empty text"),
    (_field(1, "stream", {"type": "life", "run": "a\nb"}), "control characters"),
    (_field(1, "stream", {"type": "life", "run": "x" * 1_001}), "at most 1000 characters"),
    (_field(1, "stream", {"type": "lasting", "kind": "role", "id": "x"}), "only 'conversation'"),
    (_field(1, "stream", {"type": "lasting", "kind": "run", "id": "x"}), "only 'conversation'"),
    (_field(1, "origin", {"log": "A B", "position": 1, "at": "x"}), "workspace name"),
    (_field(1, "origin", {"log": "a", "position": 0, "at": AT}), "origin name"),
    (_field(1, "origin", {"log": "a", "position": 2**63, "at": AT}), "origin name"),
    (_field(1, "origin", {"log": "a", "position": 1, "at": "2026-01-01"}), "origin name"),
    (_field(1, "origin", {"log": "a", "position": 1, "at": AT.replace("01", "99")}), "origin name"),
    (_field(-1, "commits", 3), "it counts 3 commits"),
    (_in_body(1, events=[]), "its commit has no events"),
    (
        _in_body(1, tx={"id": "t", "index": 1, "count": 2}),
        "commit 1 of 2 of transaction t without the first",
    ),
    (_in_body(1, tx={"id": "t", "index": 0, "count": 9}), "has 1 of its 9 commits"),
    (_in_body(1, tx={"id": "t", "index": 0, "count": 9_999}), "has 9999 commits"),
    (_in_body(-2, stream={"type": "life", "run": "other"}), "its body says stream"),
    (_without("life"), "without the first"),
    (_without("agent", 1), "is where"),
    (_data("{"), "is not a commit"),
    (_data("[" * 100_000 + "]" * 100_000), "is not a commit"),
    (_data('{"$blob": {"sha256": "%s", "size": 9}}' % ("0" * 64)), "is not in the file"),
    (_data('"%s"' % ("x" * 300_000)), "the limit is 262,144"),
]


@pytest.mark.fast(cases=10, slow=4)
@pytest.mark.parametrize(("change", "reason"), FORGED)
def test_what_does_not_hold_together_is_refused(home, zoo, workspace, tmp_path, change, reason):
    """Right digests are not enough: an inconsistent record is refused."""
    data = forged(exported(home, "zoo", zoo.runs["settled"]), change)
    result = bring_in(home, workspace, tmp_path / "x.jsonl", data)
    assert len(result.bads) == 1
    assert reason in result.bads[0].reason
    assert log_of(home, workspace) == []


def _swap(lines):
    one, two = (line for line in lines if line["kind"] == "blob")
    one["data"], two["data"] = two["data"], one["data"]


def _half(lines):
    del lines[[n for n, line in enumerate(lines) if line["kind"] == "blob"][1]]


def _unnamed(lines):
    last = [line for line in lines if line["kind"] == "blob"][-1]
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    lines.insert(-1, {**last, "sha256": empty, "size": 0, "part": 0, "parts": 1, "data": ""})
    lines[-1]["blobs"] += 1


def _gone(lines):
    lines[:] = [line for line in lines if line["kind"] != "blob"]
    lines[-1]["blobs"] = 0


def _claimed(size):
    def change(lines):
        for line in lines:
            if line["kind"] == "blob":
                line["size"] = size

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_swap, "have another hash"),
        (_half, "is not whole"),
        (_unnamed, "belongs to no commit"),
        (_gone, "named by a commit and is not in the file"),
        (_claimed(3), "have another hash"),
        (_claimed(2**40), "the limit is"),
    ],
)
def test_blobs_that_are_not_what_they_say(home, zoo: Zoo, workspace, tmp_path, change, reason):
    """Blobs with reordered, missing, resized or unreferenced parts are refused."""
    data = forged(exported(home, "zoo", zoo.runs["retried"]), change)
    result = bring_in(home, workspace, tmp_path / "x.jsonl", data)
    assert len(result.bads) == 1
    assert reason in result.bads[0].reason
    assert log_of(home, workspace) == []


def test_sealing_again_changes_nothing(home, zoo: Zoo):
    """Unchanged lines, sealed again as the tests above do, equal the export."""
    for kind in KINDS:
        data = exported(home, "zoo", zoo.runs[kind])
        assert sealed(data.splitlines()) == data


@pytest.mark.parametrize("agent", ["sender", "nobody"])
def test_an_agent_has_one_role(home, zoo: Zoo, workspace, tmp_path, agent):
    """A second role for an agent of the same run is refused, whether or not it joined there."""

    def change(lines):
        last = lines[_of(lines, "agent")]
        body = json.loads(last["body"])
        body.pop("tx", None)
        for role in ("sender", "another") if agent == "nobody" else ("another",):
            stream = {**last["stream"], "role": role, "agent": agent}
            lines.insert(-1, {**last, "stream": stream, "body": json.dumps(body)})
            lines[-1]["commits"] += 1

    result = bring_in(
        home,
        workspace,
        tmp_path / "x.jsonl",
        forged(exported(home, "zoo", zoo.runs["settled"]), change),
    )
    assert f"agent '{agent}' has role 'sender' and 'another'" in result.bads[0].reason
    assert log_of(home, workspace) == []


# ---------------------------------------------------------------- files that are no export at all


@pytest.mark.real
async def test_the_json_test_suite_as_files(home, workspace, tmp_path, real_data):
    """Each file of the JSON test suite is one bad record, and nothing is imported."""
    files = sorted((real_data / "json-adversarial").rglob("*.json"))
    assert len(files) > 100
    opened = await open_workspace(settings.load(data_dir=home, workspace=workspace))
    try:
        for file in files:
            result = await bring(opened, file)
            assert len(result.bads) >= 1, file
            assert {bad.file for bad in result.bads} == {str(file)}
        assert await opened.log.head() == 0
    finally:
        await opened.close()


@pytest.mark.slow
def test_a_line_of_100_mb_is_refused_in_flat_memory(home, zoo: Zoo, workspace, tmp_path):
    """A long line is reported by its size and skipped in pieces; the next section is imported."""
    path = tmp_path / "x.jsonl"
    good = exported(home, "zoo", zoo.runs["settled"])
    with path.open("wb") as file:
        size = file.write(b'{"kind":"hansard-events","n":0,"format":1,"runs":["')
        for _ in range(100):
            size += file.write(b"x" * 1_000_000)
        size += file.write(b'"]}\n')
        file.write(good)
    done = measured(home, workspace, "import", "events", path)
    [message] = done.messages
    assert message.startswith(f"{path}:1: the line has {size:,} bytes, and a line of an export has")
    assert f"{LINE_BYTES_MAX:,}" in message
    assert done.out.startswith("1 run: 7 commits, 7 of them new")
    assert done.peak_bytes < PEAK_BYTES_MAX


def test_a_line_nested_100_000_deep(home, workspace, tmp_path):
    """Deep nesting is refused with a reason, also in a line with a right digest."""
    deep = "[" * 100_000 + "]" * 100_000
    for data in (
        deep.encode() + b"\n",
        b'{"kind":"hansard-events","n":0,"format":' + deep.encode() + b"}\n",
    ):
        result = bring_in(home, workspace, tmp_path / "x.jsonl", data)
        assert len(result.bads) == 1
        assert "not a line of 'hansard export'" in result.bads[0].reason
    whole = b'{"data":%b,"kind":"commit","n":0}'
    result = bring_in(home, workspace, tmp_path / "x.jsonl", _seal(whole % deep.encode()))
    assert "nested too deep" in result.bads[0].reason
    assert log_of(home, workspace) == []


def _seal(line: bytes) -> bytes:
    head = line[:-1]
    return head + b',"digest":"%b"}\n' % hashlib.sha256(head).hexdigest()[:32].encode()


@pytest.mark.thorough(quick="test_the_json_test_suite_as_files")
@pytest.mark.real
@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.thorough)])
async def test_the_json_test_suite_as_event_data(home, zoo, workspace, tmp_path, real_data, step):
    """Valid JSON of the suite as event data is imported byte-equal, and invalid refused."""
    source = await asyncio.to_thread(exported, home, "zoo", zoo.runs["settled"])
    files = sorted((real_data / "json-adversarial").rglob("*.json"))
    free = 0
    for number, file in enumerate(files[::step]):
        try:
            text = file.read_bytes().decode()
        except UnicodeDecodeError:
            continue  # a line of an export is UTF-8: seen by its bytes in the test above
        data = forged(source, _data(text))
        path = tmp_path / f"{number}.jsonl"
        path.write_bytes(data)
        # what was refused left a workspace empty, so that it is there for the next one
        opened = await open_workspace(settings.load(data_dir=home, workspace=f"{workspace}-{free}"))
        try:
            result = await bring(opened, path)
            head = await opened.log.head()
            if file.name.startswith("y_"):
                assert result.bads == [], file
                assert text.encode() in (await opened.log.at(head)).body
            if file.name.startswith("n_"):
                assert len(result.bads) == 1, file
            assert head == (0 if result.bads else result.tally.commits), file
            free += head > 0
        finally:
            await opened.close()
