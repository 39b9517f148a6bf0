"""Every example says how it is used."""

import ast
import os
import runpy
import shutil
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

import hansard
from tests.cli.support import environment
from tests.examples.support import EXAMPLES, PROGRAM_S_MAX
from tests.faults._warm import python
from tests.notebooks.support import CellResult, Notebook

SCRIPTS = sorted(EXAMPLES.glob("*/*.py"))
NEEDS = {"pipeline.py": (), "team.py": ("word", "boss"), "desk.py": ("no-such.txt",)}
"""Programs that fail with these arguments: missing ones, or wrong ones."""

STEPS = [path.name for path in SCRIPTS if path.parent.name == "migration"]
"""Programs without arguments, since their ticket has a default."""


WRONG = [
    *[(script, ()) for script in NEEDS],
    *NEEDS.items(),
    *[(script, ("no-number",)) for script in STEPS],
    *[(script, ("1", "2")) for script in STEPS],
]


def _path(script: str) -> Path:
    [path] = [each for each in SCRIPTS if each.name == script]
    return path


@pytest.mark.parametrize(("script", "arguments"), WRONG)
def test_wrong_arguments_are_answered_with_the_usage(
    script, arguments, tmp_path, monkeypatch, capsys
):
    """Wrong arguments give exit code 2 and nothing on stdout, without a traceback."""
    path = str(_path(script))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [path, *arguments])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(path, run_name="__main__")
    output = capsys.readouterr()
    assert (left.value.code, output.out) == (2, "")
    assert output.err.startswith(f"usage: {script}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_no_example_takes_an_argument_that_may_not_be_there(path: Path) -> None:
    """Every argument is read by argparse or has a default, so none can cause a traceback."""
    source = path.read_text("utf-8")
    bare = [
        ast.unparse(node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "sys.argv"
    ]
    assert not bare or "if len(sys.argv) > 1 else" in source


FOLDER = EXAMPLES / "analysis"
BOOK = nbformat.read(FOLDER / "analysis.ipynb", as_version=4)
CELLS = [cell.source for cell in BOOK.cells if cell.cell_type == "code"]


def test_the_notebook_is_kept_without_what_it_showed() -> None:
    """The notebook is stored without outputs and execution counts."""
    for cell in BOOK.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.thorough(quick="notebooks/test_notebooks.py::test_a_session_is_open_over_the_cells")
@pytest.mark.timeout(180)
def test_the_notebook_runs_and_shows_what_it_says(tmp_path, data_dir, workspace):
    """The notebook's cells run in order and show the documented results."""
    for name in ("analysis", "prompts", "trading"):
        shutil.copytree(EXAMPLES / name, tmp_path / name)
    with Notebook(tmp_path / "analysis", data_dir, workspace) as book:
        shown: dict[str, CellResult] = {}
        for cell in CELLS:
            result = book.run(cell)
            assert not result.error, result.traceback
            assert not result.warned, result.warned
            shown[cell] = result

    def of(part: str) -> CellResult:
        [result] = [each for cell, each in shown.items() if part in cell]
        return result

    compared = of('record.experiments.compare("search")').html
    assert "Experiment search" in compared
    assert "rarity against count: better" in compared
    assert "better" in of("pd.DataFrame(rows)").html
    assert "by_question" in of('tables={"asked"').html
    assert "<td>rarity</td>" in of('tables={"asked"').html
    assert "Checked, nothing found" in of("await record.audit()").html
    assert "selected would fail" in of("moved = ").html
    assert "trade-1" in of("moved.found").html
    assert "2 decisions of run trade-1" in of('record.why("trade-1")').html
    assert "Alternatives" in of('decisions.rows[0]["decision"]').html
    assert "order" in of("trail('trade-1')").html


# ------------------------------------------------------------ a conversation that goes on


PROGRAM = EXAMPLES / "reconnect" / "assistant.py"
THIRD = """welcome back, ada: 9 messages are in the window
summed up 4 of them: Books: *Emma*, *Persuasion*.
ada: which ones did I name?
assistant: So far: Silas Marner, Middlemarch, Persuasion, Emma.
the session is over; start again to go on
"""


def _started(data_dir: Path, workspace: str, *texts: str) -> str:
    done = subprocess.run(
        [python(), str(PROGRAM), "ada", *texts],
        env=environment(data_dir, HANSARD_WORKSPACE=workspace),
        check=True,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S_MAX,
    )
    return done.stdout


def _until_timeout(data_dir: Path, workspace: str, *lines: str) -> str:
    """Return its output for a user who types lines and then is silent, without hanging up."""
    ours, theirs = os.pipe()
    with subprocess.Popen(
        [python(), str(PROGRAM), "ada"],
        env=environment(data_dir, HANSARD_WORKSPACE=workspace),
        stdin=ours,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        os.close(ours)
        os.write(theirs, "".join(f"{line}\n" for line in lines).encode())
        began = time.monotonic()
        output, _ = child.communicate(timeout=PROGRAM_S_MAX)
        assert time.monotonic() - began > 1
    os.close(theirs)
    assert child.returncode == 0
    return output


@pytest.mark.slow
def test_the_conversation_goes_on_after_a_time_out(data_dir: Path, workspace: str):
    """Three processes after a time-out continue the window, with a summary, all in full."""
    first = _until_timeout(
        data_dir, workspace, "I liked *Emma* very much", "and also *Persuasion* I think"
    )
    assert "assistant: So far: Persuasion, Emma.\nnothing was said for 2 s\n" in first
    texts = ("what about *Middlemarch*, is it long?", "and *Silas Marner* perhaps?")
    second = _started(data_dir, workspace, *texts)
    assert second.startswith("welcome back, ada: 5 messages are in the window\n")
    assert "assistant: So far: Silas Marner, Middlemarch, Persuasion, Emma.\n" in second
    assert _started(data_dir, workspace, "which ones did I name?") == THIRD
    with hansard.connect(workspace, data_dir=data_dir) as record:
        conversation = record.conversation("ada")
        [row] = record.sql("SELECT run, messages, stands_for FROM compactions").dicts()
        query = "SELECT words FROM compacted JOIN history ON id = event ORDER BY number"
        words = [one["words"] for one in record.sql(query).dicts()]
    assert (len(conversation.runs), len(conversation.messages), len(conversation.window)) == (
        3,
        11,
        8,
    )
    assert conversation.window[:2] == [
        {"role": "system", "content": "You help with books. Answer in one sentence."},
        {"role": "system", "content": "Books: *Emma*, *Persuasion*."},
    ]
    assert (row["run"], row["messages"]) == (conversation.runs[2], 4)
    assert words == [f"{one['role']}: {one['content']}" for one in conversation.messages[1:5]]
