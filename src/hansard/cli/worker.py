"""Command `hansard worker`: run the forks that the page, or another program, requests."""

from __future__ import annotations

import secrets
import socket
from functools import partial
from typing import Annotated

from hansard.agents.workspace import Workspace
from hansard.cli import output
from hansard.cli.common import Command, Commands, argument, flag, option
from hansard.cli.opening import beginning
from hansard.cli.output import Hint
from hansard.cli.processes import log_stream, termination_event, until
from hansard.domain import ids
from hansard.domain.errors import CallerError
from hansard.ext.worker.requests import Worker, WorkRequest, WorkStatus

app = Commands()


@app.command(service=log_stream)
async def worker(
    workflow: Annotated[str, argument("WORKFLOW", "The workflow of the forks to run.")],
    command: Command = None,
    once: Annotated[
        bool, flag("--once", "Run the forks that wait for a worker, then end.")
    ] = False,
    name: Annotated[
        str | None, option("Name of this worker on record [HOST-NUMBER].", "NAME")
    ] = None,
) -> None:
    """Run a workflow's program in each fork that is requested.

    The page requests a run of a fork by its id, and never sends a program. COMMAND is run as 'run
    resume FORK' does, one fork after the other, without a terminal. A step in doubt stops it (see
    HANSARD_SETTLE). Requests are on record: 'hansard sql "FROM work"'.
    """
    if not command:
        raise CallerError("there is no program: hansard worker WORKFLOW -- COMMAND")
    host = "".join(each if each.isalnum() else "-" for each in socket.gethostname())
    who = ids.name("worker", name or f"{host[:40]}-{secrets.token_hex(3)}")
    with termination_event() as stop:
        async with beginning() as workspace:
            line = {"kind": "worker", "worker": who, "workflow": workflow}
            hint = f"worker {who} waits for forks of workflow {workflow!r}; stop it with Ctrl-C"
            output.show(line, [Hint(hint)])
            execute = partial(_run, workspace, command)
            made = Worker(workspace, workflow, who, execute, _report)

            async def work() -> None:
                await made.work(once=once)

            await until(stop, work())


async def _run(workspace: Workspace, command: list[str], fork: str) -> tuple[int, str]:
    """Run a program in a fork; return its exit code and the last line of its output."""
    from hansard.cli.record import run_in_fork

    code, last, _ = await run_in_fork(workspace, fork, command, prints=False)
    return code, last


def _report(request: WorkRequest) -> None:
    if request.status is WorkStatus.ENDED:
        text = f"fork {request.run} ended with exit code {request.code}: {request.last}"
    else:
        text = f"fork {request.run} begins, requested by {request.by}"
    output.show(request, [Hint(text)])
