"""An agent of each framework, killed, resumed and replayed."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

import hansard
from hansard.ext.frameworks import quickstart
from hansard.ext.frameworks.quickstart import FRAMEWORKS
from tests.cli.support import Call
from tests.faults._warm import python
from tests.frameworks.killing import is_killed, lines, program
from tests.integrations.packages import forked_with

pytestmark = pytest.mark.later

AGENTS = {
    "pydantic": ('["sent to ann", "sent to bob"]', ["0", "2", "2"]),
    "microsoft": ("Both have mail.", ["0", "2", "2"]),
    "openai": ("Both have mail. 8", ["0", "1", "2", "2"]),
}
"""Each program: its answer, and its model calls until it was killed and resumed."""

UNKNOWN = "whether its effect happened is not known"


@pytest.fixture
def run(agent: str, data_dir: Path, workspace: str, tmp_path: Path):
    """Return a function that runs an agent's program."""
    play = program(f"{agent}_agent.py", data_dir, workspace, tmp_path)
    if agent != "pydantic":
        yield play
        return
    with forked_with("pydantic_ai.models.function", "hansard.ext.frameworks.pydantic_ai"):
        yield play


@pytest.mark.parametrize(
    ("agent", "client"),
    [
        *((agent, "async") for agent in AGENTS),
        *(
            pytest.param(
                agent,
                "sync",
                marks=pytest.mark.thorough(
                    quick="test_a_killed_run_is_resumed_with_one_effect_and_replayed_with_none"
                ),
            )
            for agent in AGENTS
        ),
    ],
)
def test_a_killed_run_is_resumed_with_one_effect_and_replayed_with_none(
    run, agent: str, client: str, tmp_path: Path
):
    """Killed before the last answer, after two mails of parallel calls: none is sent again."""
    answer, models = AGENTS[agent]
    assert is_killed(run("run", "model2", client))
    assert sorted(lines(tmp_path, "mails")) == ["ann", "bob"]
    resumed = run("run,strict", "", client)
    assert resumed.stdout == answer * 2, resumed.stderr
    assert sorted(lines(tmp_path, "mails")) == ["ann", "bob"]
    assert lines(tmp_path, "models") == models


@pytest.mark.thorough(
    quick="frameworks/test_pydantic_ai.py::test_a_mail_whose_outcome_is_unknown_is_not_sent_again"
)
@pytest.mark.parametrize(
    ("agent", "errors", "models"),
    [("microsoft", ["MiddlewareFailure", UNKNOWN], ["0"]), ("openai", [UNKNOWN], ["0", "1"])],
)
def test_a_mail_whose_outcome_is_unknown_is_not_sent_again(
    run, agent: str, errors: list[str], models: list[str], tmp_path: Path
):
    """A call in doubt ends the agent's run: it is no result for the model, and not repeated."""
    assert is_killed(run("run", "tool", "async"))
    [sent] = lines(tmp_path, "mails")
    stopped = run("run", "", "async")
    assert all(error in stopped.stderr for error in errors), stopped.stderr
    assert lines(tmp_path, "mails").count(sent) == 1
    assert lines(tmp_path, "models") == models


# ------------------------------------------------------------ `hansard quickstart`


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


# ------------------------------------------------------------ extras


PACKAGES = {
    "pydantic_ai": ("pydantic_ai.agent", "pydantic-ai"),
    "openai_agents": ("agents.models", "openai-agents"),
    "agent_framework": ("agent_framework", "agent-framework"),
}


@pytest.mark.parametrize("adapter", PACKAGES)
def test_a_missing_framework_is_an_error_that_names_the_extra(
    adapter: str, monkeypatch: pytest.MonkeyPatch
):
    """The message has the command that installs it."""
    module, extra = PACKAGES[adapter]
    monkeypatch.delitem(sys.modules, f"hansard.ext.frameworks.{adapter}", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(hansard.errors.ExtraMissing, match=rf"pip install '.\[{extra}\]"):
        importlib.import_module(f"hansard.ext.frameworks.{adapter}")
