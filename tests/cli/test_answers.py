"""Answers of `hansard.inspect`: the same as the output of `--json`."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hansard import settings
from hansard.agents.workspace import RunFilter, Workspace
from hansard.cli import output
from hansard.client.opening import open_workspace
from hansard.inspect.rederive import replay
from hansard.inspect.roles import list_approvals, list_logins, read_roles
from hansard.inspect.run import keys, list_runs, show, team
from hansard.inspect.run_diff import run_diff
from hansard.inspect.state import difference, state
from tests.cli.support import WORKSPACE, Runs

pytestmark = pytest.mark.later

Read = Callable[[Workspace, Runs], Coroutine[Any, Any, object]]

READS: dict[str, Read] = {
    "runs --limit 0": lambda workspace, _: list_runs(workspace, RunFilter(), 0),
    "runs --limit 2": lambda workspace, _: list_runs(workspace, RunFilter(), 2),
    "team {}": lambda workspace, runs: team(workspace, runs.team, None),
    "approvals --all": lambda workspace, _: list_approvals(workspace, every=True),
    "principals": lambda workspace, _: list_logins(workspace),
    "roles show": lambda workspace, _: read_roles(workspace, [], None),
    "run show {}": lambda workspace, runs: show(workspace, runs.team, None, None),
    "run state {}": lambda workspace, runs: state(workspace, runs.team, None, None),
    "run state {} --diff researcher_1@3 now": lambda workspace, runs: difference(
        workspace, runs.team, ("researcher_1@3", "now"), None
    ),
    "run diff {0} {0}": lambda workspace, runs: run_diff(workspace, runs.team, runs.team),
    "run replay {}": lambda workspace, runs: replay(workspace, runs.team),
    "board {}": lambda workspace, runs: keys(workspace, runs.team, None),
}


async def answered(read: Read, home: Path, runs: Runs) -> object:
    """Return the answer of a read on an open workspace."""
    workspace = await open_workspace(settings.load(data_dir=home, workspace=WORKSPACE))
    try:
        return await read(workspace, runs)
    finally:
        await workspace.close()


@pytest.mark.parametrize("command", READS)
def test_a_read_and_its_command_say_the_same(command, home, runs, capsys, call):
    """The lines of the answer are those of the command, field by field; reading prints nothing."""
    answer = asyncio.run(answered(READS[command], home, runs))
    assert capsys.readouterr() == ("", "")
    encoder = msgspec.json.Encoder()
    lines = [encoder.encode(line).decode() for line in output.lines(answer)]
    result = call(*command.format(runs.team).split(), "--json")
    assert (result.code, result.out.splitlines()) == (0, lines)
