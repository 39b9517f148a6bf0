"""Figures that tests measure reach docs/evidence.json whole, whichever process measured them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]

CONFTEST = f"""
import sys

sys.path.append({str(ROOT)!r})
pytest_plugins = ["tests.evidence"]
"""

MODULE = """
import pytest

@pytest.mark.parametrize("n", range(6))
def test_measures(evidence, n):
    evidence.record(f"case.{n}", n=n, best=n == 5)
"""

TWICE = """
def test_records_twice(evidence):
    evidence.record("same", n=1)
    evidence.record("same", n=2)
"""


def _session(folder: Path, module: str, *options: str, **env: str) -> int:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_module.py").write_text(module)
    (folder / "pytest.ini").write_text("[pytest]\n")
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "HANSARD_"))
    }
    inherited["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # what is installed has no part in it
    plugins = ("-p", "xdist", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", "-q", *plugins, *options]
    done = subprocess.run(
        command, cwd=folder, env=inherited | env, capture_output=True, check=False, timeout=170
    )
    return done.returncode


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("-n", "0"), id="one process"),
        pytest.param(("-n", "2"), id="two workers", marks=pytest.mark.thorough),
    ],
)
def test_figures_of_all_workers_are_written_sorted(tmp_path, options):
    """The file has every figure once, in order, with rounds, machine and versions."""
    path = tmp_path / "out" / "evidence.json"
    assert _session(tmp_path, MODULE, *options, HANSARD_EVIDENCE=str(path), ROUNDS="7") == 0
    written = json.loads(path.read_text(encoding="utf-8"))
    assert list(written["figures"]) == [f"case.{n}" for n in range(6)]
    assert written["figures"]["case.5"] == {"best": True, "n": 5}
    assert written["rounds"] == 7
    assert written["all_tests_passed"] is True
    assert written["machine"]["cores"] >= 1
    assert written["versions"]["nats-server"].startswith("v2.")


def test_nothing_is_written_unless_requested(tmp_path):
    """An ordinary run leaves the committed figures alone."""
    assert _session(tmp_path, MODULE) == 0
    assert not list(tmp_path.rglob("*.json"))


def test_a_name_is_recorded_once(tmp_path):
    """A second figure under the same name fails the test that gives it."""
    assert _session(tmp_path, TWICE) == 1
