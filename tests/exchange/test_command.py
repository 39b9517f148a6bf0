"""`hansard export` and `hansard import events`: arguments and output."""

import os
import subprocess
import threading

import pytest

import hansard
from tests.exchange.support import PEAK_BYTES_MAX, Zoo, exported, lines_of, log_of, measured


def test_stdout_is_the_file_alone(home, zoo: Zoo, call):
    """Stderr lists the included runs; --output writes the same bytes."""
    result = call("zoo", "export", zoo.runs["forked"])
    assert result.code == 0
    assert result.out.encode() == exported(home, "zoo", zoo.runs["forked"])
    count = lines_of(result.out.encode())[-1]["commits"]
    summary = f"2 runs, {count} commits, 1 blob; carried along: {zoo.runs['team']}\n"
    assert result.err == summary


def test_a_file_is_there_whole_or_as_it_was(home, zoo: Zoo, call, tmp_path):
    """--output replaces a file at the end; an export that fails leaves it, and no other file."""
    path = tmp_path / "run.jsonl"
    path.write_text("before")
    assert call("zoo", "export", "no-such-run", "-o", path).code != 0
    assert path.read_text() == "before"
    assert call("zoo", "export", zoo.runs["team"], "-o", path).code == 0
    assert path.read_bytes() == exported(home, "zoo", zoo.runs["team"])
    assert [file.name for file in tmp_path.iterdir()] == ["run.jsonl"]


def test_a_link_a_pipe_and_a_device(home, zoo: Zoo, call, tmp_path):
    """A link's target is replaced, a pipe is written to, and a device stays a device."""
    data = exported(home, "zoo", zoo.runs["settled"])
    link, target, pipe = tmp_path / "link", tmp_path / "target", tmp_path / "pipe"
    target.write_text("before")
    link.symlink_to(target)
    assert call("zoo", "export", zoo.runs["settled"], "-o", link).code == 0
    assert link.is_symlink()
    assert target.read_bytes() == data
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    assert call("zoo", "export", zoo.runs["settled"], "-o", pipe).code == 0
    reader.join(timeout=10)
    assert read == [data]
    assert call("zoo", "export", zoo.runs["settled"], "-o", "/dev/null").code == 0
    assert not os.path.isfile("/dev/null")  # noqa: PTH113 -- says what it is about


@pytest.mark.slow
def test_runs_by_prefix_and_last_and_twice(home, zoo: Zoo, call):
    """Ids, unique prefixes and `last` select runs; a run selected twice is exported once."""
    run = zoo.runs["retried"]
    whole = call("zoo", "export", run).out
    assert call("zoo", "export", run[:-1], run).out == whole
    assert lines_of(call("zoo", "export", "last").out.encode())[0]["runs"]
    assert call("zoo", "export", run[:4]).code != 0


@pytest.mark.slow
def test_a_reader_that_stops_is_no_crash(zoo: Zoo, start):
    """A reader that closes the pipe early causes no traceback."""
    out = start("zoo", "export", zoo.runs["retried"])
    head = subprocess.run(["head", "-1"], stdin=out.stdout, capture_output=True, check=True)
    out.stdout.close()
    assert head.stdout.startswith(b'{"kind":"hansard-events",')
    assert out.wait(timeout=170) == 141
    assert b"Traceback" not in out.stderr.read()
    out.stderr.close()


def test_bad_sections_are_reported_and_strict_stops(home, zoo: Zoo, workspace, call, tmp_path):
    """A bad section is reported by file, line and reason with exit code 1; --strict stops there."""
    good, bad = (exported(home, "zoo", zoo.runs[k]) for k in ("settled", "doubt"))
    path = tmp_path / "x.jsonl"
    path.write_bytes(bad.replace(b"sender", b"zender") + good)
    result = call(workspace, "import", "events", path)
    assert (result.code, result.out) == (
        1,
        "1 run: 7 commits, 7 of them new; 1 bad record skipped\n",
    )
    assert result.err == f"{path}:2: the line is damaged: its digest is another; export it again\n"
    strict = call(f"{workspace}-s", "import", "events", path, "--strict", "--json")
    assert (strict.code, strict.lines[0]["line"]) == (1, 2)
    assert strict.lines[-1]["stopped"] is True
    assert log_of(home, f"{workspace}-s") == []
    path.write_bytes(good + bad.replace(b"sender", b"zender") + good)
    [_, summary] = call(f"{workspace}-t", "import", "events", path, "--strict", "--json").lines
    assert (summary["runs"], summary["new"], summary["bad"]) == (1, 7, 1)
    assert len(log_of(home, f"{workspace}-t")) == 7


def test_json_says_what_was_read(home, zoo: Zoo, workspace, call, tmp_path):
    """JSON output also counts messages and calls."""
    path = tmp_path / "x.jsonl"
    assert call("zoo", "export", zoo.runs["team"], "-o", path).code == 0
    [summary] = call(workspace, "import", "events", path, "--json").lines
    count = lines_of(path.read_bytes())[-1]["commits"]
    assert (summary["runs"], summary["blobs"]) == (1, 1)
    assert (summary["messages"], summary["calls"]) == (1, 14)
    assert summary["commits"] == summary["new"] == count == len(log_of(home, workspace))


@pytest.mark.parametrize("what", ["no-such-file", "."])
def test_what_is_no_file(workspace, call, what):
    """A missing file or a directory is reported before anything is done."""
    result = call(workspace, "import", "events", what)
    assert result.code != 0
    assert what in result.err


@pytest.mark.thorough(
    quick="tests/exchange/test_damage.py::test_a_line_of_100_mb_is_refused_in_flat_memory"
)
def test_the_memory_of_an_import_does_not_grow_with_the_file(home, zoo: Zoo, workspace, tmp_path):
    """An import of 80 MB of sections and blobs needs a fraction of that memory."""
    path = tmp_path / "x.jsonl"
    one = exported(home, "zoo", zoo.runs["retried"])
    count = 80_000_000 // len(one) + 1
    with path.open("wb") as file:
        for _ in range(count):
            file.write(one)
    done = measured(home, workspace, "import", "events", path)
    assert done.messages == []
    assert done.out.startswith(f"{count} runs: ")
    assert done.peak_bytes < PEAK_BYTES_MAX


@pytest.mark.thorough
def test_the_memory_of_an_export_is_that_of_a_run(home, workspace, tmp_path):
    """An export of 80 runs of 1 MB each does not hold them together in memory."""
    runs = []
    with hansard.connect(workspace, data_dir=home) as record:
        for number in range(80):
            with record.run("w", agent="a", role="r") as session:
                for n in range(20):
                    session.message("user", f"{number} {n}" + "x" * 50_000)
                runs.append(session.run)
    path = tmp_path / "x.jsonl"
    done = measured(home, workspace, "export", *runs, "--output", path)
    assert done.messages == ["80 runs, 1,920 commits, 0 blobs"]
    assert path.stat().st_size > 80_000_000
    assert done.peak_bytes < PEAK_BYTES_MAX


@pytest.mark.parametrize("format_", ["chat-jsonl", "tau-bench"])
def test_an_export_imported_as_another_format(zoo: Zoo, workspace, call, tmp_path, format_):
    """The error names the right command."""
    path = tmp_path / "x.jsonl"
    assert call("zoo", "export", zoo.runs["settled"], "-o", path).code == 0
    result = call(workspace, "import", format_, path)
    assert result.code != 0
    assert "hansard import events" in result.err
