"""DSPy as a search of `hansard.prompts.optimize`: the real package, in a folder of its own."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.support import environment

pytestmark = pytest.mark.thorough

PROGRAM = Path(__file__).with_name("programs") / "dspy_optimizer.py"
LOCKED = Path(__file__).parents[2] / "requirements" / "dspy.txt"
INSTALLED_S_MAX = 900
REACHED_S_MAX = 120
STOPS = (2, 5, 20)


@pytest.mark.thorough(
    quick="prompts/test_optimizing.py::test_a_search_asks_nothing_twice_and_keeps_to_its_budget"
)
def test_dspy_is_killed_and_gone_on_with(data_dir, workspace, tmp_path, evidence):
    """COPRO killed and resumed asks nothing twice, and reaches the undisturbed result."""
    packages = tmp_path / "packages"
    options = [
        "--quiet",
        "--require-hashes",
        "--requirement",
        str(LOCKED),
        "--target",
        str(packages),
    ]
    install = [sys.executable, "-m", "pip", "install", *options]
    subprocess.run(install, check=True, timeout=INSTALLED_S_MAX)
    env = environment(data_dir, DSPY_CACHEDIR=str(tmp_path / "cache"))
    env["PYTHONPATH"] = os.pathsep.join((env["PYTHONPATH"], str(packages)))

    def start(name: str, stop: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(PROGRAM), str(data_dir), name, str(stop)]
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE)

    def questions(name: str) -> list[str]:
        return (data_dir / f"{name}.asked").read_text().splitlines()

    for stop in STOPS:  # while it is proposed, and while a text is evaluated
        killed, reached = start(workspace, stop), data_dir / f"{workspace}.reached"
        deadline = time.monotonic() + REACHED_S_MAX
        while not reached.exists():
            assert killed.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        killed.kill()
        killed.communicate()
        reached.unlink()
    report = json.loads(start(workspace, 0).communicate()[0])
    assert report == json.loads(start(f"{workspace}-whole", 0).communicate()[0])
    assert report["promoted"]
    texts = {number: text for number, _, text in report["versions"]}
    assert texts[1] == "Solve it.\n"
    assert texts[report["best"]].count("!") >= 3
    assert len(set(texts.values())) == len(texts) > 3
    assert all(parents for number, parents, _ in report["versions"] if number > 1)
    assert questions(workspace) == questions(f"{workspace}-whole")
    scored = [each for each in questions(workspace) if '"evaluate"' in each]
    assert len(set(scored)) == len(scored)
    counts = {"asked": len(questions(workspace)), "evaluated": len(scored), "twice": 0}
    evidence.record("prompts.dspy.kills", kills=len(STOPS), versions=len(texts), **counts)
