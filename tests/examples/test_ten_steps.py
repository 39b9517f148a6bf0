"""The ten-step story: the tenth step fails, its path is corrected, and nine are not repeated."""

import os
import pty
import re
import runpy
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import hansard
from tests.agents.terminal import Answer, Person, Terminal
from tests.examples.support import EXAMPLES, PROGRAM_S_MAX, ROOT

pytestmark = pytest.mark.later

STEPS = ["search", "fetch", "clean", "split", "count"]
STEPS += ["rank", "summarise", "review", "page", "publish"]
PLAIN = "@hansard.tool\n"
WRONG, RIGHT = "reprots", "reports"
ANSWER = ("s  stop here", ("n",))


@pytest.fixture
def program(
    tmp_path: Path, data_dir: Path, workspace: str, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Return a copy of the program in a folder of its own, and a workspace for it."""
    path = tmp_path / "digest.py"
    shutil.copyfile(EXAMPLES / "ten_steps" / "digest.py", path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HANSARD_DATA_DIR", str(data_dir))
    monkeypatch.setenv("HANSARD_WORKSPACE", workspace)
    monkeypatch.setattr(sys, "argv", ["digest.py"])
    return path


def edited(program: Path, old: str, new: str) -> None:
    """Correct the source."""
    text = program.read_text("utf-8")
    assert text.count(old) == 1
    program.write_text(text.replace(old, new), "utf-8")


def ran(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the lines that the program printed since the last call."""
    return [line.strip() for line in capsys.readouterr().out.splitlines()]


def steps(workspace: str, data_dir: Path) -> dict[str, hansard.types.Step]:
    """Return the run's steps by tool."""
    with hansard.connect(workspace, data_dir=data_dir) as record:
        recorded = record.state("digest").agents["agent"].steps.values()
        return {step.tool: step for step in recorded}


@pytest.mark.slow
def test_nine_are_answered_and_one_key_has_the_tenth_run(
    program: Path, workspace: str, data_dir: Path, capsys, monkeypatch
):
    """The run stops until the tenth is settled, and the nine others keep record and tokens."""
    with pytest.raises(FileNotFoundError):
        runpy.run_path("digest.py")
    assert ran(capsys) == STEPS
    first = steps(workspace, data_dir)
    edited(program, WRONG, RIGHT)
    with pytest.raises(hansard.InDoubt, match=r"run settle digest agent#10 --happened RESULT"):
        runpy.run_path("digest.py")
    assert ran(capsys) == []
    with hansard.connect(workspace, data_dir=data_dir) as record:
        [stopped] = record.savings("digest")
    assert (stopped.calls, stopped.effects) == (9, 0)  # the tenth was not answered: it stopped
    monkeypatch.setenv("HANSARD_SETTLE", "ask")
    with Terminal(ANSWER) as terminal:
        runpy.run_path("digest.py")
    assert ran(capsys) == ["publish", "published: reports/digest.md"]
    assert "of publish changed since (digest.py:" in terminal.shown
    last = steps(workspace, data_dir)
    assert list(last) == STEPS
    assert [last[name] for name in STEPS[:9]] == [first[name] for name in STEPS[:9]]
    assert sum(last["summarise"].usage.values()) == 1_240
    assert (last["publish"].status, last["publish"].attempt) == ("completed", 2)
    assert "Reviewed: good." in (program.parent / "reports" / "digest.md").read_text("utf-8")


@pytest.mark.parametrize(
    "declared",
    ['@hansard.tool(effects="idempotent")\n', "@hansard.tool(safe_errors=(FileNotFoundError,))\n"],
)
def test_a_word_makes_it_run_through(program: Path, capsys, declared: str):
    """The program runs without a question or warning; a third start finds all ten on record."""
    edited(program, PLAIN, declared)
    with pytest.raises(FileNotFoundError):
        runpy.run_path("digest.py")
    edited(program, WRONG, RIGHT)
    capsys.readouterr()
    runpy.run_path("digest.py")
    assert ran(capsys) == ["publish", "published: reports/digest.md"]
    runpy.run_path("digest.py")
    assert ran(capsys) == ["published: reports/digest.md"]


@pytest.mark.thorough(quick="test_nine_are_answered_and_one_key_has_the_tenth_run")
def test_the_story_prints_what_is_written(program: Path):
    """The page's story is the output of its commands at a terminal, apart from its omissions."""
    text = (ROOT / "examples/ten_steps/README.md").read_text("utf-8")
    [story] = re.findall(r"```text\n(\$ python digest.py\n.*?)```", text, re.DOTALL)
    began, mended, resumed = re.findall(r"^\$ (.*)$", story, re.MULTILINE)
    output = _at_terminal(began, program) + _at_terminal(mended, program)
    output += _at_terminal(resumed, program, ANSWER)
    at = 0
    for line in story.splitlines():
        if not line.startswith("$"):
            expected = line.partition("...")[0]
            assert expected in output[at:], f"{expected!r} is not in {output[at:]}"
            at = output.index(expected, at) + len(expected)


def _at_terminal(command: str, program: Path, *answers: Answer) -> str:
    """Return a command's output at a terminal where a user answers."""
    master, slave = pty.openpty()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    started = subprocess.Popen(
        command.split(),
        cwd=program.parent,
        env=os.environ | {"PATH": path, "NO_COLOR": "1", "TERM": "dumb"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    person = Person(master, *answers)
    person.sit(threading.Event())
    started.wait(PROGRAM_S_MAX)
    os.close(master)
    return person.shown.replace("\r\n", "\n")
