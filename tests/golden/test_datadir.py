"""A data directory of an earlier version is read as that version read it.

The archive holds the broker's files, with the logins of a former server on loopback, and
`answers.json.xz` the command line's answers when they were written: the findings of a check, the
rows of every table and view, and the states of runs at several points. Today's answers may contain
more, and differ in nothing else.
"""

import json
import lzma
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest

import hansard
from hansard.bus import slices
from hansard.domain.events import REGISTRY
from tests.golden.datadir import ANSWERS, GONE, WORKSPACE, answers_of, missing, unpacked, verified

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

OTHERWISE = {"experiment_plans", "history", "runs", "assigned_runs", "trial_runs"}
"""Tables that differ on purpose.

No metric is primary among several that were scored without a plan (`primary_metric`), the time of
an import is no time of a run (`started_at`), and a message has no step (`history`): its event names
the step before it in its chain.
"""

OURS = {"event_types", *GONE}
"""Tables without data of a record."""


@pytest.fixture(scope="module")
def then() -> Answers:
    """Return the answers from when the directory was written."""
    recorded: Answers = json.loads(lzma.decompress(ANSWERS.read_bytes()))
    return recorded


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the directory, with a server that stays up."""
    home = unpacked(tmp_path_factory.mktemp("golden") / "data")
    with hansard.connect(WORKSPACE, data_dir=home):
        yield home


@pytest.fixture(scope="module")
def now(home: Path, then: Answers) -> Callable[[str], Answers]:
    """Return a function that gives today's answers about a workspace."""

    @cache
    def answers_about(workspace: str) -> Answers:
        current: Answers = answers_of(home, workspace, then[workspace]["tables"])
        return cast("Answers", json.loads(json.dumps(current)))

    return answers_about


COPY = pytest.param("copy", marks=pytest.mark.thorough)
"""The imported content of `lab`."""


def test_every_kind_of_event_is_in_it(then: Answers):
    """Each tag that was registered when it was written, and one that no version knows."""
    tags = {tag for each in then.values() for tag in each["tags"]}
    streams = [events for each in slices.installed() for events in each.streams.values()]
    core = set(REGISTRY) - {event.tag for events in streams for event in events}
    assert core - tags == SINCE
    assert tags - core == {"run.dreamt.v7"}


@pytest.mark.parametrize("workspace", ["lab", COPY, "odd"])
@pytest.mark.parametrize("part", ["check", "head", "tags", "tables", "states"])
def test_it_is_read_as_it_was(then, now, workspace, part):
    """Findings, rows and states are as before; the schema version may differ."""
    expected = then[workspace][part]
    if part == "tables":
        expected = {name: rows for name, rows in expected.items() if name not in OURS | OTHERWISE}
    assert expected
    assert not list(missing(expected, now(workspace)[part]))


@pytest.mark.parametrize("workspace", ["lab", COPY])
def test_the_record_is_clean(now: Callable[[str], Answers], workspace: str):
    """The recheck of what only public calls wrote finds nothing, that of the odd one does."""
    check = now(workspace)["check"]
    assert check["code"] == 0
    assert check["lines"][-1]["wrong"] == 0
    assert now("odd")["check"]["code"] == 1


@pytest.mark.thorough(quick="test_it_is_read_as_it_was")
def test_rebuilt_tables_are_equal(now: Callable[[str], Answers], home: Path):
    """Tables projected from an earlier version's events equal rebuilt ones."""
    assert now(WORKSPACE)
    assert verified(home) == 0


def test_what_is_missing_or_different_is_reported():
    """Missing and different answers are reported, new ones are not."""
    then = {"a": [{"b": 1}], "c": None}
    assert not list(missing(then, {"a": [{"b": 1, "new": 2}], "c": None, "d": 3}))
    assert list(missing(then, {"a": [{"b": 2}]})) == [".a[0].b is 2, and was 1", ".c is gone"]
    assert list(missing({"a": [1]}, {"a": [1, 2]})) == [".a is [1, 2], and was [1]"]
