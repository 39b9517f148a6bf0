"""Command `hansard demonstrate`: record a person's actions in a browser window as steps."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from hansard.cli import output as shown
from hansard.cli.common import Commands, argument, option
from hansard.cli.opening import settings
from hansard.cli.output import Part
from hansard.client.browser.demonstrate import ARGUMENTS, DemonstratedEnd, demonstrated
from hansard.domain.choices import counted

app = Commands()


@app.command()
async def demonstrate(
    url: Annotated[str, argument("URL", "First page: an address or a file.")],
    task: Annotated[str, option("Description of the task, recorded as the run's task.")] = "",
    workflow: Annotated[str, option("Workflow of the new run.")] = "demonstration",
    agent: Annotated[str, option("Name and role of the acting person.")] = "person",
) -> None:
    """Record what you do in a browser window as a new run.

    Recording ends when you close the window or press Ctrl-C. Each click, text, key and choice is a
    step, as 'session.browser' records it, so that 'hansard actions' and 'hansard experience' accept
    the run. Text typed into a password field is not recorded: the step has a secret with the
    field's name.
    """
    import hansard
    from hansard.integrations.browser import chromium

    ended = asyncio.Event()
    found = settings()
    address = _address(url)
    async with (
        hansard.connect_async(found.workspace, data_dir=found.data_dir) as record,
        chromium.page(window=True, arguments=ARGUMENTS) as page,
        record.run(workflow, agent=agent, role=agent, secrets=lambda _: "-") as session,
    ):
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, ended.set)
        if task:
            await session.message("user", task)
        shown.hint(f"run {session.run}: close the window, or press Ctrl-C, to finish")
        report = await demonstrated(session, page, address, ended)
    shown.show(report, _render_demonstration)


def _address(given: str) -> str:
    path = Path(given)
    return path.resolve().as_uri() if path.is_file() else given


def _render_demonstration(found: DemonstratedEnd) -> Iterator[Part]:
    yield f"{counted(found.actions, 'action')} on record in run {found.run}"
    if found.secrets:
        yield f"secrets, by name: {', '.join(found.secrets)}"
    for each in found.unrecorded:
        yield f"not an action, and not recorded: {each}"
