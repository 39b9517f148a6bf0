"""examples/analysis: the notebook, cell by cell in a kernel, as it is opened by a user."""

import shutil
from pathlib import Path

import nbformat
import pytest

from tests.examples.support import EXAMPLES
from tests.notebooks.support import Notebook, Said

FOLDER = EXAMPLES / "analysis"
BOOK = nbformat.read(FOLDER / "analysis.ipynb", as_version=4)
CELLS = [cell.source for cell in BOOK.cells if cell.cell_type == "code"]


def test_the_notebook_is_kept_without_what_it_showed() -> None:
    """No output, and no count of runs: those are of one machine."""
    for cell in BOOK.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.thorough(quick="notebooks/test_notebooks.py::test_a_session_is_open_over_the_cells")
@pytest.mark.timeout(180)
def test_the_notebook_runs_and_shows_what_it_says(
    tmp_path: Path, data_dir: Path, workspace: str
) -> None:
    """Each cell in order: reports are tables, the own file is joined, the decision is found."""
    for name in ("analysis", "prompts", "trading"):
        shutil.copytree(EXAMPLES / name, tmp_path / name)
    with Notebook(tmp_path / "analysis", data_dir, workspace) as book:
        shown: dict[str, Said] = {}
        for cell in CELLS:
            said = book.run(cell)
            assert not said.error, said.traceback
            assert not said.warned, said.warned
            shown[cell] = said

    def of(part: str) -> Said:
        [found] = [said for cell, said in shown.items() if part in cell]
        return found

    compared = of('record.compare("search")').html
    assert "Experiment search" in compared
    assert "rarity against count: better" in compared
    assert "better" in of("pd.DataFrame(rows)").html
    assert "by_question" in of('tables={"asked"').html
    assert "<td>rarity</td>" in of('tables={"asked"').html
    assert "Checked, nothing found" in of("await record.audit()").html
    assert "selected would fail" in of("moved = ").html
    assert "trade-1" in of("moved.found").html
    assert "2 decisions of run trade-1" in of('record.why("trade-1")').html
    assert "What could have been chosen" in of('decisions.rows[0]["decision"]').html
    assert "order" in of("trail('trade-1')").html
