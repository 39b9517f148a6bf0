"""`hansard experience`: what runs teach, as a folder that is done under check functions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from hansard.cli import output as shown
from hansard.cli.actions import pairs
from hansard.cli.common import Json, noun, work
from hansard.cli.opening import reading, settings
from hansard.cli.output import Column, Part
from hansard.client.browser.experienced import Experienced
from hansard.domain.counted import counted
from hansard.domain.errors import BadValue
from hansard.domain.experience.experience import Experience
from hansard.inspect.find import find_run

app = noun()

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of an experience.")]

COLUMNS = (
    Column("node"),
    Column("level", lambda row: str(row.level), right=True),
    Column("found by", lambda row: row.strategy),
    Column("seconds", lambda row: f"{row.seconds:.2f}", right=True),
)


@app.command()
@work
async def distil(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is to be called.")],
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Runs of one kind of task.")],
    task: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RUN=TEXT",
            help="What was asked for in a run [its first message of a user]; may be given several "
            "times.",
        ),
    ] = None,
    about: Annotated[str, typer.Option("--description", help="What it is for.")] = "",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Its folder [NAME].")
    ] = None,
    json: Json = False,
) -> None:
    """Learn from runs of one kind of task, without a model: the folder of an experience."""
    from hansard.agents.actions.experience_folder import write_folder
    from hansard.inspect.experience import learned

    texts = pairs(task, "--task")
    async with reading() as workspace:
        found = {each: await find_run(workspace, each) for each in (*runs, *texts)}
        experience = await learned(
            workspace,
            name,
            [found[each] for each in runs],
            {found[each]: text for each, text in texts.items()},
            about,
        )
    folder = output or Path(name)
    write_folder(experience, folder)
    shown.show(experience, _said, json=json)
    shown.hint(f"wrote {folder}: `hansard experience confirm {folder}` once its checks are right")


@app.command()
def show(folder: Folder, json: Json = False) -> None:
    """Print an experience: its task, its plan, and the checks that guard it or are proposed."""
    from hansard.agents.actions.experience_folder import read_folder

    shown.show(read_folder(folder), _said, json=json)


@app.command()
def confirm(
    folder: Folder,
    check: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this check [all]; may be given several times."),
    ] = None,
    json: Json = False,
) -> None:
    """Write down that the proposed checks are right: without checks it may guide, not act."""
    from hansard.agents.actions import experience_folder as folders

    shown.show(folders.confirm(folder, check or ()), _said, json=json)


@app.command()
@work
async def run(
    folder: Folder,
    task: Annotated[str, typer.Option(help="The task, said as it was: its values are read.")] = "",
    param: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A slot's value; may be given several times."),
    ] = None,
    address: Annotated[str, typer.Option(help="The page to begin on: an address, or a file.")] = "",
    once: Annotated[
        str, typer.Option(help="'allow': actions that are done once may be done in this run.")
    ] = "refuse",
    workflow: Annotated[str, typer.Option(help="Of the new run.")] = "experience",
    json: Json = False,
) -> int:
    """Do a task in chromium by what was learned, as a new run; no model is asked."""
    import hansard
    from hansard.agents.actions.experience_folder import read_folder
    from hansard.client.browser.replay import Once
    from hansard.integrations.browser import chromium

    if once not in ("refuse", "allow"):
        raise BadValue("--once", f"{once!r:.40}", "give 'allow', or leave it away")
    allowed: Once = "allow" if once == "allow" else "refuse"
    experience = read_folder(folder)
    found = settings()
    async with (
        hansard.connect_async(found.workspace, data_dir=found.data_dir) as record,
        chromium.page() as page,
        record.run(workflow, agent="replay", role="agent") as session,
    ):
        browser = session.browser(page)
        if address:
            await browser.goto(_address(address))
        told = await session.run_experience(
            experience, pairs(param, "--param"), task=task, once=allowed
        )
    shown.show(told, _done, json=json)
    return 0 if told.success else 1


def _address(given: str) -> str:
    """An address, or that of a file."""
    path = Path(given)
    return path.resolve().as_uri() if path.is_file() else given


def _said(experience: Experience) -> Iterator[Part]:
    from hansard.domain.experience import checks as checking
    from hansard.domain.experience.experience import plan

    yield f"{experience.name}, version {experience.version}: {experience.description}"
    yield f"said as   {experience.wording.said}"
    of = counted(len(experience.sources), "run")
    out = f", {experience.left_out} of them left out" if experience.left_out else ""
    yield f"learned   from {of}{out}; {counted(len(experience.failed), 'run')} failed"
    for line in plan(experience):
        yield f"  {line}"
    if experience.checks:
        yield f"guarded by {counted(len(experience.checks), 'check')}:"
    else:
        yield "guarded by nothing: it may guide, not act. Proposed checks:"
    for each in experience.checks or checking.proposed(experience.procedure):
        yield f"  {checking.kind(each):14} {each.name}"
    if experience.left_out_checks:
        yield f"not in the folder, being Python: {', '.join(experience.left_out_checks)}"
    for what, sentences in (("plan", experience.plan), ("lesson", experience.lessons)):
        for sentence in sentences:
            yield f"{what}    {sentence.says} ({', '.join(sentence.rests_on)})"
    if experience.dropped:
        yield f"dropped   {counted(experience.dropped, 'sentence')} that rested on no step"


def _done(told: Experienced) -> Iterator[Part]:
    yield shown.listing(COLUMNS, told.actions)
    yield (
        f"done to an end that was shown, at level {told.level}, in {told.seconds:.2f} s; no model "
        "was asked, and no check says that the task is what was wanted"
        if told.success
        else f"not done: {told.error}"
    )
    for line in told.guide:
        yield f"  {line}"
