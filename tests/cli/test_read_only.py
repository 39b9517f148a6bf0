"""Reading a data directory that is read-only gives equal answers and writes nothing to it."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import hansard
from hansard.broker import private_copy
from tests.cli.support import WORKSPACE, Ran, Runs, ended, environment, make_runs, until

PROGRAM = Path(__file__).parent / "_commands.py"

POWERLESS = ("setpriv", "--bounding-set=-all", "--inh-caps=-all") if os.geteuid() == 0 else ()
"""Command prefix that takes root's capabilities, so that `a-w` holds for root, too."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(POWERLESS) and shutil.which("setpriv") is None,
        reason="root may write whatever it likes: without setpriv (util-linux) none forbids it",
    ),
]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Runs]:
    """Make an unused data directory with runs; return it with its runs."""
    home = tmp_path_factory.mktemp("original") / "data"
    with hansard.connect(WORKSPACE, data_dir=home) as record:
        runs = make_runs(record)
    until(lambda: ended(home))
    return home, runs


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """Return the folder of private copies."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


@pytest.fixture
def copied(original: tuple[Path, Runs], tmp_path: Path) -> Iterator[Path]:
    """Make a read-only copy of it."""
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-a", original[0], copy], check=True)
    subprocess.run(["chmod", "-R", "a-w", copy], check=True)
    yield copy
    subprocess.run(["chmod", "-R", "u+w", copy], check=True)


def commands(home: Path, temporary: Path, requests: Sequence[Sequence[str]]) -> list[Ran]:
    """Run commands in one process with fewer permissions than its user; return their results."""
    done = subprocess.run(
        [*POWERLESS, sys.executable, str(PROGRAM)],
        input="".join(json.dumps(each) + "\n" for each in requests),
        env=environment(home, TMPDIR=str(temporary)),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return [Ran(**json.loads(line)) for line in done.stdout.splitlines()]


def left(temporary: Path) -> list[Path]:
    """Return the existing private copies."""
    return list(temporary.glob(f"{private_copy.PREFIX}*"))


def listed(folder: Path) -> dict[str, tuple[int, int]]:
    """Everything in a folder, with its size and the time of its last change."""
    return {
        str(path.relative_to(folder)): (status.st_size, status.st_mtime_ns)
        for path in (folder, *folder.rglob("*"))
        for status in [path.lstat()]
    }


@pytest.mark.thorough
def test_reading_says_what_the_original_says(original, copied, temporary, tmp_path):
    """Each reading command answers as the original, reports a private copy and removes it."""
    home, runs = original
    queries = [
        ["runs", "--json"],
        ["run", "show", runs.team, "--json"],
        ["run", "trace", runs.team, "--json"],
        ["run", "state", runs.team, "--json"],
        ["sql", "SELECT run, status, steps FROM runs ORDER BY run", "--json"],
        ["why", "Which first?", "--json"],
        ["audit", "--json"],
        ["search", "papers", "--json"],
        ["conversation", "show", "talk", "--json"],
        ["approvals", "--json"],
        ["export", runs.team, "-o", "EXPORT"],
        ["rebuild", "--verify", "--json"],
        ["check", "--json"],
        ["status", "--start", "--json"],
    ]

    def of(folder: Path, name: str) -> list[Ran]:
        exported = str(tmp_path / name)
        return commands(
            folder, temporary, [[exported if w == "EXPORT" else w for w in c] for c in queries]
        )

    before = listed(copied)
    shown = of(copied, "copied.jsonl")
    hint, *_ = shown[0].err.splitlines()
    assert hint.startswith(f"read-only: {str(copied)!r} cannot be written; working on a private co")
    assert str(temporary) in hint
    assert sum("read-only: " in each.err for each in shown) == 1
    assert listed(copied) == before
    until(lambda: not left(temporary))
    true = of(home, "true.jsonl")
    changes = {
        "url",
        "pid",
        "data_dir",
        "seconds",
        "projection",
        "published",
    }  # of the process and the moment
    for command, one, other in zip(queries, shown, true, strict=True):
        assert one.code == other.code, (command, one, other)
        assert _without(one, changes) == _without(other, changes), command
    check = queries.index(["check", "--json"])
    assert shown[check].code == 0, shown[check]
    exported = [(tmp_path / name).read_bytes() for name in ("copied.jsonl", "true.jsonl")]
    assert exported[0] == exported[1]


def _without(ran: Ran, names: set[str]) -> object:
    lines = [json.loads(line) for line in ran.out.splitlines() if line.startswith("{")]
    return [{k: v for k, v in line.items() if k not in names} for line in lines]


def test_nothing_is_written_that_goes_away(original, copied, temporary):
    """Writes are refused with the remedy."""
    _, runs = original
    queries = [
        ["run", "fork", runs.team, "--at", "life@1"],
        ["run", "settle", runs.doubt, "1", "--did-not-happen", "--reason", "I saw it"],
        ["run", "score", runs.team, "quality=1"],
        ["reuse", "invalidate", "--tool", "send", "--reason", "it changed"],
        ["price", "state", "m", "input_tokens=1", "--since", "2026-01-01T00:00:00Z"],
        ["rebuild"],
        ["up"],
    ]
    for command, done in zip(queries, commands(copied, temporary, queries), strict=True):
        assert done.code == 2, (command, done)
        assert f"nothing can be recorded: {str(copied)!r} is not writable" in done.err, command
        assert "copy it to a folder of your own" in done.err
    until(lambda: not left(temporary))


@pytest.mark.thorough(quick="test_nothing_is_written_that_goes_away")
def test_a_program_writes_nothing_that_goes_away(copied: Path, temporary: Path):
    """A program's writes are refused with the remedy; its reads are answered."""
    program = (
        "import hansard\n"
        "with hansard.connect() as record:\n"
        "    assert record.runs()\n"
        "    with record.run('w'):\n"
        "        pass\n"
    )
    alone = subprocess.run(
        [*POWERLESS, sys.executable, "-c", program],
        env=environment(copied, TMPDIR=str(temporary)),
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert f"ReadOnly: nothing can be recorded: {str(copied)!r}" in alone.stderr
    assert "read-only: " in alone.stderr
    until(lambda: not left(temporary))


@pytest.mark.thorough(quick="test_nothing_is_written_that_goes_away")
def test_a_kill_leaves_no_copy(copied: Path, temporary: Path):
    """The server that uses the copy removes it; one without a server goes at the next use."""
    half = temporary / f"{private_copy.PREFIX}half"
    half.mkdir()
    (half / private_copy.LOCK).touch()
    (half / "nats").mkdir()
    mine = temporary / "hansard-mine"
    mine.mkdir()
    [done] = commands(copied, temporary, [["runs", "--json"], ["kill"]])
    assert (done.code, half.exists(), mine.exists()) == (0, False, True)
    until(lambda: not left(temporary))


def test_a_copy_that_does_not_fit_is_not_begun(original, temporary, monkeypatch):
    """The message has the needed and the available space, and the remedy."""
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(temporary))
    monkeypatch.setattr(private_copy, "writable", lambda _folder: False)
    monkeypatch.setattr(private_copy, "ROOM_BYTES_MIN", 2**60)
    with pytest.raises(
        private_copy.NotCopied, match=r"needs [\d,]+ MiB, .* has [\d,]+ MiB free.*TMPDIR"
    ):
        private_copy.readable(original[0], lambda _text: None)
    assert not left(temporary)


@pytest.mark.thorough(quick="damage/test_damage.py::test_damage_is_reported")
def test_a_copy_taken_while_it_is_written_works_or_says_what_is_wrong(tmp_path, temporary):
    """The check reports everything that such a copy lacks; the intact rest is read."""
    home, copy = tmp_path / "data", tmp_path / "copy"
    with hansard.connect(WORKSPACE, data_dir=home) as record:
        program = [sys.executable, "-c", _WRITING]
        with subprocess.Popen(program, env=environment(home), stdout=subprocess.PIPE) as writer:
            try:
                assert writer.stdout is not None
                assert writer.stdout.readline()
                copying = ["cp", "-a", str(home), str(copy)]
                done = subprocess.run(copying, capture_output=True, text=True, check=False)
                # Such a copy lacks files that the broker removed after they were listed.
                assert all("No such file" in line for line in done.stderr.splitlines()), done
            finally:
                writer.kill()
        known = len(record.runs())
    subprocess.run(["chmod", "-R", "a-w", copy], check=True)
    try:
        queries = [["check", "--json"], ["runs", "--json", "--limit", "0"]]
        check, runs = commands(copy, temporary, queries)
    finally:
        subprocess.run(["chmod", "-R", "u+w", copy], check=True)
    if check.code == 0:
        assert 0 < len(runs.lines) <= known
    else:
        assert check.code == 1, check
        assert "lost" in check.out or "gone" in check.out or "ends at" in check.out, check.out


_WRITING = """
import hansard
with hansard.connect() as record:
    for number in range(1_000_000):
        with record.run("w") as session:
            session.message("user", "x" * 1_000)
        if number == 20:
            print("written", flush=True)
"""
