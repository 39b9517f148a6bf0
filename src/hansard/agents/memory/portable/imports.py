"""Folders and git histories imported into a space, each change checked as an agent's is.

Git runs as a process of its own, without the repository's hooks, programs or network, within bounds
of time and bytes. The first parent's line is followed, oldest first: a merge is one change.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import subprocess
import threading
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from hansard.agents.memory.portable import folders, harnesses
from hansard.agents.memory.portable.folders import BadFolder
from hansard.agents.memory.portable.harnesses import Harness
from hansard.agents.memory.store import MemoryStore
from hansard.agents.memory.validation import tree as validation
from hansard.agents.memory.validation.texts import Executable, Link, Tree, of_space
from hansard.agents.memory.validation.tree import WARNINGS, faults, problems
from hansard.agents.memory.write import validated
from hansard.agents.workspace import Workspace
from hansard.bus.clock import OS_USER
from hansard.domain import ids
from hansard.domain.choices import counted, shortened
from hansard.domain.events import Actor
from hansard.domain.memory import space as spaces
from hansard.domain.memory.events import (
    LINK,
    FileChange,
    FileForm,
    MemoryChanged,
    Problem,
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

Wanted = Mapping[str, bytes | Link | None]
"""What is to stand at each path; None for nothing."""


class Claimed(msgspec.Struct, frozen=True):
    """Who made a change and when, as another system claims it.

    Attributes:
        author: A name, as it is written there.
        at: ISO 8601.
    """

    author: str
    at: str


async def change(  # noqa: PLR0913 -- each is a fact of a change
    workspace: Workspace,
    space: str,
    command: Wanted,
    *,
    seen: Mapping[str, str] | None = None,
    because: str = "",
    by: str = OS_USER,
    claimed: Claimed | None = None,
    trailer: str = "",
    keep: bool = False,
) -> int:
    """Have files of a space be so; the version that it has then. At most 500 files are one commit;
    more are several, after all of them were checked together.

    Args:
        workspace: Where the space is.
        space: Its name.
        command: The files to change.
        seen: The digests that these had when they were read (none: no file); as they stand if None.
        because: Why.
        by: Who says so.
        claimed: Who made it elsewhere.
        keep: Whether files may be what no harness accepts, as long as they can be read.
        trailer: What follows `because` in the last commit alone: where it stands, all was made.

    Raises MemoryConflict, MemoryInvalid, BadValue, BadName, ExtraMissing.
    """
    texts = {path: _text(path, content) for path, content in command.items()}
    state = await workspace.memories.state(space)
    if len(texts) > CHANGE_FILES_MAX:
        await workspace.memories.load(state.files.values())
        _demand_valid(space, state, command, keep=keep)
        # What is so already makes no commit: the last part must, for the trailer.
        texts = {path: text for path, text in texts.items() if not _is_so(state, path, text)}
    store = MemoryStore(workspace, space, validate=_readable if keep else validated)
    actor = Actor(by, (claimed.author,) if claimed is not None else ())
    at = claimed.at if claimed is not None else None
    version = state.version
    parts = list(_parts(texts))
    for number, part in enumerate(parts, 1):
        changes = functools.partial(_changes, space, part, seen)
        why = because + trailer if number == len(parts) else because
        version = await store.change_files(changes, part, actor, why, occurred_at=at)
    return version


def _readable(state: MemoryState, changed: Sequence[str]) -> list[Problem]:
    """What is unreadable of some files."""
    return validation.problems_of_change(state, changed, keep=True)


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
    stood = state.files.get(path)
    found = stood.digest if stood is not None else None
    return found == (digest_of(*text) if text is not None else None)


def _demand_valid(space: str, state: MemoryState, command: Wanted, *, keep: bool) -> None:
    after: dict[str, bytes | Link] = of_space(state.files)
    for path, content in command.items():
        after.pop(path, None)
        if content is not None:
            after[path] = content
    found = validation.problems(after, only=[path for path in command if path in after])
    found = validation.faults(found, keep=keep)
    if found:
        raise MemoryInvalid(space, found)


def _parts(texts: Mapping[str, _Text | None]) -> Iterator[dict[str, _Text | None]]:
    """Files before the links to them, and what goes away last."""

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
    """What is to become of each file; one that goes away where an equal one comes is renamed."""
    gone: dict[str, str] = {}
    for path, text in texts.items():
        stood = state.files.get(path)
        if seen is not None:
            _demand_seen(space, state, path, text, seen.get(path, ""))
        if text is None and stood is not None:
            gone.setdefault(stood.digest, path)
    moved: set[str] = set()
    found: list[FileChange] = []
    for path, text in texts.items():
        if text is None:
            continue
        stood = state.files.get(path)
        if stood is None:
            was = gone.pop(digest_of(*text), None)
            if was is not None:
                moved.add(was)
                stood = state.files[was]
        changed = spaces.change_of(path, stood, *text)
        found += [changed] if changed is not None else []
    for path, text in texts.items():
        if text is None and path not in moved:
            changed = spaces.change_of(path, state.files.get(path), None)
            found += [changed] if changed is not None else []
    return found


def _demand_seen(
    space: str, state: MemoryState, path: str, text: _Text | None, expected: str
) -> None:
    """Raise MemoryConflict where a file is neither what it was read as nor what it is to be."""
    stood = state.files.get(path)
    found = stood.digest if stood is not None else ""
    target = digest_of(*text) if text is not None else ""
    if found not in {expected, target}:
        raise MemoryConflict(
            space, path, expected, spaces.shown(*text) if text is not None else "", stood
        )


def difference(before: Tree, after: Tree) -> dict[str, bytes | Link | None]:
    """What is to change in one tree to have another."""
    changed: dict[str, bytes | Link | None] = {
        path: content for path, content in after.items() if before.get(path) != content
    }
    return changed | {path: None for path in before if path not in after}


COMMITS_MAX = 100_000
PATHS_MAX = 20_000
"""Changed by one commit."""

ANSWER_BYTES_MAX = 64 << 20
"""Of a list that git gives at once."""

GIT_S_MAX = 300.0
"""For reading one history."""

_LINK, _SUBMODULE, _EXECUTABLE = b"120000", b"160000", b"100755"
_WHO = re.compile(
    rb"^author (?P<name>.*?) ?<(?P<mail>[^>]*)> (?P<at>-?\d+) [+-]\d{4}$", re.MULTILINE
)
_SAFE = (
    *("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"),
    *("-c", "protocol.allow=never", "-c", "safe.directory=*", "-c", "core.quotePath=false"),
)


class GitChange(msgspec.Struct, frozen=True):
    """What one commit did.

    Attributes:
        commit: Its hash.
        author: Who wrote it, as it claims, with the address if there is one.
        at: When, as it claims.
        message: Why, as it says.
        files: Each path that it changed, and what stands there since; None where nothing does.
    """

    commit: str
    author: str
    at: datetime
    message: str
    files: dict[str, bytes | Link | None]


def git_changes(
    repository: Path, revision: str = "HEAD", *, done: Collection[str] = ()
) -> Iterator[GitChange]:
    """The changes of a history, the oldest first; those that changed no file are left out. Blocks.

    `done`: hashes of commits; only what follows the newest of them is given. A commit's hash covers
    its whole line of first parents, so all before it is done with it.

    Raises BadFolder: no repository, no git, a commit that is missing, a file that is too large.
    """
    listed = _asked(
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
    """What changed from one commit to the next, submodules aside."""
    since = (before.decode(), commit.decode()) if before else ("--root", commit.decode())
    raw = _asked(
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
    found: dict[str, bytes | Link | None] = {}
    for texts, path in zip(parts[::2], parts[1::2], strict=True):
        _, mode, _, blob, status = texts.split(b" ")
        name = os.fsdecode(path)
        if status == b"D":
            found[name] = None
        elif mode == _LINK:
            found[name] = Link(os.fsdecode(cat(blob, b"blob")))
        elif mode != _SUBMODULE:
            content = cat(blob, b"blob")
            found[name] = Executable(content) if mode == _EXECUTABLE else content
    return found


class _Cat:
    """Gives objects of a repository by their hashes."""

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
    with _started(repository, "cat-file", "--batch") as process:
        yield _Cat(repository, cast("BinaryIO", process.stdin), cast("BinaryIO", process.stdout))


def _asked(repository: Path, *arguments: str) -> bytes:
    """All that git says to a question. Raises BadFolder."""
    with _started(repository, *arguments) as process:
        answer = cast("BinaryIO", process.stdout).read(ANSWER_BYTES_MAX + 1)
        if len(answer) > ANSWER_BYTES_MAX:
            fact = f"has a commit of which git says more than {ANSWER_BYTES_MAX:,} bytes"
            raise BadFolder(repository, fact, "name a repository of memory alone")
        if process.wait():
            fact = f"cannot be read by git ({arguments[0]} left with {process.returncode})"
            raise BadFolder(repository, fact, "name a git repository, and a revision that it has")
        return answer


@contextlib.contextmanager
def _started(repository: Path, *arguments: str) -> Generator[subprocess.Popen[bytes]]:
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
"""Before a commit's hash in why the last change of it was made: the commit is imported whole."""

LISTED_MAX = 5
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
    targets = difference(base, harnesses.imported(found, harness, base))
    if not replace:
        targets = {path: content for path, content in targets.items() if content is not None}
    if leave_out:
        targets, invalid = _checked(targets, dict(base), keep=keep)
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
    version = await change(workspace, space, targets, seen=seen, because=because, by=by, keep=keep)
    return Imported(
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
    for each in git_changes(repository, revision, done=done):
        _, value = _checked(each.files, tree, each.commit, keep=keep)
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
) -> Imported:
    state = await workspace.memories.whole(space)
    tree, version = of_space(state.files), state.version
    files: set[str] = set()
    changes = 0
    for each in git_changes(repository, revision, done=done):
        target, _ = _checked(each.files, tree, keep=keep)
        after = await change(
            workspace,
            space,
            target,
            because=each.message[: BECAUSE_MAX - 100],
            by=by,
            claimed=Claimed(_author(each.author), each.at.isoformat()),
            trailer=f"{TRAILER}{each.commit}",
            keep=keep,
        )
        changes += after != version
        version = after
        files |= target.keys()
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
    targets = {path: content for path, content in files.items() if content is not None}
    gone = [path for path, content in files.items() if content is None and path in tree]
    where = f"commit {commit[:12]}: " if commit else ""
    items: list[str] = []
    for path in gone:
        tree.pop(path)
    stood = {path: tree.get(path) for path in targets}
    tree |= targets
    while found := faults(problems(tree, only=list(targets)), keep=keep):
        items += [f"{where}{problem}" for problem in found]
        for path in {problem.path for problem in found}:
            before = stood[path] if targets.pop(path, None) is not None else None
            tree.pop(path, None)
            if before is not None:
                tree[path] = before
            elif path not in files:  # a link to what this commit took away
                gone.append(path)
    return {**dict.fromkeys(gone), **targets}, items


def _author(text: str) -> str:
    """A claimed name as a name may be."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text).strip()
    return ids.name("author", plain[:AUTHOR_CHARS_MAX] or "unknown")
