"""An agent of each framework, killed, resumed and replayed."""

from __future__ import annotations

from pathlib import Path

import pytest

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
