"""Every example says how it is used."""

import ast
import runpy
import shutil
import sys
from pathlib import Path

import nbformat
import pytest

from tests.examples.support import EXAMPLES
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
