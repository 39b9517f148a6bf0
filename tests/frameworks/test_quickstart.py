"""`hansard quickstart`: each installed framework's agent is killed and started again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from hansard.ext.frameworks import quickstart
from hansard.ext.frameworks.quickstart import FRAMEWORKS
from tests.cli.support import Call
from tests.faults._warm import python

pytestmark = pytest.mark.later

LINES_MAX = 40
"""Longest agent, in lines: it is to be read at a glance."""


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("name", [name for name, each in FRAMEWORKS.items() if each.version])
def test_an_agent_killed_after_its_mail_sends_a_second_one_only_without_hansard(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Two mails against one, and both versions end with the same answer."""
    monkeypatch.setattr(sys, "executable", python())
    answer = call("quickstart", name, "--dir", tmp_path, "--json")
    assert answer.code == 0, answer.err
    report = json.loads(answer.out)
    assert (report["without"]["mails"], report["recorded"]["mails"]) == (2, 1)
    assert report["without"]["answer"] == report["recorded"]["answer"] == quickstart.DONE
    assert report["recorded"]["requests"] < report["without"]["requests"]
    source = (tmp_path / "recorded" / "agent.py").read_text()
    assert len(source.splitlines()) < LINES_MAX
    compile(source, "agent.py", "exec")


def test_frameworks_are_listed_and_an_unknown_one_is_refused(call: Call, tmp_path: Path) -> None:
    """The list has versions; the refusal names the nearest framework, and writes nothing."""
    listed = call("quickstart", "--list", "--json").lines
    assert {each["framework"] for each in listed} == {*FRAMEWORKS}
    refused = call("quickstart", "pydantic", "--dir", tmp_path / "x")
    assert refused.code == 2
    assert "pydantic-ai" in refused.err
    assert call("quickstart").code == 2
    assert not (tmp_path / "x").exists()
