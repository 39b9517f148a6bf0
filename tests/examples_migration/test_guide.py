"""The steps of the guide are small, and it quotes the error that is raised."""

import difflib
import itertools
import re
from pathlib import Path

import pytest

from tests.examples_migration.support import STEPS, Desk

GUIDE = Path(__file__).parents[2] / "docs" / "migrating.md"
RESUMED = STEPS[2]
CHANGED_LINES_MAX = 30
"""Largest number of lines that a step adds and removes, so that a reader sees it at a glance."""


def test_each_step_is_small():
    """Each step changes few lines of the previous one."""
    for before, after in itertools.pairwise(STEPS):
        texts = [path.read_text(encoding="utf-8").splitlines() for path in (before, after)]
        lines = [line for line in difflib.ndiff(texts[0], texts[1]) if line[:2] in ("+ ", "- ")]
        assert 0 < len(lines) <= CHANGED_LINES_MAX, after.name


@pytest.mark.thorough
def test_the_error_that_the_guide_quotes_is_the_one_that_comes(tmp_path):
    """The guide quotes the error of step 2 after a kill while it sent."""
    desk = Desk(tmp_path, tmp_path / "data", "17")
    desk.start(RESUMED, "call send")
    lines = desk.start(RESUMED).err.splitlines()
    [error] = [line for line in lines if line.startswith("hansard.agents.errors.InDoubt: ")]
    text = GUIDE.read_text(encoding="utf-8")
    assert re.sub(r" --data-dir \S+", "", error) in " ".join(text.split())
