"""Experiences through the service by the role's rules, and the list of data that left a run."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import hansard
from tests.experience import journeys
from tests.service.support import ALL, Served

pytestmark = pytest.mark.slow

SEES = """
[[roles.{role}.sees]]
name = "experiences and runs"
kinds = ["experience.*", "run.*", "agent.*", "step.*"]
"""
ROLES = (
    SEES.format(role="writer")
    + "[roles.clerk]"
    + SEES.format(role="clerk")
    + '[roles.clerk.may]\nkinds = ["experience.*"]\nquery = true\n'
    + '[roles.reader]\nclearance = "secret"'
    + SEES.format(role="reader")
    + "[roles.reader.may]\nquery = true\n"
    + """
[roles.few]
clearance = "secret"
[[roles.few.sees]]
name = "what was distilled alone"
kinds = ["experience.distilled"]
[roles.few.may]
kinds = ["experience.confirmed"]
[roles.masked]
[[roles.masked.sees]]
name = "runs"
kinds = ["run.*", "agent.*", "step.*"]
[[roles.masked.masks]]
name = "what is called with"
kinds = ["step.*"]
fields = ["arguments"]
how = "drop"
[roles.masked.may]
query = true
"""
)


async def _learned(house: Served) -> dict[str, list[str]]:
    """Learn `journey` and the secret `plan`, each from runs done once; return the runs."""
    made = {}
    async with hansard.connect_async(house.workspace, data_dir=house.data_dir) as record:
        for name, label in (("journey", ""), ("plan", "secret")):
            runs = [await journeys.booked(record, city, label=label) for city in ("Ulm", "Bern")]
            await journeys.kept(record, name, runs)
            await journeys.again(record, name, f"{name}-again")
            made[name] = runs
    return made


@pytest.fixture
def house(data_dir: Path, workspace: str, tmp_path: Path) -> Any:
    """Yield a served workspace."""
    with _served(Served(data_dir, workspace, tmp_path)) as made:
        yield made


@contextlib.contextmanager
def _served(made: Served) -> Iterator[Served]:
    made.apply(ALL + ROLES)
    made.begin()
    yield made
    made.end()


@pytest.fixture(scope="module")
def read_only(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Yield a served workspace with both, read only, and the runs that taught them."""
    made = Served(data_dir, f"kept-experiences-{os.getpid()}", tmp_path_factory.mktemp("kept"))
    with _served(made):
        yield made, asyncio.run(_learned(made))


def _why(ask: Callable[[], Any]) -> str:
    with pytest.raises(hansard.NotFound) as error:
        ask()
    return str(error.value)


TABLES = (
    "experiences",
    "experience_versions",
    "experience_replays",
    "experience_retirements",
    "unfinished_replays",
    "check_functions_run",
)


@pytest.mark.thorough(quick="test_what_left_a_run_is_shown_by_what_the_role_sees")
def test_what_is_above_a_roles_clearance_is_no_experience_to_it(house: Served) -> None:
    """A secret experience is in no list, hit, table or error for the uncleared."""
    asyncio.run(_learned(house))
    with house.trusted() as record:
        assert {each.experience for each in record.experiences.list().experiences} == {
            "journey",
            "plan",
        }
        before = [each.change for each in record.experiences.log("plan").changes]
    with house.connect("ada", "clerk") as clerk:
        assert [each.experience for each in clerk.experiences.list().experiences] == ["journey"]
        [hit] = clerk.experiences.find(journeys.TASK).hits
        assert (hit.experience, hit.duplicates, hit.replays) == ("journey", [], 1)
        assert clerk.experiences.find("plan").hits == []
        assert clerk.experiences.get("journey").params(journeys.TASK) == {"journey": "Linz"}
        assert len(clerk.experiences.log("journey").changes) == 3
        for method in (
            clerk.experiences.get,
            clerk.experiences.log,
            clerk.experiences.confirm,
            clerk.experiences.retire,
        ):
            unknown = _why(partial(method, "none"))
            assert _why(partial(method, "plan")) == unknown.replace("none", "plan")
        assert clerk.experiences.retire("journey", reason="no trains")
        assert clerk.experiences.confirm("journey", reason="trains again") == 3
    with house.trusted() as record:
        assert [each.change for each in record.experiences.log("plan").changes] == before
        assert record.experiences.retire("plan", reason="it is over")
    with house.connect("ada", "clerk") as clerk:
        rows = " UNION ALL ".join(f"SELECT to_json(t)::VARCHAR FROM {table} t" for table in TABLES)
        answer = str(clerk.sql(rows).rows)
        assert "journey" in answer
        assert "plan" not in answer
        assert "it is over" not in str(clerk.sql("FROM events").rows)


def test_who_may_not_state_it_confirms_and_retires_nothing(read_only):
    """Confirming needs its kind; reading needs sight of all experiences."""
    house, _ = read_only
    with house.connect("bob", "reader") as reader:
        listed = reader.experiences.list().experiences
        assert [each.experience for each in listed] == ["journey", "plan"]
        assert reader.experiences.get("plan").checks
        for call, needs in (
            (lambda: reader.experiences.confirm("plan"), r"experience\.confirmed"),
            (lambda: reader.experiences.retire("plan"), r"experience\.retired"),
        ):
            with pytest.raises(hansard.errors.RoleRefused, match=needs):
                call()
    with house.connect("eve", "few") as few:
        for name in ("journey", "none"):
            with pytest.raises(
                hansard.errors.RoleRefused, match=r"does not see all of experience\."
            ):
                few.experiences.confirm(name)
            with pytest.raises(
                hansard.errors.RoleRefused, match=r"does not see all of experience\."
            ):
                few.experiences.get(name)
    with house.trusted() as record:
        log = record.experiences.log("journey").changes
        assert [each.change for each in log] == ["distilled", "confirmed", "replayed"]


def test_what_left_a_run_is_shown_by_what_the_role_sees(read_only):
    """A role reads which data left a run as far as it sees the run's calls."""
    house, runs = read_only
    [public, _], [secret, _] = runs["journey"], runs["plan"]
    with house.trusted() as record:
        calls_by_run = {run: record.egress(run) for run in (public, secret)}
        assert [each.tool for each in calls_by_run[secret]] == ["search", "book"]
    with house.connect("bob", "reader") as reader:
        assert {run: reader.egress(run) for run in (public, secret)} == calls_by_run
    with house.connect("ada", "clerk") as clerk:
        assert clerk.egress(public) == calls_by_run[public]
        assert clerk.egress(secret) == []
        assert "was not found" in _why(lambda: clerk.egress("none"))
        assert [each.experience for each in clerk.experiences.list().experiences] == ["journey"]
        assert clerk.experiences.find("plan").hits == []
        for method in (clerk.experiences.get, clerk.experiences.confirm, clerk.experiences.retire):
            unknown = _why(partial(method, "none"))
            assert _why(partial(method, "plan")) == unknown.replace("none", "plan")
    with house.connect("mia", "masked") as masked:
        calls = masked.egress(public)
        assert [each.tool for each in calls] == ["search", "book"]
        assert "Ulm" not in str(calls)
    with (
        house.connect("eve", "few") as few,
        pytest.raises(hansard.errors.RoleRefused, match="query"),
    ):
        few.egress(public)
