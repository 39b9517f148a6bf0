"""`hansard memory`: files that outlive runs, read, followed back and put right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from hansard.agents.memory.reading import MemoryEntry
from hansard.agents.memory.store import MemoryStore
from hansard.agents.workspace import Workspace
from hansard.cli import output
from hansard.cli.common import Because, By, Json, noun, work
from hansard.cli.opening import reading
from hansard.cli.output import Column, Hint, Part
from hansard.domain.counted import counted
from hansard.domain.memory.events import MemoryApproval, MemoryPolicySet
from hansard.domain.memory.paths import AGENTS
from hansard.domain.times import moment
from hansard.inspect import memory
from hansard.inspect.memory import (
    MemoryBlame,
    MemoryChangeMade,
    MemoryDiff,
    MemoryListing,
    MemoryLog,
)

app = noun(name="memory", help="Look at files that outlive runs, follow them back, put them right.")

Space = Annotated[
    str, typer.Argument(metavar="SPACE", help="agent/NAME, user/PRINCIPAL, or org, that of all.")
]
Path = Annotated[str, typer.Argument(metavar="PATH", help="A file, from the root of the tree.")]
SomePath = Annotated[str | None, typer.Argument(metavar="[PATH]", help="Only this file.")]
Point = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="POINT",
        help="A version of the space (@3), a position, a time, or the id of a change.",
    ),
]

FILES = (
    Column("space", whole=True),
    Column("path", whole=True),
    Column("kind"),
    Column("bytes", lambda each: each.size, right=True),
    Column("version", right=True),
    Column("author", short=True),
    Column("label"),
)
VERSIONS = (
    Column("version", lambda each: f"@{each.version}", right=True),
    Column("op", whole=True),
    Column("path", whole=True),
    Column("author", short=True),
    Column("time", lambda each: output.time(each.at), whole=True),
    Column("because"),
    Column("change", lambda each: each.event, whole=True),
)


@app.command("ls")
@work
async def list_files(
    space: Annotated[
        str | None, typer.Argument(metavar="[SPACE]", help="Only this space; else all.")
    ] = None,
    at: Point = None,
    json: Json = False,
) -> None:
    """List the files of memory, now or at any point."""
    async with reading() as workspace:
        found = await memory.listing(workspace, space, at)
    output.show(found, _files, json=json)


@app.command()
@work
async def show(space: Space, path: Path, at: Point = None, json: Json = False) -> None:
    """Print a file, as it is or as it was."""
    async with reading() as workspace:
        found = await memory.entry(workspace, space, path, at)
    output.show(found, _text, json=json)


@app.command("log")
@work
async def show_log(space: Space, path: SomePath = None, json: Json = False) -> None:
    """List the changes of a file, or of all files of a space, the newest first."""
    async with reading() as workspace:
        found = await memory.log(workspace, space, path)
    output.show(found, _log, json=json)


@app.command()
@work
async def diff(
    space: Space,
    before: Annotated[str, typer.Option("--from", metavar="POINT", help="As --at of 'ls'.")],
    path: SomePath = None,
    after: Annotated[
        str | None, typer.Option("--to", metavar="POINT", help="As --from; now, if not given.")
    ] = None,
    json: Json = False,
) -> None:
    """Show what became of files between two points, in git's unified format."""
    async with reading() as workspace:
        found = await memory.diff(workspace, space, path, before, after)
    output.show(found, _diff, json=json)


@app.command()
@work
async def blame(space: Space, path: Path, json: Json = False) -> None:
    """Show which change brought each line of a file."""
    async with reading() as workspace:
        found = await memory.blame(workspace, space, path)
    output.show(found, _blame, json=json)


@app.command()
@work
async def revert(
    space: Space,
    change: Annotated[
        str, typer.Argument(metavar="CHANGE", help="Its id, or its version of the space (@3).")
    ],
    because: Because = "",
    by: By = "person",
    json: Json = False,
) -> None:
    """Undo a change, all of its files or none; what was changed since in other lines stays."""
    async with reading() as workspace:
        version = await MemoryStore(workspace, space).revert(change, by, because)
    told = MemoryChangeMade(space=space, version=version, changed=True)
    output.show(told, f"{space} is at version {version}: {change} is undone", json=json)


@app.command()
@work
async def remember(
    space: Space,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What is to hold from now on.")],
    path: Annotated[str, typer.Option(metavar="PATH", help="In which file.")] = AGENTS,
    by: By = "person",
    json: Json = False,
) -> None:
    """Add a line to a space's instructions, or to another file of it."""
    async with reading() as workspace:
        version = await MemoryStore(workspace, space).remember(text, by, path)
    told = MemoryChangeMade(space=space, version=version, changed=True)
    output.show(told, f"{space} is at version {version}: {path} has one line more", json=json)


@app.command()
@work
async def policy(
    space: Space,
    approval: Annotated[
        MemoryApproval | None,
        typer.Argument(metavar="[ask|off]", help="Whether changes wait for a person's word."),
    ] = None,
    until: Annotated[
        str, typer.Option(metavar="TIME", help="When it is 'ask' again: with its zone.")
    ] = "",
    untrusted: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN", help="Paths not asked about though they rest on untrusted input."
        ),
    ] = None,
    because: Because = "",
    by: By = "person",
    json: Json = False,
) -> None:
    """Show whether agents' changes of a space wait for a person's word, or say so."""
    async with reading() as workspace:
        if approval is None:
            output.show(await _standing(workspace, space), _policy, json=json)
            return
        wanted = MemoryPolicySet(
            approval=approval,
            until=moment("--until", until) if until else None,
            untrusted=tuple(untrusted or ()),
            because=because,
        )
        store = MemoryStore(workspace, space)
        is_new = await store.set_policy(wanted, by)
        version = (await store.state()).version
    said = f"changes of {space} {_in_words(wanted)}" + ("" if is_new else ", as they did")
    told = MemoryChangeMade(space=space, version=version, changed=is_new)
    output.show(told, said, json=json)


async def _standing(workspace: Workspace, space: str) -> MemoryPolicySet:
    return await memory.policy(workspace, space) or MemoryPolicySet(approval=MemoryApproval.ASK)


def _policy(found: MemoryPolicySet) -> Iterator[Part]:
    yield f"changes {_in_words(found)}"


def _in_words(found: MemoryPolicySet) -> str:
    if found.approval is MemoryApproval.ASK:
        return "wait for a person's word"
    until = f" until {found.until.isoformat()}" if found.until is not None else ""
    but = ", ".join(found.untrusted)
    rest = f"; so are those of {but} that rest on untrusted input" if but else ""
    return f"are made unasked{until}{rest}"


def _files(found: MemoryListing) -> Iterator[Part]:
    if found.files:
        yield output.listing(FILES, found.files)
    told = counted(len(found.spaces), "space")
    yield Hint(f"{counted(len(found.files), 'file')} of {told}")


def _text(found: MemoryEntry) -> Iterator[Part]:
    yield found.text
    yield Hint(f"{found.path} of {found.space}, as of version @{found.version} by {found.author}")


def _log(found: MemoryLog) -> Iterator[Part]:
    if found.versions:
        yield output.listing(VERSIONS, found.versions[::-1])
    else:
        yield Hint(f"nothing of that is on record of {found.space}")


def _diff(found: MemoryDiff) -> Iterator[Part]:
    yield found.diff or Hint("nothing changed")


def _blame(found: MemoryBlame) -> Iterator[Part]:
    columns = (
        Column("version", lambda each: f"@{each.version}", right=True),
        Column("author", short=True),
        Column("time", lambda each: output.time(each.at), whole=True),
        Column("line", right=True),
        Column("text", lambda each: each.text, whole=True),
    )
    yield output.listing(columns, found.blamed)
