"""Command `hansard quickstart`: see an agent of a framework killed, with and without Hansard."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hansard.cli import output
from hansard.cli.common import Commands, flag, option
from hansard.cli.output import Hint, Part
from hansard.domain.errors import CallerError

if TYPE_CHECKING:
    from hansard.ext.frameworks.quickstart import Quickstart

app = Commands()


@app.command()
def quickstart(
    framework: Annotated[
        str | None, typer.Argument(help="Framework, one of --list.", metavar="FRAMEWORK")
    ] = None,
    list_: Annotated[
        bool, flag("--list", "List the frameworks, with their installed versions.")
    ] = False,
    folder: Annotated[
        Path | None, option("Folder for the agents and their record [a new one].", "DIR", "--dir")
    ] = None,
) -> None:
    """Kill an agent of a framework, with and without Hansard.

    Each of two agents is killed after it has sent a mail, and started again. Their model is a
    script on this machine: no key is needed.
    """
    from hansard.ext.frameworks import quickstart as agents

    if list_ or framework is None:
        rows = [
            {"framework": name, "package": each.package, "version": each.version}
            for name, each in agents.FRAMEWORKS.items()
        ]
        if not list_:
            message = "no framework is named: hansard quickstart FRAMEWORK, one of --list"
            raise CallerError(message)
        output.show(rows, _listed(rows))
        return
    agents.framework(framework)
    place = Path(tempfile.mkdtemp(prefix="hansard-quickstart-")) if folder is None else folder
    report = agents.quickstart(framework, place.resolve())
    output.show(report, _shown(report))


def _listed(rows: list[dict[str, Any]]) -> Iterator[Part]:
    yield output.listing(output.columns("framework package version", version=_version), rows)


def _version(row: dict[str, Any]) -> str:
    version: str | None = row["version"]
    return version or f"not installed: pip install {row['package']}"


def _shown(report: Quickstart) -> Iterator[Part]:
    yield Hint(
        f"{report.framework} {report.version}. The model is a script on this machine: no key is "
        "needed, and nothing is sent to a provider."
    )
    yield "The agents differ in these lines:\n"
    yield "\n".join(f"  {line}" for line in report.difference) + "\n"
    trials = [("without Hansard", report.without), ("with Hansard", report.recorded)]
    rows = [
        {"agent": name, "mails": each.mails, "requests": each.requests, "answer": each.answer}
        for name, each in trials
    ]
    yield "Each was killed after its mail, and started again:\n"
    yield output.listing(output.columns("agent! mails> requests> answer"), rows)
    yield Hint(f"the agents are {report.without.agent} and {report.recorded.agent}")
    yield Hint(f"the record: hansard --data-dir {report.data_dir} run show last")
