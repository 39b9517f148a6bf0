"""Folders and git histories imported into a space, and a space checked out as a folder.

Each imported change is checked as an agent's is.

The folder's mark names the version that it was made of. A commit is based on the digests of that
version, then updates the folder with the changes of others, each file whole, and the mark last. If
it is killed at any point, the same command can be run again.

Files that a folder does not show (`harnesses.is_left_out`) are written by a checkout, except at the
mark's path, but neither committed nor updated: they stay unchanged in the space.

Long because folders, git histories and checkouts share one way to change a space.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import secrets
import subprocess
import threading
from collections.abc import Collection, Generator, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from hansard.agents.memory.drafts import WARNINGS, faults, problems, problems_of_change
from hansard.agents.memory.formats import Executable, Link, Tree, of_space
from hansard.agents.memory.store import MemoryStore
from hansard.agents.workspace import Workspace
from hansard.bus import file_lock
from hansard.bus.clock import OS_USER
from hansard.domain import ids
from hansard.domain.choices import counted, shortened
from hansard.domain.events import Actor
from hansard.domain.memory import space as spaces
from hansard.domain.memory.files import (
    LINK,
    FileChange,
    FileForm,
    MemoryChanged,
    configures_harness,
    digest_of,
)
from hansard.domain.memory.space import (
    BECAUSE_MAX,
    BINARY_BYTES_MAX,
    CHANGE_FILES_MAX,
    MemoryConflict,
    MemoryInvalid,
    MemoryState,
    formed,
)
from hansard.ext.memory import harnesses
from hansard.ext.memory.harnesses import BadFolder, Harness

# Git runs as a process of its own, without the repository's hooks, programs or network, and with
# limits of time and bytes. The line of first parents is followed, oldest first: a merge is one
# change.

TargetFiles = Mapping[str, bytes | Link | None]
"""Required content at each path; None for no file."""


class ClaimedOrigin(msgspec.Struct, frozen=True):
    """Author and time of a change, as another system claims them.

    Attributes:
        author: Name, verbatim.
        at: ISO 8601.
    """

    author: str
    at: str


async def change(  # noqa: PLR0913 -- all are fields of a change
    workspace: Workspace,
    space: str,
    command: TargetFiles,
    *,
    seen: Mapping[str, str] | None = None,
    reason: str = "",
    by: str = OS_USER,
    claimed: ClaimedOrigin | None = None,
    trailer: str = "",
    keep: bool = False,
) -> int:
    """Write files of a space and return the resulting version. At most 500 files form one commit;
    more are split into several, after all of them were checked together.

    Args:
        workspace: Workspace of the space.
        space: Name of the space.
        command: Files to change.
        seen: Digests of these files as the writer read them (none: no file); None skips the check.
        reason: Reason.
        by: Person or program that makes the change.
        claimed: Author and time in the source system.
        keep: Accept files that no harness accepts, as long as they can be read.
        trailer: Appended to `reason` in the last commit only, which marks that all commits were
            made.

    Raises MemoryConflict, MemoryInvalid, BadValue, BadName, ExtraMissing.
    """
    texts = {path: _text(path, content) for path, content in command.items()}
    state = await workspace.memories.state(space)
    if len(texts) > CHANGE_FILES_MAX:
        await workspace.memories.load(state.files.values())
        _demand_valid(space, state, command, keep=keep)
        # An unchanged file makes no commit, but the last part must make one, for the trailer.
        texts = {path: text for path, text in texts.items() if not _is_so(state, path, text)}
    check = functools.partial(problems_of_change, keep=True) if keep else problems_of_change
    store = MemoryStore(workspace, space, validate=check)
    actor = Actor(by, (claimed.author,) if claimed is not None else ())
    at = claimed.at if claimed is not None else None
    version = state.version
    parts = list(_parts(texts))
    for number, part in enumerate(parts, 1):
        changes = functools.partial(_changes, space, part, seen)
        why = reason + trailer if number == len(parts) else reason
        version = await store.change_files(changes, part, actor, why, occurred_at=at)
    return version


_Text = tuple[str, FileForm]


def _text(path: str, content: bytes | Link | None) -> _Text | None:
    match content:
        case None:
            return None
        case Link():
            return content.target, LINK
        case bytes():
            return spaces.formed(path, content, executable=isinstance(content, Executable))


def _is_so(state: MemoryState, path: str, text: _Text | None) -> bool:
    previous = state.files.get(path)
    digest = previous.digest if previous is not None else None
    return digest == (digest_of(*text) if text is not None else None)


def _demand_valid(space: str, state: MemoryState, command: TargetFiles, *, keep: bool) -> None:
    after: dict[str, bytes | Link] = of_space(state.files)
    for path, content in command.items():
        after.pop(path, None)
        if content is not None:
            after[path] = content
    bad = problems(after, only=[path for path in command if path in after])
    bad = faults(bad, keep=keep)
    if bad:
        raise MemoryInvalid(space, bad)


def _parts(texts: Mapping[str, _Text | None]) -> Iterator[dict[str, _Text | None]]:
    """Yield parts of a change: files before the links to them, deletions last."""

    def rank(path: str) -> tuple[int, str]:
        text = texts[path]
        return (2 if text is None else 1 if text[1].link else 0), path

    paths = sorted(texts, key=rank)
    for begin in range(0, len(paths), CHANGE_FILES_MAX):
        yield {path: texts[path] for path in paths[begin : begin + CHANGE_FILES_MAX]}


def _changes(
    space: str,
    texts: Mapping[str, _Text | None],
    seen: Mapping[str, str] | None,
    state: MemoryState,
) -> list[FileChange]:
    """Return the change of each file; a deleted file whose content reappears at a new path is a
    rename.
    """
    gone: dict[str, str] = {}
    for path, text in texts.items():
        previous = state.files.get(path)
        if seen is not None:
            _demand_seen(space, state, path, text, seen.get(path, ""))
        if text is None and previous is not None:
            gone.setdefault(previous.digest, path)
    moved: set[str] = set()
    changes: list[FileChange] = []
    for path, text in texts.items():
        if text is None:
            continue
        previous = state.files.get(path)
        if previous is None:
            was = gone.pop(digest_of(*text), None)
            if was is not None:
                moved.add(was)
                previous = state.files[was]
        changed = spaces.change_of(path, previous, *text)
        changes += [changed] if changed is not None else []
    for path, text in texts.items():
        if text is None and path not in moved:
            changed = spaces.change_of(path, state.files.get(path), None)
            changes += [changed] if changed is not None else []
    return changes


def _demand_seen(
    space: str, state: MemoryState, path: str, text: _Text | None, expected: str
) -> None:
    """Raise MemoryConflict if a file is neither as it was read nor as it is to become."""
    previous = state.files.get(path)
    digest = previous.digest if previous is not None else ""
    target = digest_of(*text) if text is not None else ""
    if digest not in {expected, target}:
        raise MemoryConflict(
            space, path, expected, spaces.shown(*text) if text is not None else "", previous
        )


def difference(before: Tree, after: Tree) -> dict[str, bytes | Link | None]:
    """Return the changes that turn one tree into another."""
    changed: dict[str, bytes | Link | None] = {
        path: content for path, content in after.items() if before.get(path) != content
    }
    return changed | {path: None for path in before if path not in after}


COMMITS_MAX = 100_000
PATHS_MAX = 20_000
"""Most paths changed by one commit."""

ANSWER_BYTES_MAX = 64 << 20
"""Most bytes of a list that git returns at once."""

GIT_S_MAX = 300.0
"""Timeout for reading one history, in seconds."""

_LINK, _SUBMODULE, _EXECUTABLE = b"120000", b"160000", b"100755"
_WHO = re.compile(
    rb"^author (?P<name>.*?) ?<(?P<mail>[^>]*)> (?P<at>-?\d+) [+-]\d{4}$", re.MULTILINE
)
_SAFE = (
    *("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"),
    *("-c", "protocol.allow=never", "-c", "safe.directory=*", "-c", "core.quotePath=false"),
)


class GitChange(msgspec.Struct, frozen=True):
    """Changes of one commit.

    Attributes:
        commit: Hash.
        author: Author as claimed, with the address if there is one.
        at: Time as claimed.
        message: Commit message.
        files: Each changed path with its new content; None for a deleted file.
    """

    commit: str
    author: str
    at: datetime
    message: str
    files: dict[str, bytes | Link | None]


def git_changes(
    repository: Path, revision: str = "HEAD", *, done: Collection[str] = ()
) -> Iterator[GitChange]:
    """Yield the changes of a history, oldest first, without commits that changed no file. Blocks.

    `done`: hashes of imported commits; only the commits after the newest of them are returned. A
    commit's hash covers its whole line of first parents, so all earlier ones are imported too.

    Raises BadFolder: no repository, no git, a missing commit, a file that is too large.
    """
    listed = _git_output(
        repository,
        *("rev-list", "--reverse", "--first-parent", f"--max-count={COMMITS_MAX + 1}"),
        *("--end-of-options", f"{revision}^{{commit}}", "--"),
    )
    commits = listed.split()
    if len(commits) > COMMITS_MAX:
        raise BadFolder(
            repository, f"has more than {COMMITS_MAX:,} commits", "name a later revision"
        )
    with _cat(repository) as cat:
        begin = max((at for at, each in enumerate(commits, 1) if each.decode() in done), default=0)
        before = commits[begin - 1] if begin else None
        for commit in commits[begin:]:
            header, _, message = cat(commit, b"commit").partition(b"\n\n")
            files = _files(repository, before, commit, cat)
            before = commit
            if files:
                yield _change(repository, commit.decode(), header, message, files)


def _change(
    repository: Path,
    commit: str,
    header: bytes,
    message: bytes,
    files: dict[str, bytes | Link | None],
) -> GitChange:
    who = _WHO.search(header)
    if who is None:
        raise BadFolder(
            repository, f"has a commit {commit} without an author", "mend it with git fsck"
        )
    name, mail = (who[part].decode(errors="replace") for part in ("name", "mail"))
    try:
        at = datetime.fromtimestamp(int(who["at"]), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise BadFolder(
            repository, f"has a commit {commit} of a time that is none", "mend it with git fsck"
        ) from error
    return GitChange(
        commit=commit,
        author=f"{name} <{mail}>" if mail else name,
        at=at,
        message=message.decode(errors="replace").strip(),
        files=files,
    )


def _files(
    repository: Path, before: bytes | None, commit: bytes, cat: _Cat
) -> dict[str, bytes | Link | None]:
    """Return the changes from one commit to the next, without submodules."""
    since = (before.decode(), commit.decode()) if before else ("--root", commit.decode())
    raw = _git_output(
        repository,
        "diff-tree",
        "-r",
        "-z",
        "--raw",
        "--no-renames",
        "--no-abbrev",
        "--no-commit-id",
        *since,
    )
    parts = raw.split(b"\0")[:-1]
    if len(parts) > 2 * PATHS_MAX:
        fact = f"has a commit {commit.decode()} of more than {PATHS_MAX:,} files"
        raise BadFolder(repository, fact, "name a repository of memory alone")
    files: dict[str, bytes | Link | None] = {}
    for texts, path in zip(parts[::2], parts[1::2], strict=True):
        _, mode, _, blob, status = texts.split(b" ")
        name = os.fsdecode(path)
        if status == b"D":
            files[name] = None
        elif mode == _LINK:
            files[name] = Link(os.fsdecode(cat(blob, b"blob")))
        elif mode != _SUBMODULE:
            content = cat(blob, b"blob")
            files[name] = Executable(content) if mode == _EXECUTABLE else content
    return files


class _Cat:
    """Reads objects of a repository by their hashes."""

    def __init__(self, repository: Path, ask: BinaryIO, answers: BinaryIO) -> None:
        self._repository = repository
        self._ask = ask
        self._answers = answers

    def __call__(self, name: bytes, kind: bytes) -> bytes:
        self._ask.write(name + b"\n")
        self._ask.flush()
        head = self._answers.readline().split()
        if len(head) != 3 or head[1] != kind:  # noqa: PLR2004 -- hash, kind, size
            fact = f"lacks the {kind.decode()} {name.decode()}"
            raise BadFolder(self._repository, fact, "fetch all of it first")
        size = int(head[2])
        if size > BINARY_BYTES_MAX:
            fact = f"has a file of {size:,} bytes ({name.decode()})"
            raise BadFolder(
                self._repository, fact, f"leave out what has more than {BINARY_BYTES_MAX:,} bytes"
            )
        content = self._answers.read(size)
        self._answers.read(1)
        return content


@contextlib.contextmanager
def _cat(repository: Path) -> Generator[_Cat]:
    with _git_process(repository, "cat-file", "--batch") as process:
        yield _Cat(repository, cast("BinaryIO", process.stdin), cast("BinaryIO", process.stdout))


def _git_output(repository: Path, *arguments: str) -> bytes:
    """Run git and return its whole output. Raises BadFolder."""
    with _git_process(repository, *arguments) as process:
        answer = cast("BinaryIO", process.stdout).read(ANSWER_BYTES_MAX + 1)
        if len(answer) > ANSWER_BYTES_MAX:
            fact = f"has a commit of which git says more than {ANSWER_BYTES_MAX:,} bytes"
            raise BadFolder(repository, fact, "name a repository of memory alone")
        if process.wait():
            fact = f"cannot be read by git ({arguments[0]} left with {process.returncode})"
            raise BadFolder(repository, fact, "name a git repository, and a revision that it has")
        return answer


@contextlib.contextmanager
def _git_process(repository: Path, *arguments: str) -> Generator[subprocess.Popen[bytes]]:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
    }
    try:
        process = subprocess.Popen(  # noqa: S603 -- git, with arguments made here
            ["git", "--no-pager", *_SAFE, "-C", str(repository), *arguments],  # noqa: S607 -- found on PATH
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
    except OSError as error:
        raise BadFolder(repository, "cannot be read: git is not installed", "install it") from error
    late = threading.Timer(GIT_S_MAX, process.kill)
    late.daemon = True
    late.start()
    try:
        yield process
    finally:
        late.cancel()
        process.kill()
        process.communicate()


TRAILER = "\n\nGit-Commit: "
"""Precedes a commit's hash in the reason of its last change: the commit is imported completely."""

LISTED_MAX = 5
"""Most problems of a history that an error lists."""

AUTHOR_CHARS_MAX = 200


class ImportResult(msgspec.Struct, frozen=True):
    """Result of an import.

    Attributes:
        space: Name of the space.
        version: New version of the space.
        changes: Number of changes made.
        files: Changed paths, sorted.
        left_out: Files left out as invalid, a sentence each.
        warnings: Files kept though the format does not name them, a sentence each.
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
    reason: str = "",
    by: str = OS_USER,
) -> ImportResult:
    """Import the files of a harness's folder into a space as one change.

    `replace`: delete all other files that a folder can show (`harnesses.is_left_out`). `leave_out`:
    skip unreadable and invalid files, so that they keep their previous state. `keep`: keep invalid
    files with a warning, unless a file that a harness reads is no text. Otherwise an invalid file
    refuses the whole folder.

    Raises BadFolder, MemoryInvalid, MemoryConflict, BadValue, ExtraMissing.
    """
    left_out: list[str] = []
    files = harnesses.read(folder, unread=left_out if leave_out else None)
    state = await workspace.memories.whole(space)
    base = of_space(state.files)
    targets = difference(base, harnesses.import_tree(files, harness, base))
    if not replace:
        targets = {path: content for path, content in targets.items() if content is not None}
    if leave_out:
        targets, invalid = _apply_valid(targets, dict(base), keep=keep)
        left_out += invalid
    after = {**base, **{path: content for path, content in targets.items() if content is not None}}
    found_there = problems(after, only=targets)
    warnings = [str(each) for each in found_there if keep or each.rule in WARNINGS]
    binary = [path for path in sorted(targets) if _is_binary(path, targets[path])]
    if binary:
        warnings.append(
            f"{counted(len(binary), 'binary file')} as bytes, which agents are not shown: "
            f"{shortened(binary)}"
        )
    seen = {path: file.digest for path, file in state.files.items()}
    version = await change(workspace, space, targets, seen=seen, reason=reason, by=by, keep=keep)
    return ImportResult(
        space, version, int(version != state.version), sorted(targets), left_out, warnings
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
) -> ImportResult:
    """Import each commit of a history as a change, with its author and time as claimed. Continues
    after the newest commit that a change of the space names, so a killed import can be run again,
    and a commit without changes in between is not applied over later ones.

    A commit of more than 500 files becomes several changes, and only the last one names it. A
    commit that changed nothing is named nowhere: until a later commit changes something, it is
    applied again, over anything written since. After a rewrite of the history, all commits from the
    first rewritten one are new: they are applied on top, and files that only the old commits had
    stay.

    Everything is checked before the first change is made. `leave_out`: invalid files keep their
    previous state; `keep`: they are kept; otherwise BadFolder lists them. Raises as
    `import_folder`.
    """
    done = await _imported_commits(workspace, space)
    state = await workspace.memories.whole(space)
    tree = of_space(state.files)
    left_out: list[str] = []
    for each in git_changes(repository, revision, done=done):
        _, value = _apply_valid(each.files, tree, each.commit, keep=keep)
        left_out += value
    if left_out and not leave_out:
        more = f" (and {len(left_out) - LISTED_MAX:,} more)" if len(left_out) > LISTED_MAX else ""
        fact = f"has files that are not valid{more}: {'. '.join(left_out[:LISTED_MAX])}"
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
) -> ImportResult:
    state = await workspace.memories.whole(space)
    tree, version = of_space(state.files), state.version
    files: set[str] = set()
    changes = 0
    for each in git_changes(repository, revision, done=done):
        target, _ = _apply_valid(each.files, tree, keep=keep)
        after = await change(
            workspace,
            space,
            target,
            reason=each.message[: BECAUSE_MAX - 100],
            by=by,
            claimed=ClaimedOrigin(_author(each.author), each.at.isoformat()),
            trailer=f"{TRAILER}{each.commit}",
            keep=keep,
        )
        changes += after != version
        version = after
        files |= target.keys()
    return ImportResult(space, version, changes, sorted(files), left_out)


async def _imported_commits(workspace: Workspace, space: str) -> set[str]:
    """Return the commits named in changes of a space."""
    return {
        each.event.because.rpartition(TRAILER)[2]
        for each in await workspace.memories.history(space)
        if isinstance(each.event, MemoryChanged) and TRAILER in each.event.because
    }


def _apply_valid(
    files: TargetFiles, tree: dict[str, bytes | Link], commit: str = "", *, keep: bool = False
) -> tuple[dict[str, bytes | Link | None], list[str]]:
    """Apply the valid changes to a tree; return them, and a note for each one left out."""
    targets = {path: content for path, content in files.items() if content is not None}
    gone = [path for path, content in files.items() if content is None and path in tree]
    where = f"commit {commit[:12]}: " if commit else ""
    items: list[str] = []
    for path in gone:
        tree.pop(path)
    previous = {path: tree.get(path) for path in targets}
    tree |= targets
    while bad := faults(problems(tree, only=list(targets)), keep=keep):
        items += [f"{where}{problem}" for problem in bad]
        for path in {problem.path for problem in bad}:
            before = previous[path] if targets.pop(path, None) is not None else None
            tree.pop(path, None)
            if before is not None:
                tree[path] = before
            elif path not in files:  # a link to a file that this commit deleted
                gone.append(path)
    return {**dict.fromkeys(gone), **targets}, items


def _author(text: str) -> str:
    """Convert a claimed name to a valid author name."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text).strip()
    return ids.name("author", plain[:AUTHOR_CHARS_MAX] or "unknown")


MARK = harnesses.MARK
MARK_BYTES_MAX = 64 * 1024

_PART_BYTES = 8
_PART = re.compile(rf"\.[0-9a-f]{{{2 * _PART_BYTES}}}{re.escape(harnesses.PARTIAL)}")
"""Name of a file that is not complete yet."""


class Mark(msgspec.Struct, frozen=True):
    """Source of a checked-out folder.

    Attributes:
        space: Name of the space.
        version: Version of the space's stream.
        harness: Harness whose format the folder has.
    """

    space: str
    version: int
    harness: Harness = Harness.AGENTS_MD


class CommitResult(msgspec.Struct, frozen=True):
    """Result of a commit.

    Attributes:
        space: Name of the space.
        version: New version of the space and of the folder.
        changed: Paths in the space's tree that the folder changed.
        brought: Paths of the folder that were updated with changes of others.
        left: Those of `brought` that changed in the folder during the commit: commit again.
    """

    space: str
    version: int
    changed: list[str]
    brought: list[str]
    left: list[str]


async def checkout(
    workspace: Workspace, space: str, folder: Path, harness: Harness = Harness.AGENTS_MD
) -> tuple[Mark, list[str]]:
    """Check out a space into a folder, completely or not at all; return notes on settings that the
    harness cannot express. Raises BadFolder, BadName, ExtraMissing.
    """
    state = await workspace.memories.whole(space)
    made = harnesses.export(of_space(state.files), harness)
    mark = Mark(space, state.version, harness)
    harnesses.write(folder, {**made.tree, MARK: _encoded(mark)})
    return mark, made.notes


async def commit(
    workspace: Workspace, folder: Path, *, reason: str = "", by: str = OS_USER
) -> CommitResult:
    """Commit a folder's changes to its space, then update the folder to the space's new version.

    Raises MemoryConflict (with both texts), MemoryInvalid, BadFolder, BadValue, ExtraMissing; the
    space and the folder are then unchanged.
    """
    with _locked(folder):
        mark = read_mark(folder)
        _sweep(folder)
        before = await workspace.memories.whole(mark.space, f"@{mark.version}")
        base = of_space(before.files)
        current = harnesses.read(folder)
        targets = difference(base, harnesses.import_tree(current, mark.harness, base))
        seen = {path: file.digest for path, file in before.files.items()}
        if targets:
            await change(workspace, mark.space, targets, seen=seen, reason=reason, by=by)
        now = await workspace.memories.whole(mark.space)
        brought, left = _bring(folder, current, now, mark.harness)
        if not left:
            _replace(folder / MARK, _encoded(Mark(mark.space, now.version, mark.harness)))
        version = mark.version if left else now.version
        return CommitResult(mark.space, version, sorted(targets), brought, left)


def _sweep(folder: Path) -> None:
    """Remove the remains of a killed commit."""
    for left in folder.rglob(f".*{harnesses.PARTIAL}"):
        if _PART.fullmatch(left.name) and (left.is_symlink() or not left.is_dir()):
            left.unlink(missing_ok=True)


def read_mark(folder: Path) -> Mark:
    """Return the source of a checked-out folder. Raises BadFolder."""
    try:
        with (folder / MARK).open("rb") as file:
            return msgspec.json.decode(file.read(MARK_BYTES_MAX), type=Mark)
    except OSError as error:
        raise BadFolder(
            folder, "is no checkout of a space", "make one with 'hansard memory checkout'"
        ) from error
    except msgspec.DecodeError as error:
        raise BadFolder(folder / MARK, f"is damaged ({error})", "check out again") from error


def _encoded(mark: Mark) -> bytes:
    return msgspec.json.encode(mark) + b"\n"


@contextlib.contextmanager
def _locked(folder: Path) -> Generator[None]:
    """Hold the folder's lock: one commit at a time."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise BadFolder(folder, f"cannot be read ({error.strerror})", "name a folder") from error
    try:
        if not file_lock.take(descriptor):
            raise BadFolder(folder, "is being committed by another process", "wait for it")
        yield
    finally:
        file_lock.release(descriptor)


def _bring(
    folder: Path, current: Tree, now: MemoryState, harness: Harness
) -> tuple[list[str], list[str]]:
    """Update a folder to the space; return the updated paths, and those that changed in the folder
    since it was read.
    """
    brought: list[str] = []
    left: list[str] = []
    tree = harnesses.export(of_space(now.files), harness).tree
    targets = {path: content for path, content in tree.items() if not harnesses.is_left_out(path)}
    # Settings are not updated, so a person's own are not deleted either.
    own = {path: content for path, content in current.items() if configures_harness(path)}
    changes = difference(current, own | targets)
    for path in sorted(changes, key=lambda path: (changes[path] is not None, path)):
        content = changes[path]
        place = folder / path
        if _content(place) != current.get(path):
            left.append(path)
            continue
        brought.append(path)
        if content is None:
            place.unlink()
            _prune(folder, place.parent)
        else:
            _replace(place, content)
    return brought, left


def _content(place: Path) -> bytes | Link | None:
    if place.is_symlink():
        return Link(str(place.readlink()))
    try:
        return harnesses.content_of(place)
    except BadFolder:
        return None


def _replace(place: Path, content: bytes | Link) -> None:
    """Replace a file atomically."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_name(f".{secrets.token_hex(_PART_BYTES)}{harnesses.PARTIAL}")
        try:
            if isinstance(content, Link):
                part.symlink_to(content.target)
            else:
                harnesses.put(part, content)
            part.replace(place)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        harnesses.sync(place.parent)
    except OSError as error:
        raise BadFolder(
            place, f"cannot be written ({error.strerror})", "make room, then commit again"
        ) from error


def _prune(folder: Path, parent: Path) -> None:
    """Remove empty folders."""
    with contextlib.suppress(OSError):
        while parent != folder:
            parent.rmdir()
            parent = parent.parent
