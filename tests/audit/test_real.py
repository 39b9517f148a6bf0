"""Use cases and others' recorded runs: all findings in them are true."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import hansard
from tests.audit.support import Audited
from tests.examples.support import ROOT, USE_CASES, new_desk

pytestmark = pytest.mark.thorough


def test_the_use_cases_raise_nothing(home: Path, tmp_path_factory: pytest.TempPathFactory):
    """Each as its README runs it: no row in any view, retries included."""
    place = Audited(home, "cases")
    texts = tmp_path_factory.mktemp("texts")
    shutil.copytree(ROOT / "docs", texts / "docs")
    shutil.copyfile(ROOT / "README.md", texts / "README.md")
    for case in USE_CASES:
        done = new_desk(case, tmp_path_factory.mktemp("desk"), texts, home, "cases").start()
        assert done.returncode == 0, done.stderr
    assert place.findings(0.0001) == {}
    assert place.rows("SELECT * FROM retries") == []
    assert place.value("SELECT count(DISTINCT run) FROM steps") == len(USE_CASES)
    output = place.call("audit")
    assert (output.code, output.err) == (0, "")


@pytest.mark.real
def test_published_runs_raise_what_is_true_of_them(home: Path, real_data: Path):
    """tau-bench and tau2-bench: every call is answered, every cost adds up, starts lie close."""
    place = Audited(home, "published")
    files = {
        **{file.stem: ("tau-bench", file) for file in (real_data / "tau-bench").rglob("*.json")},
        **{
            file.stem: ("tau2-bench", file)
            for file in (real_data / "tau2-bench").rglob("airline_*.json")
        },
    }
    assert len(files) == 5
    with hansard.connect("published", data_dir=home):
        for name, (form, file) in files.items():
            _import(place, form, file, name)
    assert place.findings(0.05) == {}
    assert place.rows("SELECT * FROM retries") == []
    assert place.value("SELECT count(*) FROM runs") == 500


@pytest.mark.thorough(
    quick="tests/audit/test_findings.py::test_each_planted_fault_is_reported_by_its_view_alone"
)
@pytest.mark.real
def test_a_forged_publication_is_detected(home: Path, real_data: Path, tmp_path: Path):
    """A changed cost, a missing answer and a late start are found in their runs alone."""
    [file] = (real_data / "tau2-bench").rglob("airline_claude-sonnet*.json")
    publication = json.loads(file.read_bytes())
    runs = publication["simulations"]
    runs[3]["agent_cost"] += 0.01
    answered = next(i for i, m in enumerate(runs[5]["messages"]) if m["role"] == "tool")
    del runs[5]["messages"][answered]
    runs[7]["start_time"], runs[7]["end_time"] = "2025-11-03T12:00:00", "2025-11-03T12:01:00"
    for message in runs[7]["messages"]:
        message["timestamp"] = "2025-11-03T12:00:00"
    forged = tmp_path / "forged.json"
    forged.write_text(json.dumps(publication))
    place = Audited(home, "forged")
    with hansard.connect("forged", data_dir=home):
        _import(place, "tau2-bench", forged, "forged")
    named = _named(place)
    kinds_by_run = {named[run]: kinds for run, kinds in place.findings().items()}
    assert kinds_by_run == {
        runs[3]["id"]: {("gaps", "cost")},
        runs[5]["id"]: {("gaps", "unanswered call"), ("orphan_intents", "ended")},
        runs[7]["id"]: {("odd_selection", "late starts")},
    }


def _import(place: Audited, form: str, file: Path, name: str) -> None:
    done = place.call("import", form, str(file), "--experiment", name, "--arm", name)
    assert done.code in (0, 1), done.err


def _named(place: Audited) -> dict[str, Any]:
    rows = place.rows("SELECT run, labels->>'source_run' AS name FROM runs")
    return {row["run"]: row["name"] for row in rows}
