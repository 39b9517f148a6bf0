"""`hansard up` reflects each day, each run once, also when it is killed in between."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.broker.lease import join
from hansard.bus.commits import revive_all
from hansard.bus.portal import portal
from hansard.domain.memory.files import MemoryReflected, stream_of
from hansard.service.running import Daily, daily
from hansard.settings import Settings
from tests.cli.support import Call, environment
from tests.faults._warm import start

pytestmark = pytest.mark.later

TAKEN_S_MAX = 90.0
FUNCTION = '''
import pathlib, time

def slowly(runs, files):
    """Takes long the first time that it is called."""
    marker = pathlib.Path("begun")
    if not marker.exists():
        marker.touch()
        time.sleep(600)
    return [{"path": "AGENTS.md", "text": f"- {run.run}\\\\n"} for run in runs]
'''


def test_a_time_of_day_is_due_once_a_day():
    """The newest due moment is today's or yesterday's; an invalid time is refused."""
    plan = Daily(3, 30, ("org",))
    noon = datetime(2026, 5, 4, 12, tzinfo=UTC)
    assert plan.last(noon) == datetime(2026, 5, 4, 3, 30, tzinfo=UTC)
    assert plan.last(noon - timedelta(hours=10)) == datetime(2026, 5, 3, 3, 30, tzinfo=UTC)
    assert daily(Settings()) is None
    job = daily(Settings(reflect_at="23:05", reflect_with="m:f", reflect_spaces="org, agent/a"))
    assert str(job) == "daily at 23:05 UTC on org, agent/a, with m:f"
    asking = daily(Settings(reflect_at="23:05", reflect_ask="m:ask"))
    assert asking is not None
    assert str(asking) == "daily at 23:05 UTC on org, asking m:ask"
    assert asking.options == ["--ask", "m:ask"]
    for settings in (
        Settings(reflect_at="03:00", reflect_with="m:f", reflect_ask="m:ask"),
        Settings(reflect_at="24:00"),
        Settings(reflect_at="noon"),
        Settings(reflect_at="03:00", reflect_spaces="nobody"),
    ):
        with pytest.raises((hansard.BadValue, hansard.errors.BadName)):
            daily(settings)


@pytest.fixture
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a separate record, since `hansard up` projects every workspace of a data directory."""
    folder = tmp_path_factory.mktemp("broker")
    with join(folder):
        yield folder


@contextmanager
def up(data_dir: Path, workspace: str, folder: Path) -> Iterator[None]:
    """Run `hansard up` with reflection in the folder of its function."""
    variables = {"HANSARD_REFLECT_AT": "00:00", "HANSARD_REFLECT_WITH": "upkeep:slowly"}
    command = ["-m", "hansard", "up", "--json", "--workspace", workspace]
    process = start(command, folder, environment(data_dir, **variables))
    try:
        yield
    finally:
        os.killpg(process.pid, 9)
        process.communicate()


def until(holds: Any) -> None:
    """Wait for something, for a while."""
    end = time.monotonic() + TAKEN_S_MAX
    while not holds():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.1)


@pytest.mark.thorough(
    quick="memory/upkeep/test_reflect.py::test_the_next_reflection_ends_one_that_was_cut_as_what_it_is"
)
def test_killed_in_between_each_run_is_reflected_on_once(
    data_dir: Path, workspace: str, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
):
    """A reflection killed at work takes each run once; `hansard status` shows the setting."""
    (tmp_path / "upkeep.py").write_text(FUNCTION)
    with hansard.connect(workspace, data_dir=data_dir) as record:
        for number in range(3):
            with record.run("w", agent="ada", run=f"r{number}") as session:
                session.message("user", "hello")

        def taken() -> Counter[str]:
            stored = portal().run(record.workspace.log.read(stream_of("org")))
            events = [event for each in stored for event in revive_all([each.commit])]
            return Counter(
                run for event in events if isinstance(event, MemoryReflected) for run in event.runs
            )

        assert "never: HANSARD_REFLECT_AT" in call("status").out
        with up(data_dir, workspace, tmp_path):
            until((tmp_path / "begun").exists)
        assert taken() == Counter()
        with up(data_dir, workspace, tmp_path):
            until(taken)
        assert taken() == Counter(["r0", "r1", "r2"])
        [listed] = call("memory", "proposals", "org", "--json").lines
        assert listed["standing"] == "open"
        with pytest.raises(hansard.NotFound):
            record.memory().view("AGENTS.md")
    monkeypatch.setenv("HANSARD_REFLECT_AT", "03:00")
    assert "daily at 03:00 UTC on org" in call("status").out
