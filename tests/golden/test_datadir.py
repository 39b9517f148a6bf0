"""A data directory that an earlier version wrote is read as it was read then.

The archive holds the broker's files, with the logins of a server on loopback that is long gone, and
`answers.json.xz` what the command line said of them when they were written: what a check finds, the
rows of every table and view, and the states of runs at several points. What is answered today may
say more, and nothing else.
"""

import json
import lzma
from typing import Any

import pytest

from hansard.domain.events import REGISTRY
from tests.golden.datadir import ANSWERS, WORKSPACES, answers, missing, unpacked

pytestmark = pytest.mark.slow

Answers = dict[str, Any]

SINCE = {
    "actions.healed.v1",
    "actions.looked_at.v1",
    "actions.reverted.v1",
    "actions.saved.v1",
    "aggregate.changed.v1",
    "aggregate.followed.v1",
    "context.compacted.v1",
    "experience.confirmed.v1",
    "experience.distilled.v1",
    "experience.healed.v1",
    "experience.installed.v1",
    "experience.published.v1",
    "experience.replayed.v1",
    "experience.retired.v1",
    "import.ended.v1",
    "memory.changed.v1",
    "memory.policy_set.v1",
    "memory.reflected.v1",
    "memory.rejected.v1",
    "prompt.aliased.v1",
    "prompt.feedback_given.v1",
    "prompt.retired.v1",
    "prompt.version_added.v1",
    "reuse.invalidated.v1",
    "reuse.offered.v1",
    "step.withheld.v1",
}
"""Tags that are newer than the archive."""

OTHERWISE = {"experiment_plans"}
"""What is answered otherwise, on purpose: of several metrics that were scored without a plan none
decides any more (`primary_metric`).
"""

OURS = {"event_types", "migrations"}
"""Tables that hold nothing of a record."""


@pytest.fixture(scope="module")
def then() -> Answers:
    """What was answered when the directory was written."""
    told: Answers = json.loads(lzma.decompress(ANSWERS.read_bytes()))
    return told


@pytest.fixture(scope="module")
def now(tmp_path_factory: pytest.TempPathFactory, then: Answers) -> Answers:
    """What is answered today."""
    home = unpacked(tmp_path_factory.mktemp("golden") / "data")
    told: Answers = json.loads(json.dumps(answers(home, then)))
    return told


def test_every_kind_of_event_is_in_it(then: Answers):
    """Each tag that was registered when it was written, and one that no version knows."""
    found = {tag for each in then.values() for tag in each["tags"]}
    assert set(REGISTRY) - found == SINCE
    assert found - set(REGISTRY) == {"run.dreamt.v7"}


@pytest.mark.parametrize("workspace", WORKSPACES)
@pytest.mark.parametrize("part", ["check", "head", "tags", "tables", "states"])
def test_it_is_read_as_it_was(then: Answers, now: Answers, workspace: str, part: str):
    """Nothing that was said is gone or different: findings, rows of tables, states at points. The
    steps of the schema, and which words tell of which event, are the version's, not the record's.
    """
    told = then[workspace][part]
    if part == "tables":
        told = {name: rows for name, rows in told.items() if name not in OURS | OTHERWISE}
    assert told
    assert not list(missing(told, now[workspace][part]))


def test_the_record_is_clean(now: Answers):
    """The recheck of what only public calls wrote finds nothing; the tables made anew are equal."""
    for workspace in ("lab", "copy"):
        assert now[workspace]["check"]["code"] == 0
        assert now[workspace]["check"]["lines"][-1]["wrong"] == 0
    assert now["odd"]["check"]["code"] == 1
    assert now["lab"]["verify"] == 0


def test_what_is_missing_or_different_is_told():
    """And what is new is not."""
    then = {"a": [{"b": 1}], "c": None}
    assert not list(missing(then, {"a": [{"b": 1, "new": 2}], "c": None, "d": 3}))
    assert list(missing(then, {"a": [{"b": 2}]})) == [".a[0].b is 2, and was 1", ".c is gone"]
    assert list(missing({"a": [1]}, {"a": [1, 2]})) == [".a is [1, 2], and was [1]"]
