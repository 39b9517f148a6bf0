"""`hansard search` over real logs: matches, order, position, and refusals."""

import asyncio
import json
import sqlite3
import threading
import time
from pathlib import Path

import msgspec
import pytest

import hansard
from hansard.bus.jetstream.log import RawWorkspace
from hansard.domain.agent import MessageAdded
from hansard.domain.events import Actor
from hansard.domain.ids import AgentStream
from hansard.projections import full_text
from hansard.projections.errors import Held, OtherLog, ProjectionError, Unusable
from hansard.projections.full_text import Index, Question
from hansard.projections.rows import Rows
from hansard.projections.table_files import WriteLock
from tests.cli.planting import commit, options, plant, publish_raw, raw_log
from tests.cli.support import Call
from tests.search.support import brought_up, content, made, place_of, rebuilt, say, silent, unknown

pytestmark = pytest.mark.later

WAIT_S = 60.0


@pytest.mark.thorough(quick="test_filters_are_exact")
def test_a_real_run_is_found_by_its_words(home: Path, workspace: str, call: Call):
    """Arguments, results, messages and decisions, with where they stand and the match marked."""
    run = made(home, workspace)
    result = call("uberweisung", "--json")
    assert result.code == 0
    [hit] = result.lines
    assert (hit["type"], hit["run"], hit["agent"], hit["role"]) == (
        "step.completed.v1",
        run,
        "clerk",
        "support",
    )
    [[begin, end]] = hit["marks"]
    assert hit["snippet"][begin:end] == "Überweisung"
    assert result.err == f"as of position {hit['as_of']}\n"
    types = {line["type"] for line in call("W2378156", "--json").lines}
    assert types == {"message.added.v1", "step.requested.v1", "step.completed.v1"}
    assert [line["type"] for line in call("exchange?", "selected", "--json").lines] == [
        "decision.made.v1"
    ]
    [stored] = [m for m in raw_log(home, workspace) if m.position == hit["position"]]
    assert json.loads(stored.body)["events"][hit["event_index"]]["id"] == hit["event"]


def test_people_see_brackets_and_no_control_characters(home: Path, workspace: str, call: Call):
    """A payload cannot move the cursor; its address and agent are printed above it."""
    run = made(home, workspace)
    result = call("order", "--type", "message.added")
    [head, line] = result.out.splitlines()
    assert f"  message.added.v1  run {run}  clerk (support)" in head
    assert head.partition("  ")[0].count(".") == 1
    assert r"\x1b[31m [order]\x07 #W2378156" in line
    assert not {"\x1b", "\x07"} & set(result.out)


def test_a_large_result_is_found_by_its_reference(home: Path, workspace: str, call: Call):
    """Values in blobs are not searched; the event that names one is found."""
    made(home, workspace)
    assert call("haystack", "--json").lines == []
    [hit] = call("blob", "--json", "--type", "step.completed").lines
    digest = hit["snippet"].split("sha256: ")[1].split(";")[0]
    assert [line["event"] for line in call(digest, "--json").lines] == [hit["event"]]


def test_filters_are_exact(home: Path, workspace: str, call: Call):
    """Run (by prefix), agent and type (with or without version) narrow the matches."""
    say(home, workspace, "apple", "apple pie", run="run-1")
    say(home, workspace, "apple tart", run="run-2")
    everything = call("apple", "--json").lines
    assert len(everything) == 3
    assert {hit["run"] for hit in call("apple", "--run", "run-2", "--json").lines} == {"run-2"}
    assert call("apple", "--run", "run-", "--json").code == 2
    assert call("apple", "--run", "nobody", "--json").code == 2
    assert len(call("apple", "--agent", "ada", "--json").lines) == 3
    assert call("apple", "--agent", "ad", "--json").lines == []
    for type_, count in (
        ("message.added", 3),
        ("message.added.v1", 3),
        ("message", 0),
        ("message.added.v", 0),
        ("%", 0),
        ("*", 0),
    ):
        assert len(call("apple", "--type", type_, "--json").lines) == count, type_


def test_the_best_fit_is_first_and_of_equals_the_newest(home: Path, workspace: str, call: Call):
    """Order is by bm25, then from the newest position; a limit reports further matches."""
    say(home, workspace, "long story " * 40 + "pear", "pear pear", "pear pear")
    hits = call("pear", "--json").lines
    assert [hit["event_index"] for hit in hits] == [3, 2, 1]
    assert [hit["rank"] for hit in hits] == sorted(hit["rank"] for hit in hits)
    first = call("pear", "--json", "--limit", "1")
    assert [hit["event_index"] for hit in first.lines] == [3]
    assert "more than 1 were found" in first.err
    assert len(call("pear", "--json", "--limit", "0").lines) == 3
    assert "more than" not in call("pear", "--json", "--limit", "3").err


def test_unknown_types_are_found_and_broken_messages_stop_nothing(home, workspace, call):
    """An event of a newer version is searched by its data; invalid commits are skipped."""
    publish_raw(home, (f"hansard.{workspace}.run.r.life.7", b"\xff no commit"))
    unknown(home, workspace, "oracle.spoke.v7", b'{"riddle":"four legs at dawn","n":3}')
    unknown(home, workspace, "odd.v1", b'"just a text"', run="r8")
    [hit] = call("legs", "riddle", "--json").lines
    assert (hit["type"], hit["event"]) == ("oracle.spoke.v7", "event-of-tomorrow")
    assert [line["type"] for line in call("just", "--json").lines] == ["odd.v1"]
    assert hit["as_of"] == 3


def test_an_empty_log_has_nothing(home: Path, workspace: str, call: Call):
    """No hits, no error; a workspace that does not exist is one."""
    nothing = call("anything")
    assert (nothing.code, nothing.out) == (0, "")
    assert nothing.err == (
        "nothing was found in the texts of events: payloads over 64 KiB, which are kept apart, and "
        "ids of runs are not searched; a run by its id: 'hansard run show ID'\nas of position 0\n"
    )
    narrow = call("anything", "--agent", "ada", "--type", "decision.made")
    assert "in the texts of events of agent 'ada', type 'decision.made':" in narrow.err
    assert call("anything", "-w", "nowhere").code == 2
    assert not place_of(home, "nowhere").path.exists()


@pytest.mark.fast(cases=6, slow=0)
@pytest.mark.parametrize(
    "words",
    [
        '"',
        "'",
        'a" OR "b',
        "NEAR(a b, 2)",
        "text: x",
        "run:x OR agent:y",
        "a AND",
        "(((",
        "-a",
        "^a *",
        "x'; DROP TABLE events; --",
        "a\x00b",
        "\udcff\udcfe",
        "漢" * 3_000,
        "9" * 9_000,
    ],
)
def test_hostile_words_are_words(home: Path, workspace: str, call: Call, words: str):
    """No input is syntax: it matches or does not, or contains no word."""
    say(home, workspace, "harmless")
    result = call("--json", "--", words)
    assert result.out == ""
    if result.code:
        assert (result.code, "there is no word in" in result.err) == (2, True)
    else:
        assert "nothing was found" in result.err


def test_a_megabyte_is_refused(home: Path, workspace: str, call: Call):
    """Words and queries are bounded, and the error states the bound."""
    say(home, workspace, "harmless")
    for more in ([], ["--query"]):
        result = call("x " * 500_000, *more)
        assert (result.code, result.out) == (2, "")
        assert "at most 10,000" in result.err
    assert "nothing to search for" in call().err


def test_raw_queries_have_operators_and_clear_errors(home: Path, workspace: str, call: Call):
    """`--query` takes FTS5's own syntax; a malformed query is refused with the reason."""
    say(home, workspace, "red apple", "green apple", "red pear")
    indexes = lambda query: {  # noqa: E731 -- a word for what follows
        line["event_index"] for line in call(query, "--query", "--json").lines
    }
    assert indexes("apple NOT green") == {1}
    assert indexes("pea* OR green") == {2, 3}
    assert indexes('"red apple"') == {1}
    for bad in ("apple AND", '"open', "nosuch: apple", "(", "NEAR(apple", "*reads", "apple)"):
        result = call(bad, "--query", "--json")
        assert (result.code, result.out) == (2, ""), bad
        assert "malformed" in result.err or "has no terms" in result.err
    assert "no such column: nosuch" in call("nosuch: apple", "--query").err


def test_a_big_payload_is_found_and_shown_short(home: Path, workspace: str, call: Call):
    """Words at the end of a text of 200 kB, beside one word of 50 kB."""
    say(home, workspace, "word " * 40_000 + "needle", "n" * 50_000 + " thimble")
    [hit] = call("needle", "--json").lines
    assert hit["snippet"].endswith("needle; fingerprint: f; ")
    assert len(hit["snippet"]) < 500
    [hit] = call("thimble", "--json").lines
    [[begin, end]] = hit["marks"]
    assert hit["snippet"][begin:end] == "thimble"
    assert len(hit["snippet"]) < 500


def test_it_goes_on_where_it_stood(home: Path, workspace: str):
    """An index updated in steps equals a rebuild; another update changes nothing."""
    place = place_of(home, workspace)
    reached = 0
    for number in range(4):
        say(home, workspace, f"text {number}", run=f"r{number}")
        reached = brought_up(home, workspace)
        assert reached == (number + 1) * 2
    before = content(place.path)
    assert len(before["rows"]) == 16
    assert brought_up(home, workspace) == reached
    assert content(place.path) == before
    assert rebuilt(home, workspace) == reached
    assert content(place.path) == before
    assert sorted(path.name for path in place.path.parent.glob(f"{workspace}.*")) == [
        f"{workspace}.search.lock",
        f"{workspace}.search.reading",
        f"{workspace}.search.sqlite",
    ]


def test_rows_and_position_are_written_together(home: Path, workspace: str):
    """If the position cannot be written, the rows are not there either; the next try writes
    both.
    """
    say(home, workspace, "apple")
    place = place_of(home, workspace)
    rows = Rows()
    for message in raw_log(home, workspace):
        rows.add(message)
    batch = rows.take()
    assert batch is not None
    place.path.parent.mkdir(parents=True, exist_ok=True)
    index = Index(place.path)

    def refuse(action: int, table: str | None, *_: object) -> int:
        denied = action == sqlite3.SQLITE_UPDATE and table == "progress"
        return sqlite3.SQLITE_DENY if denied else sqlite3.SQLITE_OK

    index._con.set_authorizer(refuse)
    with pytest.raises(ProjectionError, match="cannot be written"):
        index.write(batch, 2)
    index._con.set_authorizer(None)
    assert index.progress.position == 0
    assert content(place.path)["rows"] == []
    for _ in range(2):
        index.write(batch, 2)
        assert index.progress.position == 2
    index.close()
    assert len(content(place.path)["rows"]) == 4


def test_a_reader_sees_one_moment(home: Path, workspace: str):
    """A reader sees no rows written after it opened the file, at any stated position."""
    say(home, workspace, "apple", run="r1")
    brought_up(home, workspace)
    place = place_of(home, workspace)
    reader = Index(place.path, read_only=True)
    say(home, workspace, "apple", run="r2")
    assert brought_up(home, workspace) == 4
    hits = reader.find(Question(words="apple"))
    assert (reader.progress.position, [hit.run for hit in hits]) == (2, ["r1"])
    reader.close()
    now = full_text.ask(place, Question(words="apple"))
    assert now is not None
    assert (now.position, len(now.hits)) == (4, 2)


def test_while_another_indexes_the_answer_is_as_of_then(home: Path, workspace: str, call: Call):
    """While another process indexes, the existing index answers with its position.

    Without an index the error names the process to wait for.
    """
    say(home, workspace, "old", run="r1")
    hold = WriteLock(place_of(home, workspace))
    try:
        nothing = call("old")
        assert (nothing.code, nothing.out) == (2, "")
        assert "projects into" in nothing.err
    finally:
        hold.close()
    assert len(call("old", "--json").lines) == 1
    say(home, workspace, "old news", run="r2")
    hold = WriteLock(place_of(home, workspace))
    try:
        result = call("old", "--json")
        assert [line["run"] for line in result.lines] == ["r1"]
        assert "is indexing" in result.err
        assert result.err.endswith("as of position 2\n")
        assert call("--rebuild").code == 2
    finally:
        hold.close()
    assert {line["run"] for line in call("old", "--json").lines} == {"r1", "r2"}


def test_a_damaged_file_is_reported_and_rebuilt(home: Path, workspace: str, call: Call):
    """The remedy that the error names helps."""
    say(home, workspace, "apple")
    call("apple")
    place = place_of(home, workspace)
    place.path.write_bytes(b"no database" * 1_000)
    result = call("apple")
    assert (result.code, result.out) == (2, "")
    assert "make it again with 'hansard search --rebuild'" in result.err
    again = call("apple", "--rebuild", "--json")
    assert (again.code, len(again.lines)) == (0, 1)
    assert f"made {place.path} up to position 2" in again.err
    con = sqlite3.connect(place.path)
    con.execute("PRAGMA user_version = 99")
    con.close()
    assert "it has schema 99" in call("apple").err
    assert call("--rebuild").code == 0
    assert len(call("apple", "--json").lines) == 1


def test_another_log_is_noticed(home: Path, workspace: str, call: Call):
    """An index of one log is not gone on with from another, be it shorter or longer."""
    say(home, workspace, "apple", run="r1")
    say(home, workspace, "apple", run="r2")
    brought_up(home, workspace)
    for length in (1, 3):
        other = f"o{length}-{workspace}"
        hansard.connect(other, data_dir=home).close()
        for number in range(length):
            say(home, other, "pear", run=f"x{number}")
        with pytest.raises(OtherLog, match="position 4"):
            brought_up(home, other, place_of(home, workspace))
    assert len(call("apple", "--json").lines) == 2


def test_a_rebuild_waits_for_readers(home: Path, workspace: str, monkeypatch: pytest.MonkeyPatch):
    """A rebuild does not replace a file under a reader; it reports an endless one and keeps the
    file.
    """
    say(home, workspace, "apple")
    brought_up(home, workspace)
    place = place_of(home, workspace)
    monkeypatch.setattr(full_text, "READERS_WAIT_S", 0.2)
    before = place.path.stat().st_ino
    with place.reading():
        began_s = time.monotonic()
        with pytest.raises(ProjectionError, match="without a pause"):
            rebuilt(home, workspace)
        assert time.monotonic() - began_s >= 0.2
    assert place.path.stat().st_ino == before
    assert not place.fresh.exists()
    rebuilt(home, workspace)
    assert place.path.stat().st_ino != before


def test_a_search_does_not_wait_for_ever_for_a_rebuild(home, workspace, monkeypatch):
    """A search is refused in time while a stopped process holds the rebuild."""
    say(home, workspace, "apple")
    brought_up(home, workspace)
    place = place_of(home, workspace)
    monkeypatch.setattr(full_text, "READERS_WAIT_S", 0.2)
    with (
        place._alone(),
        pytest.raises(Unusable, match=r"has been replacing it for 0\.2 s"),
        place.reading(),
    ):
        pass
    with place.reading():
        assert place.path.exists()


def test_what_a_killed_writer_left_is_worked_in_before_it_is_replaced(home: Path, workspace: str):
    """A write-ahead log of the old file never meets the new one."""
    say(home, workspace, "apple")
    brought_up(home, workspace)
    place = place_of(home, workspace)
    wal = place.path.with_name(place.path.name + "-wal")
    con = sqlite3.connect(place.path, isolation_level=None)
    con.execute("UPDATE progress SET digest = 'stale'")
    left = wal.read_bytes()
    con.close()
    wal.write_bytes(left)
    assert left
    rebuilt(home, workspace)
    made_anew = content(place.path)
    assert made_anew["progress"][0][1] != "stale"
    assert (made_anew["pages"], len(made_anew["rows"])) == ([("ok",)], 4)


def test_what_a_killed_rebuild_had_made_is_thrown_away_by_the_next(home: Path, workspace: str):
    """The old index is searched meanwhile."""
    say(home, workspace, "apple")
    reached = brought_up(home, workspace)
    place = place_of(home, workspace)
    before = content(place.path)
    place.fresh.write_bytes(b"half an index")
    place.fresh.with_name(place.fresh.name + "-wal").write_bytes(b"half a log")
    assert content(place.path) == before
    assert rebuilt(home, workspace) == reached
    assert content(place.path) == before
    assert [*place.path.parent.glob(f"{place.fresh.name}*")] == []


def test_a_folder_that_cannot_be_made_is_reported(home: Path, workspace: str, tmp_path: Path):
    """The world's fault has the path and the reason."""
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    place = full_text.IndexPlace.of(blocked, workspace)
    with pytest.raises(Unusable, match="cannot be used"):
        full_text.ask(place, Question(words="x"))
    with pytest.raises(Unusable, match="cannot be used"):
        brought_up(home, workspace, place)


def test_another_process_may_not_index_too(home: Path, workspace: str):
    """Only one process may write the index."""
    hold = WriteLock(place_of(home, workspace))
    try:
        with pytest.raises(Held):
            brought_up(home, workspace)
    finally:
        hold.close()
    assert brought_up(home, workspace) == 0


@pytest.mark.parametrize("moment", ["__init__", "close"])
async def test_nobody_takes_the_index_while_a_thread_still_has_it(
    home: Path, workspace: str, monkeypatch: pytest.MonkeyPatch, moment: str
):
    """The index stays taken until its writer's thread is through."""
    place, entered, goes_on = place_of(home, workspace), threading.Event(), threading.Event()
    real = getattr(Index, moment)

    def slowly(*given: object, **more: object) -> None:
        entered.set()
        assert goes_on.wait(WAIT_S)
        real(*given, **more)

    raw = await RawWorkspace.open(options(home), workspace)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(Index, moment, slowly)
            left = asyncio.ensure_future(full_text.bring_up(raw, place, silent))
            assert await asyncio.to_thread(entered.wait, WAIT_S)
            left.cancel()
            await asyncio.wait({left}, timeout=0.05)
            with pytest.raises(Held):
                await full_text.bring_up(raw, place, silent)
            goes_on.set()
            with pytest.raises(asyncio.CancelledError):
                await left
        assert await full_text.bring_up(raw, place, silent) == 0
    finally:
        await raw.close()


def test_json_is_one_object_a_line(home: Path, workspace: str, call: Call):
    """Line ends in payloads break no line."""
    say(home, workspace, "first\nsecond\r\u2028third\x85")
    result = call("second", "--json")
    assert [json.loads(line)["type"] for line in result.out.splitlines()] == ["message.added.v1"]


def test_what_does_not_fit_its_writer_is_not_found(home: Path, workspace: str, call: Call):
    """A message in a foreign stream or name is not found."""

    def lie(number: int) -> MessageAdded:
        text = msgspec.Raw(msgspec.json.encode(f"a lie {number}"))
        return MessageAdded(role="user", content=text, fingerprint="f")

    say(home, workspace, "the truth", run="r1")
    for number, (stream, actor) in enumerate(
        [
            (AgentStream("r1", "writer", "ada"), Actor("eve")),
            (AgentStream("r1", "editor", "ada"), Actor("ada")),
            (AgentStream("r1", "writer", "eve"), Actor("eve")),
        ]
        * 2
    ):
        version = 3 + number // 3 if stream.role == "writer" and stream.agent == "ada" else number
        forged = msgspec.structs.replace(commit(max(version, 1), lie(number)), actor=actor)
        plant(home, workspace, (stream, forged))
        assert call("lie").out == ""
    assert len(call("truth", "--json").lines) == 1
