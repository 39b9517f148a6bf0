"""The history of a git repository as changes to a tree, one a commit.

Git is asked as a process of its own, without the repository's hooks, programs or network, and
within bounds of time and bytes. The first parent's line is followed, oldest first: a merge is one
change.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
from collections.abc import Collection, Generator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from hansard.agents.memory.portable.folders import BadFolder
from hansard.agents.memory.validation.trees import Executable, Link
from hansard.domain.memory.space import BINARY_BYTES_MAX

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


def changes(
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
    for said, path in zip(parts[::2], parts[1::2], strict=True):
        _, mode, _, blob, status = said.split(b" ")
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
