"""Commands `hansard memory export`, `import`, `checkout`, `commit` and `validate`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from hansard.agents.memory.portable import checkouts, folders, harnesses, imports
from hansard.agents.memory.portable.checkouts import CommitResult
from hansard.agents.memory.portable.harnesses import Harness
from hansard.agents.memory.portable.imports import ImportResult
from hansard.agents.memory.validation import tree
from hansard.agents.memory.validation.texts import of_space
from hansard.bus.clock import OS_USER
from hansard.cli import output
from hansard.cli.common import By, Commands, Reason, argument, flag, option
from hansard.cli.opening import beginning, reading
from hansard.cli.output import Hint, Part
from hansard.domain.choices import counted
from hansard.domain.errors import BadValue
from hansard.domain.memory.events import ORG, space_name
from hansard.domain.memory.lines import unified
from hansard.domain.memory.space import MemoryConflict

app = Commands()

Folder = Annotated[Path, argument("DIR", "The folder.")]
Space = Annotated[str, option("agent/NAME, user/PRINCIPAL or org.", "SPACE", show_default=True)]
As = Annotated[Harness, option("Layout of the folder.", None, "--as")]
AT = "A version ('@3'), a position, a time, or the id of a change."


@app.command()
async def export(
    folder: Folder,
    harness: As = Harness.AGENTS_MD,
    space: Space = ORG,
    at: Annotated[str | None, option(AT, "POINT")] = None,
    settings: Annotated[
        bool, flag("--settings", "Export files that configure the harness itself, too.")
    ] = False,
) -> None:
    """Write a space's files to a new folder.

    Files are put where a harness looks for them. The folder is written completely or not at all.
    Files and settings that the harness cannot express are listed.
    """
    async with reading() as workspace:
        state = await workspace.memories.whole(space_name(space), at)
    made = harnesses.export(of_space(state.files), harness, settings=settings)
    folders.write(folder, made.tree)
    fields = {
        "space": space,
        "version": state.version,
        "folder": str(folder),
        "files": len(made.tree),
        "notes": made.notes,
    }
    text = f"{counted(len(made.tree), 'file')} of {space} (version {state.version}) in {folder}"
    output.show(fields, lambda _: _render_lines(text, made.notes))


@app.command("import")
async def import_(
    folder: Annotated[Path | None, argument("[DIR]", "Folder of a harness.")] = None,
    harness: As = Harness.AGENTS_MD,
    git: Annotated[
        Path | None, option("A git repository: each commit becomes a change.", "REPO")
    ] = None,
    revision: Annotated[str, option("With --git: last commit to import.")] = "HEAD",
    space: Space = ORG,
    replace: Annotated[
        bool, flag("--replace", "Delete files that the folder does not have.")
    ] = False,
    skip_invalid: Annotated[
        bool, flag("--skip-invalid", "Leave out files that are not valid.")
    ] = False,
    keep_invalid: Annotated[
        bool, flag("--keep-invalid", "Keep files that are not valid, and warn of them.")
    ] = False,
    reason: Reason = "",
    by: By = OS_USER,
) -> None:
    """Import a folder or a git history into a space.

    All files are checked before any is written. Author and time of a commit are recorded as the
    repository states them; commits already imported are skipped.
    """
    if (folder is None) == (git is None):
        raise BadValue("import", "a folder or --git REPO", "give one of the two")
    async with beginning() as workspace:
        if folder is not None:
            report = await imports.import_folder(
                workspace,
                space_name(space),
                folder,
                harness,
                replace=replace,
                leave_out=skip_invalid,
                keep=keep_invalid,
                reason=reason or f"import of {folder.name}",
                by=by,
            )
        else:
            report = await imports.import_git(
                workspace,
                space_name(space),
                git or Path(),
                revision,
                leave_out=skip_invalid,
                keep=keep_invalid,
                by=by,
            )
    output.show(report, _render_import)


def _render_import(report: ImportResult) -> Iterator[Part]:
    made = f"{counted(report.changes, 'change')} of {counted(len(report.files), 'file')}"
    yield from _render_lines(
        f"{made} in {report.space}, which is at version {report.version}", report.left_out
    )
    for each in report.warnings:
        yield Hint(f"kept: {each}")


@app.command()
async def checkout(folder: Folder, harness: As = Harness.AGENTS_MD, space: Space = ORG) -> None:
    """Write a space to a folder to be edited as real files.

    'hansard memory commit DIR' records your edits as one change.
    """
    async with reading() as workspace:
        mark, notes = await checkouts.checkout(workspace, space_name(space), folder, harness)
    fields = {"space": mark.space, "version": mark.version, "folder": str(folder), "notes": notes}
    text = f"{mark.space} (version {mark.version}) is in {folder}"
    output.show(fields, lambda _: _render_lines(text, notes))


@app.command()
async def commit(folder: Folder, reason: Reason = "", by: By = OS_USER) -> int:
    """Record the edits of a checkout as one change.

    Afterwards the folder has the space's current files. Files are compared by their digests at
    checkout: if someone else changed one of the same files, nothing is written and both texts are
    shown (exit code 1).
    """
    async with beginning() as workspace:
        try:
            done = await checkouts.commit(workspace, folder, reason=reason, by=by)
        except MemoryConflict as lost:
            fields = {
                "space": str(lost.space),
                "path": str(lost.path),
                "mine": str(lost.mine),
                "theirs": str(lost.theirs),
                "author": str(lost.author),
                "version": int(str(lost.version)),
            }
            parts = [*_render_conflict(lost)]
            output.show(fields, lambda _: parts)
            return 1
    output.show(done, _render_commit)
    return 1 if done.left else 0


def _render_commit(report: CommitResult) -> Iterator[Part]:
    changed = counted(len(report.changed), "file")
    yield f"{report.space} is at version {report.version}: {changed} changed"
    for path in report.changed:
        yield f"  {path}"
    if report.brought:
        yield f"{counted(len(report.brought), 'file')} of others in the folder now"
    for path in report.left:
        yield Hint(f"{path} changed in the folder meanwhile: commit again")


def _render_conflict(lost: MemoryConflict) -> Iterator[Part]:
    who = f"{str(lost.author)!r} (version {lost.version})"
    yield f"{lost.path} of {lost.space} was changed by {who} since it was checked out"
    yield "Nothing was written. From theirs to yours:"
    yield unified(str(lost.path), str(lost.theirs), str(lost.mine))
    yield Hint("check out to another folder, and bring your changes there")


@app.command()
async def validate(
    folder: Annotated[Path | None, argument("[DIR]", "A folder; else the space.")] = None,
    space: Space = ORG,
) -> int:
    """Validate a folder or a space.

    Checks skills, subagents, tools, instructions, links and paths. Exits with 1 if there are
    problems.
    """
    if folder is not None:
        files = folders.read(folder, leave_out=[checkouts.MARK])
    else:
        async with reading() as workspace:
            files = of_space((await workspace.memories.whole(space_name(space))).files)
    problems = tree.problems(files)
    found = counted(len(problems), "problem") if problems else "no problem"
    text = "\n".join([*map(str, problems), f"{counted(len(files), 'file')}, {found}"])
    output.show({"files": len(files), "problems": problems}, text)
    return 1 if problems else 0


def _render_lines(line: str, notes: list[str]) -> Iterator[Part]:
    yield line
    for note in notes:
        yield Hint(note)
