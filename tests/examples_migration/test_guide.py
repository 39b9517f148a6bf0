"""The guide shows the steps as they are."""

import itertools
import re

import pytest

from tests.examples_migration import guide
from tests.examples_migration.support import STEPS, Desk

RESUMED = STEPS[2]
CHANGED_LINES_MAX = 30
"""Most lines that a step adds and removes: a reader takes it in at one look."""


def test_the_guide_shows_the_files_as_they_are():
    """A changed step fails here until `python -m tests.examples_migration.guide` was run."""
    text = guide.GUIDE.read_text(encoding="utf-8")
    assert guide.renewed(text) == text
    marks = [(found["kind"], found["files"].split()) for found in guide.MARKED.finditer(text)]
    names = [path.name for path in STEPS]
    pairs = [("diff", list(pair)) for pair in itertools.pairwise(names)]
    assert marks == [("whole", names[:1]), *pairs]


def test_a_block_that_is_out_of_date_is_replaced():
    """What stands under a mark is made again, what stands around it is left."""
    marked = "before\n\n<!-- whole: step0_script.py -->\n"
    old = f"{marked}\n```python\nx = 1\n```\n\nafter\n"
    whole = guide.shown("whole", ["step0_script.py"])
    assert guide.renewed(old) == f"{marked}\n{whole}\nafter\n"
    assert guide.renewed(f"{marked}after\n") == f"{marked}\n{whole}after\n"


def test_each_step_is_small():
    """From one step to the next few lines change."""
    for before, after in itertools.pairwise(STEPS):
        changes = guide.shown("diff", [before.name, after.name]).splitlines()
        lines = [line for line in changes if line[:1] in "+-" and line[:3] not in ("+++", "---")]
        assert 0 < len(lines) <= CHANGED_LINES_MAX, after.name


@pytest.mark.thorough
def test_the_error_that_the_guide_quotes_is_the_one_that_comes(tmp_path):
    """Step 2, killed while it sent: the next start stops with the words that the guide shows."""
    desk = Desk(tmp_path, tmp_path / "data", "17")
    desk.start(RESUMED, "call send")
    said = re.sub(r" --data-dir \S+", "", desk.start(RESUMED).err.splitlines()[-1])
    assert said.startswith("hansard.agents.errors.InDoubt: ")
    text = guide.GUIDE.read_text(encoding="utf-8")
    assert said in " ".join(text.split())
