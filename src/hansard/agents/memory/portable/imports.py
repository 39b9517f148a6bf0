"""Folders and histories of git brought into a space."""

from __future__ import annotations

from pathlib import Path

import msgspec

from hansard.agents.memory.portable import folders, git, harnesses
from hansard.agents.memory.portable.changes import Claimed, Wanted, change, difference
from hansard.agents.memory.portable.folders import BadFolder
from hansard.agents.memory.portable.harnesses import Harness
from hansard.agents.memory.validation.tree import WARNINGS, faults, problems
from hansard.agents.memory.validation.trees import Link, of_space
from hansard.agents.workspace import Workspace
from hansard.bus.clock import OS_USER
from hansard.domain import ids
from hansard.domain.choices import counted, shortened
from hansard.domain.memory.events import MemoryChanged
from hansard.domain.memory.space import BECAUSE_MAX, formed

TRAILER = "\n\nGit-Commit: "
"""Before a commit's hash in why the last change of it was made: the commit is imported whole."""

TOLD_MAX = 5
"""Most problems of a history that its error tells."""

AUTHOR_CHARS_MAX = 200


class Imported(msgspec.Struct, frozen=True):
    """What an import came to.

    Attributes:
        space: The space.
        version: That it has now.
        changes: How many changes were made.
        files: The paths that changed, sorted.
        left_out: What was not valid and left out, each a sentence.
        warnings: What was kept though the format does not name it, each a sentence.
    """

    space: str
    version: int
    changes: int
    files: list[str]
    left_out: list[str]
    warnings: list[str] = []


async def import_folder(  # noqa: PLR0913 -- the options of its command
    workspace: Workspace,
    space: str,
    folder: Path,
    harness: Harness = Harness.AGENTS_MD,
    *,
    replace: bool = False,
    leave_out: bool = False,
    keep: bool = False,
    because: str = "",
    by: str = OS_USER,
) -> Imported:
    """Have a space have the files of a harness's folder, as one change; with `replace` no others
    but those that no folder shows (`folders.is_left_out`). `leave_out`: files that cannot be read
    or are not valid stay as they were, or away; `keep`: what is not valid is kept and warned of,
    unless it is no text where a harness reads one; else the whole folder is refused.

    Raises BadFolder, MemoryInvalid, MemoryConflict, BadValue, ExtraMissing.
    """
    left_out: list[str] = []
    found = folders.read(folder, unread=left_out if leave_out else None)
    state = await workspace.memories.whole(space)
    base = of_space(state.files)
    wanted = difference(base, harnesses.imported(found, harness, base))
    if not replace:
        wanted = {path: content for path, content in wanted.items() if content is not None}
    if leave_out:
        wanted, invalid = _checked(wanted, dict(base), keep=keep)
        left_out += invalid
    after = {**base, **{path: content for path, content in wanted.items() if content is not None}}
    found_there = problems(after, only=wanted)
    warnings = [str(each) for each in found_there if keep or each.rule in WARNINGS]
    binary = [path for path in sorted(wanted) if _is_binary(path, wanted[path])]
    if binary:
        warnings.append(
            f"{counted(len(binary), 'binary file')} as bytes, which agents are not shown: "
            f"{shortened(binary)}"
        )
    seen = {path: file.digest for path, file in state.files.items()}
    version = await change(workspace, space, wanted, seen=seen, because=because, by=by, keep=keep)
    return Imported(
        space, version, int(version != state.version), sorted(wanted), left_out, warnings
    )


def _is_binary(path: str, content: bytes | Link | None) -> bool:
    return isinstance(content, bytes) and formed(path, content)[1].binary


async def import_git(
    workspace: Workspace,
    space: str,
    repository: Path,
    revision: str = "HEAD",
    *,
    leave_out: bool = False,
    keep: bool = False,
    by: str = "import",
) -> Imported:
    """Make each commit of a history a change, with its author and time as claimed. It goes on after
    the newest commit that a change of the space names, so that a killed import is run again and a
    commit that changed nothing on the way is not made over what followed it.

    A commit of more than 500 files is several changes, and only the last names it. A commit that
    changed nothing is named nowhere: while none after it changed anything, it is made again, over
    what was written since. Of a history that was rewritten, the commits from the first rewritten
    one on are new: they are made on top, and files that only the old ones had stay.

    All is checked before the first change is made. `leave_out`: files that are not valid stay as
    they were, or away; `keep`: they are kept; else BadFolder tells of them. Raises as
    `import_folder`.
    """
    done = await _done(workspace, space)
    state = await workspace.memories.whole(space)
    tree = of_space(state.files)
    left_out: list[str] = []
    for each in git.changes(repository, revision, done=done):
        _, told = _checked(each.files, tree, each.commit, keep=keep)
        left_out += told
    if left_out and not leave_out:
        more = f" (and {len(left_out) - TOLD_MAX:,} more)" if len(left_out) > TOLD_MAX else ""
        fact = f"has files that are not valid{more}: {'. '.join(left_out[:TOLD_MAX])}"
        raise BadFolder(repository, fact, "leave them out with --skip-invalid")
    return await _make(workspace, space, repository, revision, done, left_out, by, keep=keep)


async def _make(
    workspace: Workspace,
    space: str,
    repository: Path,
    revision: str,
    done: set[str],
    left_out: list[str],
    by: str,
    *,
    keep: bool,
) -> Imported:
    state = await workspace.memories.whole(space)
    tree, version = of_space(state.files), state.version
    files: set[str] = set()
    changes = 0
    for each in git.changes(repository, revision, done=done):
        wanted, _ = _checked(each.files, tree, keep=keep)
        after = await change(
            workspace,
            space,
            wanted,
            because=each.message[: BECAUSE_MAX - 100],
            by=by,
            claimed=Claimed(_author(each.author), each.at.isoformat()),
            trailer=f"{TRAILER}{each.commit}",
            keep=keep,
        )
        changes += after != version
        version = after
        files |= wanted.keys()
    return Imported(space, version, changes, sorted(files), left_out)


async def _done(workspace: Workspace, space: str) -> set[str]:
    """The commits that changes of a space name."""
    return {
        each.event.because.rpartition(TRAILER)[2]
        for each in await workspace.memories.history(space)
        if isinstance(each.event, MemoryChanged) and TRAILER in each.event.because
    }


def _checked(
    files: Wanted, tree: dict[str, bytes | Link], commit: str = "", *, keep: bool = False
) -> tuple[dict[str, bytes | Link | None], list[str]]:
    """The changes that may be made of a tree, which has them afterwards, and what is left out."""
    wanted = {path: content for path, content in files.items() if content is not None}
    gone = [path for path, content in files.items() if content is None and path in tree]
    where = f"commit {commit[:12]}: " if commit else ""
    told: list[str] = []
    for path in gone:
        tree.pop(path)
    stood = {path: tree.get(path) for path in wanted}
    tree |= wanted
    while found := faults(problems(tree, only=list(wanted)), keep=keep):
        told += [f"{where}{problem}" for problem in found]
        for path in {problem.path for problem in found}:
            before = stood[path] if wanted.pop(path, None) is not None else None
            tree.pop(path, None)
            if before is not None:
                tree[path] = before
            elif path not in files:  # a link to what this commit took away
                gone.append(path)
    return {**dict.fromkeys(gone), **wanted}, told


def _author(said: str) -> str:
    """A claimed name as a name may be."""
    plain = "".join(letter if letter.isprintable() else " " for letter in said).strip()
    return ids.name("author", plain[:AUTHOR_CHARS_MAX] or "unknown")
