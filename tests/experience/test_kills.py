"""An attempt killed at any boundary sends its form once or is in doubt, never twice."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard.agents.artifacts import versions
from hansard.agents.artifacts.experiences import write_folder
from hansard.domain.actions import ElementTargets
from hansard.domain.experience import checks as checking
from hansard.domain.experience import distil
from hansard.domain.experience import experience as experiences
from hansard.domain.experience.distil import Demonstration
from hansard.domain.experience.experience import EXPERIENCES
from tests.actions.test_kills import ROOT, RUN_S_MAX, SIGKILLED, Form, browser, form
from tests.experience.doing import Job
from tests.experience.test_learning import SEND, shown
from tests.faults._warm import run

pytestmark = pytest.mark.thorough

__all__ = ["browser", "form"]

PROGRAM = Path(__file__).with_name("doing.py")
WHO = ElementTargets(role="textbox", tag="input", name="Who")


@pytest.fixture
def folder(tmp_path) -> Path:
    """Write the experience of two demonstrations: fill in a name, send the form."""
    doings = [
        Demonstration(
            task=f'Send "{name}".',
            actions=(shown(WHO, "fill", name), shown(SEND)),
            success=True,
            source=name,
        )
        for name in ("Alan", "Grace")
    ]
    [distilled] = distil.distilled(doings)
    made = experiences.made("send", distilled)
    checks = checking.proposed(made.procedure, hosts=("localhost",))
    write_folder(msgspec.structs.replace(made, checks=checks), tmp_path / "send")
    return tmp_path / "send"


def launched(job: Job) -> subprocess.CompletedProcess[str]:
    """Run the program to its end, or to its kill."""
    command = [str(PROGRAM), msgspec.json.encode(job).decode()]
    return run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=RUN_S_MAX)


def boundaries(job: Job, form: Any) -> int:
    """Return the number of boundaries in an undisturbed attempt."""
    done = launched(job)
    assert done.returncode == 0, done.stderr[-2_000:]
    report = json.loads(done.stdout)
    assert report["success"], report
    assert form.sent == [b"who=Ada"]
    count: int = report["boundaries"]
    return count


def killed_and_gone_on(job: Job, form: Any) -> tuple[str, int]:
    """Return the outcome of a doing killed and resumed, and how often the form was sent."""
    form.sent.clear()
    first = launched(job)
    if first.returncode == 0:
        report = json.loads(first.stdout)
        assert report["success"], report
        assert report["boundaries"] < job.kill_at
        assert form.sent == [b"who=Ada"]
        return "whole", 1
    assert first.returncode == SIGKILLED, first.stderr[-2_000:]
    job.kill_at = 0
    again = launched(job)
    assert again.returncode == 0, again.stderr[-2_000:]
    report = json.loads(again.stdout)
    assert len(form.sent) <= 1
    if report["success"]:
        assert form.sent == [b"who=Ada"]
        return "sent", 1
    assert "in doubt" in report["error"] or "InDoubt" in report["error"], report
    return "in doubt", len(form.sent)


TWICE = b"""<!doctype html><form method=post><main><input name=who aria-label=Who></main>
<button type=button>Send</button><button>Send</button></form>"""


class Twice(Form):
    """The form with two buttons that are called so: no recorded way finds the one."""

    def do_GET(self) -> None:  # noqa: N802 -- http.server calls it so
        """Answer with the form."""
        self._answer(TWICE)


def stated(data_dir: Path, workspace: str) -> list[str]:
    """Return the recorded events of the experience, after reading each version."""
    with hansard.connect(workspace, data_dir=data_dir) as record:
        history = record._portal.run(versions.read(record.workspace, EXPERIENCES, "send"))
        for each in history.state.versions:
            assert record.experiences.get("send", each).checks
    return [each.type.split(".")[1] for commit in history.commits for each in commit.commit.events]


def all_killed(
    job: Callable[[int], Job], form: Any, count: int, check: Callable[[int, str], None]
) -> list[tuple[str, int]]:
    """Kill a doing at each boundary until one ends before its boundary; check each outcome."""
    outcomes: list[tuple[str, int]] = []
    for at in range(1, 2 * count):
        outcome = killed_and_gone_on(job(at), form)
        check(at, outcome[0])
        if outcome[0] == "whole":
            return outcomes
        outcomes.append(outcome)
    pytest.fail(f"a doing that has {count} boundaries has more than {len(outcomes)}")


@pytest.mark.thorough(
    quick="tests/actions/test_kills.py::test_a_kill_while_the_form_is_sent_leaves_it_in_doubt"
)
@pytest.mark.timeout(5_400)
def test_a_kill_at_any_boundary_of_a_doing_that_heals_leaves_no_half_of_a_heal(
    browser, form, folder, data_dir, evidence
):
    """Around the model's answer and its click the heal is one whole version or absent."""
    form.RequestHandlerClass = Twice
    job = Job(str(data_dir), "whole", "whole", browser, str(folder), form_of(form), heals=True)
    count = boundaries(job, form)
    assert stated(data_dir, "whole") == ["distilled", "healed", "replayed"]

    def killed(at: int) -> Job:
        arguments = (str(data_dir), f"at-{at}", "killed", browser, str(folder), form_of(form))
        return Job(*arguments, at, heals=True)

    def check_heal(at: int, outcome: str) -> None:
        events = stated(data_dir, f"at-{at}")
        assert events in (["distilled", "healed", "replayed"], ["distilled", "replayed"]), (
            at,
            events,
        )
        assert ("healed" in events) == (outcome != "in doubt"), (at, outcome, events)

    outcomes = [outcome for outcome, _ in all_killed(killed, form, count, check_heal)]
    doubts, kills = outcomes.count("in doubt"), len(outcomes)
    evidence.record("experience.kills.heals", boundaries=kills, in_doubt=doubts, sent_twice=0)
    assert 0 < doubts < kills


def form_of(form: Any) -> str:
    """Return the form's address."""
    return f"http://127.0.0.1:{form.server_port}/"
