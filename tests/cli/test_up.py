"""`hansard up` as a process: it starts, reports, follows, and leaves nothing behind."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import pytest

import hansard
from hansard.broker.lease import peek
from hansard.bus.portal import portal
from hansard.cli.common import PIPE_CLOSED
from hansard.projections.store import Store
from hansard.projections.table_files import TableFiles, WriteLock
from tests.cli.planting import publish_raw
from tests.cli.support import Call, environment
from tests.faults._warm import python, run

pytestmark = pytest.mark.slow

STOP_S = 60.0
"""Longest wait for a process to end, or for a broker to follow its last user."""


@contextmanager
def up(
    home: Path, *arguments: str, program: str = sys.executable, **env: str
) -> Iterator[subprocess.Popen[str]]:
    """`hansard up` as a child; killed at the end if it is still there. `program` is a Python."""
    process = subprocess.Popen(
        [program, "-m", "hansard", "up", *arguments],
        env=environment(home, **env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ended(pid: int) -> bool:
    """Return whether a process has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z"


def a_run(home: Path, workspace: str) -> str:
    """Return a small run in another process's view of the broker."""
    with hansard.Session("w", agent="a", role="r", workspace=workspace, data_dir=home) as session:
        return session.run


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_up_tells_follows_and_stops_clean(tmp_path: Path, number: signal.Signals):
    """A first line with url, durability and folder; a line a commit; 0 on a signal; no orphan."""
    home = tmp_path / "data"
    with up(home, "--json", "--durability", "relaxed", program=python()) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        broker = first["broker"]
        assert (first["kind"], first["workspace"], first["position"]) == ("up", "lab", 0)
        assert (broker["durability"], broker["data_dir"]) == ("relaxed", str(home))
        assert broker["url"].startswith("nats://127.0.0.1:")
        assert not ended(broker["pid"])
        run = a_run(home, "lab")
        lines: list[dict[str, Any]] = []
        while not lines or "run.completed.v1" not in lines[-1]["events"]:
            lines.append(json.loads(process.stdout.readline()))
        process.send_signal(number)
        assert process.wait(STOP_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert {line["run"] for line in lines} == {run}
    assert [line["position"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[0]["events"] == ["run.started.v1", "run.agent_joined.v1"]
    until = time.monotonic() + STOP_S
    while not ended(broker["pid"]) and time.monotonic() < until:
        time.sleep(0.05)
    assert ended(broker["pid"])
    assert peek(home) is None


@pytest.mark.thorough(quick="test_up_tells_follows_and_stops_clean")
def test_up_joins_a_broker_that_runs_and_speaks_to_people_on_stderr(tmp_path: Path):
    """The shared broker keeps running; stdout stays empty; an invalid body is shown."""
    home, workspace = tmp_path / "data", "lab"
    with hansard.connect("others", data_dir=home):
        a_run(home, workspace)
        info = peek(home)
        assert info is not None
        with up(home, "--workspace", workspace, "--after", "0", program=python()) as process:
            assert process.stderr is not None
            output = ""
            while "run.completed.v1" not in output:
                output += process.stderr.readline()
            publish_raw(home, (f"hansard.{workspace}.run.r.life.7", b"\x1b[31m no commit"))
            while "corrupt" not in output:
                output += process.stderr.readline()
            process.terminate()
            out, rest = process.communicate(timeout=STOP_S)
            assert process.returncode == 0
        assert out == ""
        assert "stopped" in rest
        assert info.url in output
        assert "strict: an acknowledged commit is on disk\n" in output
        assert "agent/r/a@1  agent.session_began.v1" in output
        assert "\x1b" not in output
        assert not ended(info.server_pid)


def lines_until(process: subprocess.Popen[str], kind: str, many: int = 1) -> list[dict[str, Any]]:
    """Return the next lines on stdout, up to so many of a kind."""
    assert process.stdout is not None
    lines: list[dict[str, Any]] = []
    while sum(line["kind"] == kind for line in lines) < many:
        text = process.stdout.readline()
        assert text, lines
        lines.append(json.loads(text))
    return lines


def writers(path: Path) -> set[int]:
    """Return the processes that have a database open."""
    pids: set[int] = set()
    for each in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # it was closed, or is another user's
            if each.readlink() == path:
                pids.add(int(each.parts[2]))
    return pids


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_second_one_takes_the_projecting_over(tmp_path: Path, number: signal.Signals):
    """It projects once the first has ended, and says so; two never have the tables open."""
    home = tmp_path / "data"
    path = TableFiles.of(home, "lab").path
    with up(home, "--json", "--durability", "relaxed", program=python()) as first:
        lines_until(first, "up")
        a_run(home, "lab")
        one = reached(home, "lab", 4)
        with up(home, "--json", program=python()) as second:
            [waiting] = [x for x in lines_until(second, "projector") if x["kind"] == "projector"]
            assert f"process {one} already projects" in waiting["fact"]
            a_run(home, "lab")
            assert reached(home, "lab", 8) == one
            assert writers(path) == {one}
            os.kill(one, number)
            first.communicate(timeout=STOP_S)
            taken = lines_until(second, "projector")[-1]
            assert f"process {one} projects into {str(path)!r} no more" in taken["fact"]
            a_run(home, "lab")
            assert reached(home, "lab", 12) != one
            second.terminate()
            assert second.wait(STOP_S) == 0
    store = Store(path, read_only=True)
    assert store.all("SELECT count(*), any_value(status) FROM runs") == [(3, "completed")]
    store.close()


def reached(home: Path, workspace: str, position: int) -> int:
    """Wait until a process has projected this position; return its id."""
    until = time.monotonic() + STOP_S * 3
    place = TableFiles.of(home, workspace)
    while (status := place.status()) is None or status.position != position:
        assert time.monotonic() < until, status
        time.sleep(0.02)
    return status.pid


def fill_up(pipe: IO[str]) -> None:
    """Leave no room for a byte in a pipe that we read from."""
    fd = os.open(f"/proc/self/fd/{pipe.fileno()}", os.O_WRONLY | os.O_NONBLOCK)
    for size in (select.PIPE_BUF, 1):
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(fd, b"\n" * size)
    os.close(fd)


@pytest.mark.thorough(quick="test_up_tells_follows_and_stops_clean")
@pytest.mark.parametrize("arguments", [["--json"], []], ids=["programs", "people"])
def test_a_reader_that_stops_reading_stops_only_what_is_shown(tmp_path: Path, arguments: list[str]):
    """With a full pipe and a killed broker the tables are completed, and a signal ends it."""
    home = tmp_path / "data"
    place = TableFiles.of(home, "lab")
    hold = WriteLock(place)
    with contextlib.closing(hold), up(home, "-w", "lab", *arguments, program=python()) as process:
        pipe = process.stdout if arguments else process.stderr
        assert pipe is not None
        while "takes over when that one is gone" not in pipe.readline():
            pass
        with (
            hansard.connect("lab", data_dir=home) as record,
            record.run("w", agent="a", role="r") as session,
        ):
            log = record.workspace.log
            fill_up(pipe)
            session.checkpoint("what is shown waits")
            hold.close()
            assert reached(home, "lab", portal().run(log.head())) != os.getpid()
            info = peek(home)
            assert info is not None
            os.kill(info.server_pid, signal.SIGKILL)
            session.checkpoint("there is a server again")
            assert reached(home, "lab", portal().run(log.head())) != os.getpid()
        process.terminate()
        assert process.wait(STOP_S) == PIPE_CLOSED
    status = place.status()
    assert status is not None
    assert not status.running


@pytest.mark.thorough
def test_without_a_workspace_all_are_served(tmp_path: Path):
    """Existing and new workspaces are shown, projected, and answered."""
    home = tmp_path / "data"
    with up(home, "--json", "--durability", "relaxed", HANSARD_WORKSPACE="") as process:
        [first, none] = lines_until(process, "workspace")
        assert (first["kind"], first["workspace"], first["workspaces"]) == ("up", None, [])
        assert "no workspace is there yet" in none["fact"]
        assert "hansard up --workspace NAME" in none["fact"]
        a_run(home, "one")
        begun = lines_until(process, "workspace")[-1]
        assert (begun["workspace"], begun["service"]) == ("one", True)
        a_run(home, "two")
        assert lines_until(process, "workspace")[-1]["workspace"] == "two"
        for workspace in ("one", "two"):
            begun_there = a_run(home, workspace)
            shown = lines_until(process, "commit", 4)
            assert {(x["workspace"], x["run"]) for x in shown} == {(workspace, begun_there)}
            assert reached(home, workspace, 8) == process.pid
            command = ["-m", "hansard", "status", "--json"]
            env = environment(home, HANSARD_WORKSPACE=workspace)
            done = run(command, cwd=home, env=env, timeout=STOP_S)
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout.splitlines()[-1])["served"] is True
        process.terminate()
        assert process.wait(STOP_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
    with up(home, HANSARD_WORKSPACE="") as process:
        assert process.stderr is not None
        output = ""
        while "workspace   two, at position 8, answers restricted agents\n" not in output:
            output += process.stderr.readline()
        assert "workspace   one, at position 8, answers restricted agents\n" in output
        third = a_run(home, "one")
        assert process.stderr.readline().startswith("one         9  ")
        assert f"run {third} " in process.stderr.readline()


def test_a_position_is_one_of_a_workspace(call: Call, tmp_path: Path):
    """To show the log from a position on, name its workspace."""
    result = call("up", "--data-dir", str(tmp_path / "data"), "--after", "0", workspace="")
    assert result.code == 2
    assert "--workspace" in result.err


@pytest.mark.thorough
def test_up_works_with_an_outside_broker(home: Path, record):
    """As in compose.yaml, the address has a password, which is not printed; no data directory."""
    info = peek(home)
    assert info is not None
    login = f"{info.admin.user}:{info.admin.password}"
    url = info.url.replace("://", f"://{login}@")
    workspace = f"u{uuid4().hex[:12]}"
    with up(home, "--json", "--workspace", workspace, HANSARD_NATS_URL=url) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        broker = json.loads(line)["broker"]
        assert (broker["embedded"], broker["durability"]) == (False, "unknown")
        assert info.admin.password not in line
        a_run(home, workspace)
        assert json.loads(process.stdout.readline())["position"] == 1
        process.terminate()
        assert process.wait(STOP_S) == 0


def test_up_says_why_it_cannot(call: Call, tmp_path: Path):
    """No server there, a bad folder, a wrong setting: one line, exit code 2, no password."""
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    cases = [
        (["--nats", "nats://me:secret@127.0.0.1:9"], "no NATS server answers at"),
        (["--data-dir", str(blocked)], "cannot be used"),
        (["--workspace", "No Such"], "use 1 to 40 of a-z"),
    ]
    for arguments, fact in cases:
        result = call("up", "--data-dir", str(tmp_path / "data"), *arguments)
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith("error: ")
        assert fact in result.err
        assert "secret" not in result.err
        assert "Traceback" not in result.err
