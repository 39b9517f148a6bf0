"""Command `hansard agent`: run an agent that is defined by a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from hansard.agents.memory.search import import_extra
from hansard.agents.steps.gating import watching_questions
from hansard.bus.clock import OS_USER
from hansard.cli import output
from hansard.cli.common import By, Commands, argument, flag, option
from hansard.cli.opening import connecting
from hansard.cli.output import Hint, Part
from hansard.client.connect import connect
from hansard.domain.approval import Approval, ApprovalStatus
from hansard.domain.choices import counted
from hansard.integrations.mcp import recording as rule_files
from hansard.integrations.memory.agent_runs import AgentRun, run_folder

app = Commands(name="agent", help="Run agents defined by folders, with every action recorded.")


@app.command()
def run(
    folder: Annotated[Path, argument("FOLDER", "AGENTS.md, tools.json, skills/, subagents/.")],
    prompt: Annotated[str, argument("PROMPT", "Task for the agent.")],
    which: Annotated[str | None, option("Continue this run.", "ID", "--run")] = None,
    model: Annotated[str | None, option("Model [the one of agent.json].", "PROVIDER:MODEL")] = None,
    rules: Annotated[
        Path | None, option("Effects of tools, and refusals: docs/mcp.md.", "FILE")
    ] = None,
    yolo: Annotated[
        bool, flag("--yolo", "No approvals: set the policy of agent/NAME to 'off'.")
    ] = False,
    by: By = OS_USER,
) -> None:
    """Run an agent from its folder, through deepagents.

    Needs hansard[agent]. The first start imports the folder into the agent's memory, the space
    agent/NAME, which is the source of truth from then on. To continue after a crash, start it again
    with --run: recorded model calls are not paid for again. Pending approvals are printed on
    stderr. To let the agent change its memory without approval, run 'hansard memory policy
    agent/NAME off' before the first run.
    """
    import_extra("deepagents", "'hansard agent run'", "deepagents", "agent")
    rule_file = rule_files.load(rules) if rules is not None else None

    with connect(**connecting()) as record, watching_questions(_print_pending):
        found = run_folder(
            record, folder, prompt, run=which, model=model, rules=rule_file, by=by, asks=not yolo
        )
    output.show(found, _render_agent)


def _print_pending(found: Approval) -> None:
    """Print a run's pending approval on stderr."""
    if found.given is ApprovalStatus.PENDING:
        call = f"{found.asked.tool} of {found.asked.agent} (approval {found.id})"
        remedy = f"see 'hansard approvals', then 'hansard approvals grant {found.id}'"
        typer.echo(f"waiting for a person to approve {call}: {remedy}", err=True)


def _render_agent(found: AgentRun) -> Iterator[Part]:
    yield found.text
    had = [counted(len(found.tools), "tool"), counted(len(found.subagents), "subagent")]
    yield Hint(f"run {found.run} of {found.agent}, with {' and '.join(had)}")
    if found.differs:
        some = ", ".join(found.differs[:5])
        yield Hint(
            f"the folder says something else than agent/{found.agent} in "
            f"{counted(len(found.differs), 'file')} ({some}): memory counts; bring it in with "
            f"'hansard memory import FOLDER --space agent/{found.agent}'"
        )
