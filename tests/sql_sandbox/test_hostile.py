"""The published corpus of hostile statements: all contained, and the door answers on."""

import contextlib
import hashlib
import os
import re
import resource
import time
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hansard.projections.errors import NotAllowed, QueryFailed, SqlError, TooCostly
from hansard.projections.sql_sandbox.rows import Limits
from hansard.projections.table_files import TableFiles
from tests.sql_sandbox.conftest import RUNS, SECRET, Asker

CORPUS: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("hostile.toml").read_text(encoding="utf-8")
)
LIMITS = Limits(wall_s=20.0, cpu_s=2, memory_mib=256, rows_max=1_000, bytes_max=4 * 2**20)
COSTLY_S = 0.3
"""Seconds of a query that is stopped; other queries are answered on a busy machine, too."""

LATE_S = 5.0
"""For a kill, and a machine that does other things."""

WORKER_MIB_MAX = 1_600
"""Largest resident size of a worker, in MiB: its limits and what Python and Arrow need."""

LEAKS = re.compile(r"root:x:|/root|/home|/etc/|/work|\.venv|site-packages|" + re.escape(SECRET))


def sql_of(entry: dict[str, Any]) -> str:
    """Return the statement; generate long ones by repetition."""
    count = entry.get("repeat", 0)
    pieces = {
        "{open}": "(" * count,
        "{close}": ")" * count,
        "{open_list}": "[" * count,
        "{close_list}": "]" * count,
        "{plus}": "+1" * (count // 2),
        "{nots}": "NOT " * count,
    }
    text = str(entry["sql"])
    for name, piece in pieces.items():
        text = text.replace(name, piece)
    return text


def state(place: TableFiles) -> dict[str, str]:
    """Return every file of the projections with its content."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(place.path.parent.rglob("*"))
        if path.is_file()
    }


def test_the_corpus_is_large_enough():
    """At least sixty statements, no two the same."""
    assert len({entry["sql"] + str(entry.get("repeat")) for entry in CORPUS.values()}) >= 60


@pytest.mark.slow(cases=5)
@pytest.mark.parametrize("name", CORPUS)
def test_a_hostile_statement_is_contained(name: str, asker: Asker, place: TableFiles):
    """A hostile statement ends in bounded time and leaks or changes nothing."""
    entry = CORPUS[name]
    limits = LIMITS
    if entry["outcome"] in {"stopped", "any"}:
        limits = msgspec.structs.replace(LIMITS, wall_s=COSTLY_S)
    sql, before, began_s = sql_of(entry), state(place), time.monotonic()
    try:
        answer = asker.ask(sql, limits)
    except SqlError as error:
        ending, text = ("stopped" if isinstance(error, TooCostly) else "error"), str(error)
    else:
        ending, text = "answer", str(answer.columns) + str(list(answer.tuples()))
        assert len(answer.body) < LIMITS.bytes_max * 2
        assert answer.rows <= LIMITS.rows_max
    assert time.monotonic() - began_s < limits.wall_s + LATE_S
    assert entry["outcome"] in {ending, "any"}, text[:500]
    leaked = LEAKS.search(text.replace(sql, ""))
    quoted = leaked is not None and leaked[0] in sql
    assert leaked is None or quoted, text[:500]
    assert str(place.path.parent) not in text
    assert state(place) == before
    assert not list(Path("/tmp").glob("hansard-stolen*"))  # noqa: S108 -- where the corpus tries to write
    counts = asker.ask("SELECT count(*) AS runs, count(run) FROM runs")
    assert list(counts.tuples()) == [(RUNS, RUNS)]
    peak_mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1_024
    assert peak_mib < WORKER_MIB_MAX


@pytest.mark.slow
def test_what_is_refused_is_named(asker: Asker):
    """A refusal has the fact, value and remedy: the statement's type, and the permitted ones."""
    with pytest.raises(NotAllowed, match=r"give one statement that reads .* CREATE is not allowed"):
        asker.ask("CREATE TABLE t (x INTEGER)")
    with pytest.raises(NotAllowed, match="these are 2"):
        asker.ask("SELECT 1; SELECT 2")
    with pytest.raises(NotAllowed, match=r"has a NUL at character 7"):
        asker.ask("SELECT \0")
    with pytest.raises(QueryFailed, match="Table with name nowhere does not exist"):
        asker.ask("FROM nowhere")
    with pytest.raises(TooCostly, match=r"it may take 0\.2 s") as stopped:
        asker.ask(
            "SELECT count(*) FROM range(1000000) a, range(1000000) b", Limits(wall_s=0.2, cpu_s=9)
        )
    assert stopped.value.limit == "time"


@pytest.mark.thorough(quick="test_what_is_refused_is_named")
@pytest.mark.timeout(600)
def test_the_limit_that_stopped_it_is_named(asker: Asker):
    """The error names the limit: processor time or memory."""
    with pytest.raises(TooCostly) as stopped:
        asker.ask(
            "SELECT sum(hash(a.range + b.range)) FROM range(1000000) a, range(1000000) b",
            Limits(wall_s=500, cpu_s=1),
        )
    assert stopped.value.limit == "cpu"
    with pytest.raises(TooCostly) as stopped:
        asker.ask("SELECT len(list(i)) FROM range(1000000000) t(i)", Limits(memory_mib=64))
    assert stopped.value.limit == "memory"


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="namespaces are Linux's")
def test_a_worker_has_dropped_what_it_does_not_need(asker: Asker, place: TableFiles):
    """A worker has no variable, network, capability, file or descriptor beyond its need."""
    asker.ask("SELECT 1")
    pid = asker.workers()[0]
    proc = Path(f"/proc/{pid}")
    variables = proc.joinpath("environ").read_bytes()
    assert b"HANSARD" not in variables
    assert SECRET.encode() not in variables
    fds = {str(each.readlink()) for each in proc.joinpath("fd").iterdir()}
    allowed = re.compile(r"pipe:|/dev/null|anon_inode:|.*tables\.duckdb(\.wal)?$")
    assert not [each for each in fds if not allowed.match(each)]
    status = proc.joinpath("status").read_text()
    assert "NoNewPrivs:\t1" in status
    limits = proc.joinpath("limits").read_text()
    assert re.search(r"Max file size +0 +0", limits)
    assert re.search(r"Max core file size +0 +0", limits)
    pool = asker.door._pool
    assert pool is not None
    hello = pool._idle[0].hello
    if hello.root:
        assert str(proc.joinpath("root").readlink()) == str(place.published)
        assert re.search(r"CapEff:\t0{16}", status)
    if hello.network:
        lines = proc.joinpath("net", "dev").read_text().splitlines()[2:]
        assert {line.split(":")[0].strip() for line in lines} <= {"lo"}
        assert proc.joinpath("ns/net").readlink() != Path("/proc/self/ns/net").readlink()


@pytest.mark.thorough(
    quick="sql_sandbox/test_asking.py::test_a_question_that_nobody_waits_for_ends"
)
@pytest.mark.long
def test_a_killed_worker_answers_no_more_queries(asker: Asker, rounds):
    """After a stopped query the next one is answered by another worker."""
    limits = msgspec.structs.replace(LIMITS, wall_s=COSTLY_S)
    for _ in range(rounds(2, 5)):
        with contextlib.suppress(SqlError):
            asker.ask(sql_of(CORPUS["lpad"]), limits)
        answer = asker.ask("SELECT count(*) AS runs, count(run) FROM runs")
        assert list(answer.tuples()) == [(RUNS, RUNS)]
