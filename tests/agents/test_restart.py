"""Restart of a program: the run that it resumes, and the message after a failure."""

import asyncio
import contextlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hansard
from hansard.errors import Blocked, Fenced, InDoubt, Refused
from tests.cli.support import Call, ended, until
from tests.faults import _warm

pytestmark = pytest.mark.later

PROGRAM = """
import os, signal, sys, time
import hansard

def wait() -> None:
    open("waiting", "w").close()
    time.sleep(60)

@hansard.tool(effects="once")
def pay(name: str, n: int) -> int:
    with open("ledger", "a") as file:
        file.write(f"{name}{n}\\n")
    if os.environ.get("AT") == f"{name}{n}" and os.environ["END"] == "call":
        wait()
    return n

def work(name: str) -> None:
    with hansard.Session() as session:
        print(session.run, flush=True)
        with open("run", "w") as file:
            file.write(session.run)
        for n in range(3):
            pay(name, n)
            if os.environ.get("AT") == f"{name}{n}":
                match os.environ["END"]:
                    case "raise":
                        raise KeyError(name)
                    case "kill":
                        os.kill(os.getpid(), signal.SIGKILL)
                    case "wait":
                        wait()

for name in os.environ.get("NAMES", "a"):
    work(name)
"""

Start = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Start the program in a folder of its own, with arguments and variables."""
    (tmp_path / "pay.py").write_text(PROGRAM)

    def started(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        env = environment(tmp_path) | variables
        return _warm.run(["pay.py", *arguments], cwd=tmp_path, env=env, timeout=60)

    return started


@contextlib.contextmanager
def waiting(folder: Path, **variables: str) -> Iterator[str]:
    """Start a process that waits inside its run, and kill it at the end; yield the run's id."""
    env = environment(folder) | {"AT": "a1", "END": "wait"} | variables
    alive = _warm.start(["pay.py"], folder, env)
    try:
        until((folder / "waiting").exists)
        yield (folder / "run").read_text()
    finally:
        (folder / "waiting").unlink()
        alive.kill()
        alive.communicate()


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a program."""
    return {"HANSARD_DATA_DIR": str(folder / "record"), "PATH": "/usr/bin:/bin"}


def ledger(folder: Path) -> list[str]:
    """Return the effects in the world, in order."""
    return (folder / "ledger").read_text().split()


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("end", ["raise", "kill"])
def test_a_restart_resumes_the_unfinished_run(start: Start, tmp_path: Path, end: str):
    """A bare `Session()` continues the unfinished run and says so; never a completed one."""
    first = start(AT="a1", END=end)
    assert first.returncode != 0
    second = start()
    assert second.stdout == first.stdout
    [line] = [line for line in second.stderr.splitlines() if line.startswith("hansard: resuming")]
    assert first.stdout.strip() in line
    assert "HANSARD_RESUME=0" in line
    assert ledger(tmp_path) == ["a0", "a1", "a2"]
    third = start()
    assert third.stdout != first.stdout
    assert "resuming" not in third.stderr
    assert ledger(tmp_path)[3:] == ["a0", "a1", "a2"]


@pytest.mark.slow
def test_only_the_same_start_of_the_program_resumes(start: Start):
    """Other arguments or `HANSARD_RESUME=0` begin a new run; the second session has its own."""
    failed = start(NAMES="ab", AT="b1", END="raise").stdout.split()
    assert start("other").stdout.strip() not in failed
    again = start(NAMES="ab").stdout.split()
    assert again[0] not in failed
    assert again[1] == failed[1]
    failed = start(AT="a1", END="raise").stdout.split()
    chosen = start(HANSARD_RESUME="0", AT="a1", END="raise").stdout.split()
    assert chosen != failed
    assert start().stdout.split() == chosen
    assert start().stdout.split() not in (failed, chosen)


@pytest.mark.thorough(quick="test_a_killed_process_is_not_at_work")
def test_a_new_run_names_the_one_that_stays_open(start: Start):
    """After a kill, `HANSARD_RESUME=0` names the open run, and how to resume or end it."""
    left = start(AT="a1", END="kill").stdout.strip()
    begun = start(HANSARD_RESUME="0")
    assert begun.stdout.strip() != left
    assert f"run {left}, which this program left unfinished, stays open" in begun.stderr
    assert f"run resume {left} -- COMMAND" in begun.stderr
    assert f"run finish {left} --failed REASON" in begun.stderr


@pytest.mark.slow
def test_a_killed_process_is_not_at_work(start: Start, tmp_path: Path, call: Call):
    """After a kill the commands report that no process works on the run, and how to end it."""
    at = ("--data-dir", tmp_path / "record", "-w", "default")
    with waiting(tmp_path, END="call") as run:
        [listed] = call(*at, "runs", "--json").lines
        assert listed["gone"] == []
        assert (listed["under_way_steps"], listed["in_doubt_steps"]) == (1, 0)
        [finding, *_] = call(*at, "audit", "--kind", "intents", "--json").lines
        assert (finding["what"], finding["severity"]) == ("under way", "low")
        assert "no outcome: its process is at work" in finding["fact"]
        assert "no process" not in call(*at, "run", "show", run).out
    [listed] = call(*at, "runs", "--json").lines
    assert listed["gone"] == listed["at_work"] == ["agent"]
    assert (listed["under_way_steps"], listed["in_doubt_steps"]) == (0, 1)
    [finding, *_] = call(*at, "audit", "--kind", "intents", "--json").lines
    assert (finding["what"], finding["severity"]) == ("in doubt", "high")
    assert "no outcome: its process has ended" in finding["fact"]
    assert finding["next"].startswith(f"hansard run settle {run}")
    assert "agent (gone)" in call(*at, "runs").out
    shown = call(*at, "run", "show", run).out
    assert "no process of agent (last event 2" in shown
    assert "Z); resume it, or end it: hansard run finish " in shown
    assert f"hansard run finish {run} [--failed REASON]" in shown
    ended = call(*at, "run", "finish", run, "--failed", "its machine was switched off")
    assert ended.code == 0, ended.err
    assert f"run {run} is ended as failed" in ended.out
    shown = call(*at, "run", "show", run).out
    assert "its machine was switched off" in shown
    assert "at work" not in shown
    both = call(*at, "run", "finish", run, "--failed", "x", "--reason", "y")
    assert both.code == 2
    assert "failed: a reason is given beside it" in both.err


@pytest.mark.slow
def test_the_run_of_a_live_process_is_left_alone(start: Start, tmp_path: Path):
    """A second process of the same program begins a run of its own while the first one lives."""
    with waiting(tmp_path) as run:
        second = start()
        assert second.stdout.strip() != run
        assert f"run {run} of this program is at work in process " in second.stderr
        assert "this start begins a run of its own" in second.stderr
    assert start().stdout.strip() == run


@pytest.mark.slow
def test_a_named_run_is_not_taken_from_a_live_process(start: Start, tmp_path: Path, call: Call):
    """A second start of it is refused and names the process, also by a record; a kill frees it."""
    at = ("--data-dir", tmp_path / "record", "-w", "default")
    with waiting(tmp_path, HANSARD_RUN="invoice") as run:
        assert run == "invoice"
        second = start(HANSARD_RUN="invoice")
        assert second.returncode != 0
        assert "agent 'agent' of run invoice is at work in process " in second.stderr
        assert "Wait for its end, or end it (kill " in second.stderr
        resumed = call(*at, "run", "resume", run, "--", _warm.python(), tmp_path / "pay.py")
        assert resumed.code != 0
        with hansard.connect(data_dir=tmp_path / "record") as record:
            with pytest.raises(Refused, match="is at work in process"), record.run(run=run):
                pass
            with record.run(run=run, agent="another"):
                pass
            with pytest.raises(Refused, match="is at work in process"):
                record.settle(run, "agent#2", "did_not_happen")
        assert call(*at, "runs", "--json").lines[0]["gone"] == []
    assert call(*at, "runs", "--json").lines[0]["gone"] == ["agent"]
    assert start(HANSARD_RUN="invoice").returncode == 0
    assert ledger(tmp_path) == ["a0", "a1", "a2"]
    assert not list((tmp_path / "record" / "unfinished").rglob("invoice.*"))


def test_a_second_session_of_the_same_process_replaces_the_first(tmp_path: Path):
    """Nothing is refused in one process: the first session is fenced."""
    with hansard.connect(data_dir=tmp_path) as record:
        first = record.open("w", run="r1")
        with record.run(run="r1"):
            pass
        with pytest.raises(Fenced):
            first.close()


@pytest.mark.slow
def test_a_run_that_somebody_finished_is_not_resumed(start: Start, tmp_path: Path):
    """The record decides: a run that was cancelled from outside is over."""
    run = start(AT="a1", END="kill").stdout.strip()
    with hansard.connect(data_dir=tmp_path / "record") as record:
        record.cancel(run, reason="no longer needed")
    assert start().stdout.strip() != run


@pytest.mark.slow
def test_a_run_that_the_record_lost_is_not_begun_again(start: Start, tmp_path: Path):
    """If the run's record is gone a restart stops and names the run, unless HANSARD_RESUME=0."""
    run = start(AT="a1", END="kill").stdout.strip()
    until(lambda: ended(tmp_path / "record"))
    for name in ("nats", "marks", "projections"):
        shutil.rmtree(tmp_path / "record" / name, ignore_errors=True)
    stopped = start()
    assert stopped.returncode != 0
    assert f"run {run}" in stopped.stderr
    assert "would repeat its effects" in stopped.stderr
    assert ledger(tmp_path) == ["a0", "a1"]
    uncaught = subprocess.run(
        [sys.executable, "pay.py"],
        cwd=tmp_path,
        env=environment(tmp_path),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    ).stderr
    places = [line for line in uncaught.splitlines() if line.startswith("  File ")]
    assert places
    assert all("pay.py" in line for line in places)
    assert start(HANSARD_RESUME="0").returncode == 0


def fails(folder: Path) -> BaseException:
    """An exception that a tool raised, and that ended its session's block."""

    @hansard.tool(effects="pure")
    def wrong() -> None:
        raise LookupError("nothing there")

    with (
        pytest.raises(LookupError) as caught,
        hansard.connect(data_dir=folder) as record,
        record.run("w", run="r1", agent="bob", role="r"),
    ):
        wrong()
    return caught.value


def frames(error: BaseException) -> list[str]:
    """Return the names of the functions in a traceback."""
    trace, names = error.__traceback__, []
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    return names


def test_an_error_says_how_to_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It names run, last step and command, with the program's frames; HANSARD_DEBUG=1 shows all."""
    monkeypatch.setattr(sys, "argv", ["digest.py", "--all"])
    error = fails(tmp_path)
    [note] = error.__notes__
    assert note == (
        "hansard: this ended run r1 after bob#1 (wrong). "
        "Resume it: hansard run resume r1 -- python digest.py --all"
    )
    assert frames(error) == ["fails", "wrong"]
    monkeypatch.setenv("HANSARD_DEBUG", "1")
    assert "execute" in frames(fails(tmp_path))


def test_an_uncaught_error_outside_a_session_has_the_programs_frames(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Of an error of connect() or of a record, too, Python reports no frame of the package."""
    with hansard.connect(data_dir=tmp_path) as record:
        try:
            record.state("nope")
        except hansard.errors.NotFound as error:
            sys.excepthook(type(error), error, error.__traceback__)
    shown = capsys.readouterr().err
    assert shown.count('  File "') == 1
    assert "NotFound: run 'nope' was not found" in shown


def test_a_refused_call_is_not_only_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A resume alone meets the same refusal: the note says so."""
    monkeypatch.setattr(sys, "argv", ["mail.py"])

    @hansard.tool(effects="once")
    def send() -> None: ...

    with (
        pytest.raises(Blocked) as caught,
        hansard.connect(data_dir=tmp_path) as record,
        record.run("w", run="r1", agent="bob", role="r", gate=[hansard.deny("send")]),
    ):
        send()
    [note] = caught.value.__notes__
    assert note.endswith(
        "The same call is refused again: act as above first; "
        "then resume it: hansard run resume r1 -- python mail.py"
    )


def test_a_doubt_is_settled_before_the_run_is_resumed(tmp_path, monkeypatch, call: Call):
    """An error that leaves a doubt, and the next start's InDoubt, say to settle first."""
    monkeypatch.setattr(sys, "argv", ["pay.py"])

    @hansard.tool
    def pay() -> None:
        raise asyncio.CancelledError if cancelled else LookupError("no such account")

    def start(run: str) -> BaseException:
        with (
            pytest.raises((LookupError, InDoubt, asyncio.CancelledError)) as caught,
            hansard.connect(data_dir=tmp_path) as record,
            record.run("w", run=run, agent="bob", role="r"),
        ):
            pay()
        return caught.value

    resume = "hansard run resume r1 -- python pay.py"
    cancelled = False
    [note] = start("r1").__notes__
    assert "A call is in doubt; settle it first: hansard " in note
    settle = "run settle r1 bob#1 --happened RESULT or --did-not-happen"
    assert note.endswith(f"{settle}\nThen resume it: {resume}")
    error = start("r1")
    assert isinstance(error, InDoubt)
    assert error.__notes__[-1].endswith(f"Settle bob#1 first, as above; then resume it: {resume}")
    at = ("--data-dir", tmp_path, "-w", "default")
    settled = f"settled; continue with: {resume.rsplit('--', 1)[0]}-- COMMAND"
    assert settled not in call(*at, "run", "show", "r1").out
    assert call(*at, "run", "settle", "r1", "bob#1", "--happened", "null").code == 0
    assert settled in call(*at, "run", "show", "r1").out
    cancelled = True
    start("r2")
    error = start("r2")
    assert isinstance(error, InDoubt)
    assert "(CancelledError)" in str(error)
    assert "CancelledError: )" not in str(error)


def test_a_session_whose_run_went_on_elsewhere_says_so(tmp_path, monkeypatch):
    """A fenced session's error names the command that shows the run, without frames of ours."""
    monkeypatch.setattr(sys, "argv", ["pay.py"])
    with hansard.connect(data_dir=tmp_path) as record:
        with (
            pytest.raises(Fenced) as caught,
            record.run("w", run="r1", agent="bob", role="r") as one,
        ):
            with record.run("w", run="r1", agent="bob", role="r"):
                pass
            one.message("user", "late")
        [note] = caught.value.__notes__
    assert note.endswith("Another process continues the run: hansard run show r1")
    assert caught.value.__cause__ is not None
    assert caught.value.__cause__.__traceback__ is None


def test_the_current_session_is_found(tmp_path: Path):
    """Inside a block it is the block's session; outside it is an error with a remedy."""
    with pytest.raises(hansard.ToolError, match="no session is current"):
        hansard.current_session()
    with (
        hansard.connect(data_dir=tmp_path) as record,
        record.run("w", agent="a", role="r") as session,
    ):
        assert hansard.current_session() is session
        assert hansard.current_session(hansard.Session) is session
        with pytest.raises(hansard.ToolError, match=r"current_session\(hansard.Session\)"):
            hansard.current_session(hansard.AsyncSession)

    async def inside() -> None:
        async with (
            hansard.connect_async(data_dir=tmp_path) as record,
            record.run("w", agent="a", role="r") as session,
        ):
            assert hansard.current_session(hansard.AsyncSession) is session

    asyncio.run(inside())
