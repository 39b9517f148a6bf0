"""Command `hansard memory`: read, change, restore, export and import files that outlive runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec

from hansard.agents.memory import drafts
from hansard.agents.memory.formats import of_space
from hansard.agents.memory.reading import MemoryEntry
from hansard.agents.memory.search import Lines, Paths, SearchResult, StaticVectors
from hansard.agents.memory.store import MemoryStore
from hansard.agents.workspace import Workspace
from hansard.bus.clock import OS_USER
from hansard.cli import output
from hansard.cli.common import By, Commands, Reason, argument, flag, option
from hansard.cli.opening import answering, beginning, connecting, interruptible, named, reading
from hansard.cli.output import Bytes, Hint, Part
from hansard.client.connect import connect_async
from hansard.domain.choices import counted, moment
from hansard.domain.errors import BadValue
from hansard.domain.label import Label, join
from hansard.domain.memory.files import AGENTS, ORG, MemoryApproval, MemoryPolicySet, space_name
from hansard.domain.memory.lines import unified
from hansard.domain.memory.space import MemoryConflict, MemoryState
from hansard.ext.memory import compaction as compacting
from hansard.ext.memory import harnesses, imports, reflection, upkeep
from hansard.ext.memory.compaction import (
    DROP_MAX,
    Changes,
    CompactionResult,
    MemoryCompaction,
    Probe,
)
from hansard.ext.memory.harnesses import Harness
from hansard.ext.memory.imports import CommitResult, ImportResult
from hansard.ext.memory.reflection import Reflected
from hansard.ext.memory.upkeep import (
    LAST,
    RUNS_MAX,
    ExpectedLine,
    MemoryChangeMade,
    MemoryProposalMade,
    MemoryProposals,
    user_requests,
)
from hansard.ext.memory.upkeep import make as made
from hansard.inspect import memory as inspected
from hansard.inspect.answer import find_run
from hansard.inspect.memory import MemoryDiff, MemoryListing

memory = Commands()

Space = Annotated[str, argument("SPACE", "agent/NAME, user/PRINCIPAL, or org (shared by all).")]
FilePath = Annotated[str, argument("PATH", "A file, from the root of the tree.")]
SomePath = Annotated[str | None, argument("[PATH]", "Only this file.")]
ReflectWith = Annotated[
    str | None,
    option("Function that proposes changes [the /remember messages].", "MODULE:FUNCTION", "--with"),
]
AskModel = Annotated[
    str | None,
    option(
        "Function that calls a model: takes a prompt, returns the answer. Instead of --with.",
        "MODULE:FUNCTION",
        "--ask",
    ),
]
Point = Annotated[
    str | None,
    option(
        "A version of the space (@3), a position, a time, or the id of a change.", "POINT", "--at"
    ),
]

FILES = output.columns("space! path! kind size> version> author~ label")
VERSIONS = output.columns(
    "version> op! path! author~ time! because change=event!",
    version=lambda each: f"@{each.version}",
    time=lambda each: output.time(each.at),
)

BLAMED = output.columns(
    "version> author~ time! line> text!",
    version=lambda each: f"@{each.version}",
    time=lambda each: output.time(each.at),
)

HITS = output.columns(
    "path! score> excerpt",
    score=lambda each: f"{each.score:.3g}",
    excerpt=lambda each: " ".join(each.excerpt.split()),
)


@memory.command("ls")
async def list_files(
    space: Annotated[str | None, argument("[SPACE]", "Only this space [all].")] = None,
    at: Point = None,
) -> None:
    """List the files of memory, now or at any point."""
    async with reading() as workspace:
        listing = await inspected.listing(workspace, space, at)
    output.show(listing, _render_files(listing))


@memory.command()
async def show(space: Space, path: FilePath, at: Point = None) -> None:
    """Print a file, now or at any point."""
    async with reading() as workspace:
        entry = await MemoryStore(workspace, space).entry(path, at)
    output.show(entry, _render_file(entry))


@memory.command("log")
async def show_log(space: Space, path: SomePath = None) -> None:
    """List the changes of a file or a space, newest first."""
    async with reading() as workspace:
        versions = await MemoryStore(workspace, space).versions(path)
    nothing = f"{space} has no such record"
    output.show(versions, [output.listing(VERSIONS, versions[::-1], nothing)])


@memory.command()
async def diff(
    space: Space,
    before: Annotated[str, option("A point as of 'ls'.", "POINT", "--from")],
    path: SomePath = None,
    after: Annotated[str | None, option("Last point [now].", "POINT", "--to")] = None,
    binary: Annotated[bool, flag("--binary", "Include binary files, for git apply.")] = False,
) -> None:
    """Show changes of files between two points as a git diff."""
    async with reading() as workspace:
        changed = await MemoryStore(workspace, space).diff(path, before, after, binary=binary)
    difference = MemoryDiff(space=space, diff=changed)
    output.show(difference, [difference.diff or Hint("nothing changed")])


@memory.command()
async def blame(space: Space, path: FilePath, at: Point = None) -> None:
    """Show which change brought each line, now or at any point."""
    async with reading() as workspace:
        blamed = await MemoryStore(workspace, space).blame(path, at)
    output.show(blamed, [output.listing(BLAMED, blamed)])


@memory.command()
async def revert(
    space: Space,
    change: Annotated[str, argument("CHANGE", "A change's id, or its version (@3).")],
    reason: Reason = "",
    by: By = OS_USER,
) -> None:
    """Undo a change, all of its files or none.

    Later changes of other lines are kept.
    """
    async with reading() as workspace:
        version = await MemoryStore(workspace, space).revert(change, by, reason)
    report = MemoryChangeMade(space=space, version=version, changed=True)
    output.show(report, f"{space} is at version {version}: {change} is undone")


@memory.command()
async def remember(
    what: Annotated[str, argument("SPACE", "Space to add TEXT to; without TEXT, a run.")],
    text: Annotated[str | None, argument("TEXT", "Line to add.")] = None,
    path: Annotated[str, option("File to add it to.", "PATH")] = AGENTS,
    space: Annotated[str, option("With a run: space of the proposal.", "SPACE")] = ORG,
    function: ReflectWith = None,
    ask: AskModel = None,
    by: By = OS_USER,
) -> None:
    """Add a line to instructions, or propose a run's lessons.

    With TEXT, add it to the space. Without TEXT, SPACE is a run: propose its users' /remember
    messages, or the result of --with. 'hansard memory apply' makes a proposal a change.
    """
    if text is None:
        await _reflect(space, function, ask, what)
        return
    async with reading() as workspace:
        version = await MemoryStore(workspace, what).remember(text, by, path)
    report = MemoryChangeMade(space=what, version=version, changed=True)
    output.show(report, f"{what} is at version {version}: {path} has one line more")


@memory.command()
async def proposals(space: Space) -> None:
    """List proposed changes of a space, each with its diff.

    Reflections and compactions make proposals.
    """
    async with reading() as workspace:
        waiting = await upkeep.proposals(workspace, space)
    output.show(waiting, _render_proposals(waiting))


@memory.command()
async def apply(
    space: Space,
    proposal: Annotated[str, argument("PROPOSAL", "Event of the proposal, or 'last'.")] = LAST,
    path: Annotated[list[str] | None, argument("[PATH]...", "Only of these files.")] = None,
    by: By = OS_USER,
) -> None:
    """Apply a proposal as a change.

    Refused if one of its files has changed since.
    """
    async with reading() as workspace:
        version, diff = await made(workspace, space_name(space), proposal, path or [], by)
    report = MemoryProposalMade(space=space, version=version, diff=diff)
    output.show(report, [diff, Hint(f"{space} is at version {version}")])


@memory.command()
async def policy(
    space: Space,
    approval: Annotated[
        MemoryApproval | None, argument("[ask|off]", "ask: changes wait for a person's approval.")
    ] = None,
    until: Annotated[str, option("End of 'off', with time zone.", "TIME")] = "",
    untrusted: Annotated[
        list[str] | None,
        option("Paths without approval even if they rest on untrusted input.", "PATTERN"),
    ] = None,
    reason: Reason = "",
    by: By = OS_USER,
) -> None:
    """Show or set whether agents' changes need approval.

    The policy can be set before the first run of an agent: its space need not exist yet.
    """
    async with reading() if approval is None else beginning() as workspace:
        if approval is None:
            current = await _current_policy(workspace, space)
            output.show(current, f"changes {_in_words(current)}")
            return
        query = MemoryPolicySet(
            approval=approval,
            until=moment("--until", until) if until else None,
            untrusted=tuple(untrusted or ()),
            because=reason,
        )
        store = MemoryStore(workspace, space)
        is_new = await store.set_policy(query, by)
        version = (await store.state()).version
    text = f"changes of {space} {_in_words(query)}" + ("" if is_new else ", as they did")
    report = MemoryChangeMade(space=space, version=version, changed=is_new)
    output.show(report, text)


async def _current_policy(workspace: Workspace, space: str) -> MemoryPolicySet:
    state = await MemoryStore(workspace, space).state()
    return state.policy or MemoryPolicySet(approval=MemoryApproval.ASK)


@memory.command()
async def glob(
    space: Space, pattern: Annotated[str, argument("GLOB", "Such as 'skills/*/SKILL.md'.")]
) -> None:
    """List files whose path matches a pattern.

    * stays within a folder, ** goes through folders.
    """
    async with reading() as workspace:
        paths = await inspected.glob(workspace, space, pattern)
    output.show([{"path": each} for each in paths.paths], _render_paths(paths))


@memory.command()
async def grep(
    space: Space,
    pattern: Annotated[str, argument("PATTERN", "In RE2 syntax.")],
    within: Annotated[str, option("Only in these files.", "GLOB", "--glob")] = "",
    ignore_case: Annotated[bool, option("Ignore case.", None, "--ignore-case", "-i")] = False,
) -> None:
    """List lines that match a regular expression.

    Matching takes time linear in the text.
    """
    async with reading() as workspace:
        lines = await inspected.grep(
            workspace, space, pattern, glob=within, ignore_case=ignore_case
        )
    output.show(lines.lines, _render_lines(lines))


@memory.command("search")
async def search_files(
    space: Space,
    question: Annotated[str, argument("WORDS", "Words, or a sentence.")],
    within: Annotated[str, option("Only these files.", "GLOB", "--glob")] = "",
    kind: Annotated[str, option("Only this kind: procedural or semantic.", "KIND", "--kind")] = "",
    meaning: Annotated[
        bool, flag("--meaning", "Rank also by meaning; needs hansard[semantic].")
    ] = False,
) -> None:
    """Rank files by a query, by words or also by meaning.

    With --meaning both rankings are fused.
    """
    embedder = StaticVectors() if meaning else None
    async with reading() as workspace:
        hits = await inspected.search(
            workspace, space, question, embedder=embedder, glob=within, kind=kind
        )
    output.show(hits.hits, _render_hits(hits))


@memory.command()
async def compact(
    space: Space,
    function: Annotated[
        str | None,
        option(
            "Function that proposes: takes findings and files, returns new texts by path.",
            "MODULE:FUNCTION",
            "--with",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None, option("Must stay findable, like those in keep.md.", "PHRASE")
    ] = None,
    drop_max: Annotated[
        float, option("Largest share of tokens and lines to drop.", "SHARE")
    ] = DROP_MAX,
    apply: Annotated[bool, flag("--apply", "Apply the change, unless it is refused.")] = False,
    propose: Annotated[bool, flag("--propose", "Propose it for 'hansard memory apply'.")] = False,
    by: By = OS_USER,
) -> None:
    """Find text that can be shortened.

    Also shows why a proposal would be refused. Nothing is changed without --apply. Without --with,
    lines that repeat the words of other lines are removed.
    """
    terms: Any = {"keep": [Probe(each) for each in keep or ()], "drop_max": drop_max}
    async with answering() as reader:
        terms["reads"] = compacting.reads(reader, space)
    async with reading() as workspace:
        state = await MemoryStore(workspace, space).whole()
        compaction = compacting.judged(space, state, **terms)
        label = _label_of(state, compaction.compacted)
        if function is not None:
            tree = inspected.texts_of(state)
            label = join(*(state.files[path].label for path in tree))
            texts = await interruptible(named(function))(compaction.compacted.findings, tree)
            compaction = compacting.judged(space, state, texts, **terms)
        changes = compaction.compacted.changes
        if apply and changes:
            compaction.version = await _apply_compaction(
                workspace, space, state, changes, by, label
            )
        elif propose and changes:
            compaction.proposed = await upkeep.propose(workspace, space, by, state, changes, label)
    output.show(compaction, _render_compaction(compaction))


@memory.command()
async def reflect(
    space: Space,
    function: ReflectWith = None,
    ask: AskModel = None,
    limit: Annotated[int, option("Most runs.", "N")] = RUNS_MAX,
) -> None:
    """Reflect on runs that ended since the last reflection.

    Each run is reflected on once; no file is changed.
    """
    await _reflect(space, function, ask, limit=limit)


async def _reflect(
    space: str, function: str | None, ask: str | None, of_run: str | None = None, **more: Any
) -> None:
    """Reflect on one run, or on all that ended since the last reflection. Raises BadValue."""
    if function is not None and ask is not None:
        raise BadValue("--ask", "--with is given, too", "give one: a model, or what proposes")
    propose = interruptible(named(function)) if function is not None else user_requests
    model = interruptible(named(ask, "--ask")) if ask is not None else None
    async with connect_async(**connecting()) as record:
        files = await inspected.tree_of(record.workspace, space)
        if of_run is not None:
            more["run"] = await find_run(record.workspace, of_run)
        reflected = await reflection.reflect(record, space, files, propose, ask=model, **more)
    output.show(reflected, _render_reflection(reflected))


@memory.command()
async def judge(
    run: Annotated[str, argument("RUN", "A reflection's own run.")],
    key: Annotated[Path, argument("KEY", "JSON [{path, words, never}]: the expected proposals.")],
    by: By = "answer key",
) -> None:
    """Compare what a reflection proposed with an answer key.

    Lists missing, spurious, misplaced and too specific proposals. In SQL, 'FROM remembering()' sums
    them per version of the prompt 'memory-remember'.
    """
    target = _key(key)
    async with connect_async(**connecting()) as record:
        judgement = await reflection.judge(
            record, await find_run(record.workspace, run), target, by
        )
    output.show(judgement, [output.pairs(msgspec.structs.asdict(judgement).items())])


def _key(path: Path) -> list[ExpectedLine]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[ExpectedLine])
    except (OSError, msgspec.DecodeError) as error:
        remedy = 'give a JSON file: [{"path": "AGENTS.md", "words": ["last"], "never": []}]'
        raise BadValue(str(path), f"it is no key ({error})", remedy) from error


def _label_of(state: MemoryState, made: CompactionResult) -> Label:
    """Return the label of a compaction without a function.

    It combines the labels of the files that it changes and of the files that hold the lines it
    removes from them.
    """
    spots = [
        spot
        for finding in made.findings
        if any(spot.path in made.changes for spot in finding.spots)
        for spot in finding.spots
    ]
    read = {*made.changes, *(spot.path for spot in spots)}
    return join(*(state.files[path].label for path in read if path in state.files))


async def _apply_compaction(
    workspace: Workspace, space: str, state: MemoryState, changes: Changes, by: str, label: Label
) -> int:
    """Record a compaction's change of the files as they were read, and return the space's version.

    The change carries the label of its inputs. Raises MemoryConflict if a file was changed since.
    """
    ops = [
        drafts.delete(path) if text is None else drafts.create(path, text)
        for path, text in changes.items()
    ]
    seen = {path: state.files[path].digest for path in changes if path in state.files}
    store = MemoryStore(workspace, space)
    return await store.change(ops, by, "compaction", seen=seen, label=label.stored)


def _render_paths(paths: Paths) -> Iterator[Part]:
    yield from paths.paths
    yield Hint(f"{counted(len(paths.paths), 'file')}{', and more' if paths.more else ''}")


def _render_lines(lines: Lines) -> Iterator[Part]:
    yield from (f"{each.path}:{each.line}: {each.text}" for each in lines.lines)
    more = ", and more" if lines.more else ""
    yield Hint(f"{counted(len(lines.lines), 'line')} in {counted(lines.files, 'file')}{more}")


def _render_hits(hits: SearchResult) -> Iterator[Part]:
    if hits.hits:
        yield output.listing(HITS, hits.hits)
    more = ", and more" if hits.more else ""
    yield Hint(f"{counted(len(hits.hits), 'file')} by {hits.by}{more}")


def _render_compaction(compaction: MemoryCompaction) -> Iterator[Part]:
    made = compaction.compacted
    for finding in made.findings:
        spot = finding.spots[0]
        yield f"{spot.path}:{spot.line}: {finding.kind.value}: {finding.says}"
    for path, text in made.changes.items():
        yield f"{path}: {'goes' if text is None else counted(len(text), 'character')}"
    yield from (f"refused: {why}" for why in made.refused)
    yield from (f"not found before either: {probe}" for probe in made.unmet)
    if compaction.proposed:
        yield Hint(f"it waits: 'hansard memory apply {compaction.space}' makes it a change")
    elif compaction.version is not None:
        yield Hint(f"{compaction.space} is at version {compaction.version}")
    elif made.changes:
        tokens = f"{made.tokens_before:,} to {counted(made.tokens_after, 'token')}"
        yield Hint(f"{tokens}, {counted(made.probes, 'probe')} kept; apply it with --apply")
    else:
        yield Hint("nothing is changed")


def _render_reflection(reflected: Reflected) -> Iterator[Part]:
    for each in reflected.proposals:
        yield f"{each.path}: {each.text.rstrip()} ({each.because or 'no reason given'})"
    text = f"{counted(len(reflected.runs), 'run')} reflected on, {reflected.left:,} left"
    yield Hint(f"{text}; no file was changed")


def _render_proposals(waiting: MemoryProposals) -> Iterator[Part]:
    for each in waiting.proposals:
        under = f", {each.label}" if each.label else ""
        yield f"{each.proposal} {each.path}: {each.standing.value}{under}: {each.because}"
        if each.diff:
            yield each.diff
    yield Hint(f"{counted(len(waiting.proposals), 'proposal')} for {waiting.space}")


def _in_words(terms: MemoryPolicySet) -> str:
    if terms.approval is MemoryApproval.ASK:
        return "wait for a person's word"
    until = f" until {terms.until.isoformat()}" if terms.until is not None else ""
    but = ", ".join(terms.untrusted)
    rest = f"; so are those of {but} that rest on untrusted input" if but else ""
    return f"are made unasked{until}{rest}"


def _render_files(listing: MemoryListing) -> Iterator[Part]:
    if listing.files:
        yield output.listing(FILES, listing.files)
    value = counted(len(listing.spaces), "space")
    yield Hint(f"{counted(len(listing.files), 'file')} of {value}")


def _render_file(entry: MemoryEntry) -> Iterator[Part]:
    yield Bytes(entry.text.encode())
    yield Hint(f"{entry.path} of {entry.space}, as of version @{entry.version} by {entry.author}")


Folder = Annotated[Path, argument("DIR", "The folder.")]
OfSpace = Annotated[str, option("agent/NAME, user/PRINCIPAL or org.", "SPACE", show_default=True)]
As = Annotated[Harness, option("Layout of the folder.", None, "--as")]
AT = "A version ('@3'), a position, a time, or the id of a change."


@memory.command()
async def export(
    folder: Folder,
    harness: As = Harness.AGENTS_MD,
    space: OfSpace = ORG,
    at: Annotated[str | None, option(AT, "POINT")] = None,
    settings: Annotated[
        bool, flag("--settings", "Export files that configure the harness itself, too.")
    ] = False,
) -> None:
    """Write a space's files to a new folder.

    Files are put where a harness looks for them; those that it cannot express are listed. The
    folder is written completely or not at all.
    """
    async with reading() as workspace:
        state = await workspace.memories.whole(space_name(space), at)
    made = harnesses.export(of_space(state.files), harness, settings=settings)
    harnesses.write(folder, made.tree)
    fields = {
        "space": space,
        "version": state.version,
        "folder": str(folder),
        "files": len(made.tree),
        "notes": made.notes,
    }
    text = f"{counted(len(made.tree), 'file')} of {space} (version {state.version}) in {folder}"
    output.show(fields, _render_notes(text, made.notes))


@memory.command("import")
async def import_(
    folder: Annotated[Path | None, argument("[DIR]", "Folder of a harness.")] = None,
    harness: As = Harness.AGENTS_MD,
    git: Annotated[
        Path | None, option("A git repository: each commit becomes a change.", "REPO")
    ] = None,
    revision: Annotated[str, option("With --git: last commit to import.")] = "HEAD",
    space: OfSpace = ORG,
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

    All files are checked before any is written. Commits already imported are skipped.
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
    output.show(report, _render_import(report))


def _render_import(report: ImportResult) -> Iterator[Part]:
    made = f"{counted(report.changes, 'change')} of {counted(len(report.files), 'file')}"
    yield from _render_notes(
        f"{made} in {report.space}, which is at version {report.version}", report.left_out
    )
    for each in report.warnings:
        yield Hint(f"kept: {each}")


@memory.command()
async def checkout(folder: Folder, harness: As = Harness.AGENTS_MD, space: OfSpace = ORG) -> None:
    """Write a space to a folder to be edited as real files.

    'hansard memory commit DIR' records your edits as one change.
    """
    async with reading() as workspace:
        mark, notes = await imports.checkout(workspace, space_name(space), folder, harness)
    fields = {"space": mark.space, "version": mark.version, "folder": str(folder), "notes": notes}
    text = f"{mark.space} (version {mark.version}) is in {folder}"
    output.show(fields, _render_notes(text, notes))


@memory.command()
async def commit(folder: Folder, reason: Reason = "", by: By = OS_USER) -> int:
    """Record the edits of a checkout as one change.

    Afterwards the folder has the space's current files. If someone else changed one of the same
    files, nothing is written and both texts are shown (exit code 1).
    """
    async with beginning() as workspace:
        try:
            done = await imports.commit(workspace, folder, reason=reason, by=by)
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
            output.show(fields, parts)
            return 1
    output.show(done, _render_commit(done))
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


@memory.command()
async def validate(
    folder: Annotated[Path | None, argument("[DIR]", "A folder; else the space.")] = None,
    space: OfSpace = ORG,
) -> int:
    """Validate a folder or a space.

    Checks skills, subagents, tools, instructions, links and paths. Exits with 1 if there are
    problems.
    """
    if folder is not None:
        files = harnesses.read(folder, leave_out=[imports.MARK])
    else:
        async with reading() as workspace:
            files = of_space((await workspace.memories.whole(space_name(space))).files)
    problems = drafts.problems(files)
    total = counted(len(problems), "problem") if problems else "no problem"
    text = "\n".join([*map(str, problems), f"{counted(len(files), 'file')}, {total}"])
    output.show({"files": len(files), "problems": problems}, text)
    return 1 if problems else 0


def _render_notes(line: str, notes: list[str]) -> Iterator[Part]:
    yield line
    for note in notes:
        yield Hint(note)
