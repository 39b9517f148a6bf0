"""A person's change of a space: any files of it, in one commit, by the digests they were read at.

Checked as an agent's is; a refusal is on record. What is so already changes nothing, so that a
killed command is run again.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from hansard.agents.memory.store import MemoryStore
from hansard.agents.memory.validation import tree as validation
from hansard.agents.memory.validation.trees import Executable, Link, Tree, of_space
from hansard.agents.memory.write import validated
from hansard.agents.workspace import Workspace
from hansard.bus.clock import OS_USER
from hansard.domain.events import Actor
from hansard.domain.memory import space as spaces
from hansard.domain.memory.events import LINK, FileChange, FileForm, Problem, digest_of
from hansard.domain.memory.space import (
    CHANGE_FILES_MAX,
    MemoryConflict,
    MemoryInvalid,
    MemoryState,
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
    wanted: Wanted,
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
        wanted: The files that are to change.
        seen: The digests that these had when they were read (none: no file); as they stand if None.
        because: Why.
        by: Who says so.
        claimed: Who made it elsewhere.
        keep: Whether files may be what no harness accepts, as long as they can be read.
        trailer: What follows `because` in the last commit alone: where it stands, all was made.

    Raises MemoryConflict, MemoryInvalid, BadValue, BadName, ExtraMissing.
    """
    texts = {path: _text(path, content) for path, content in wanted.items()}
    state = await workspace.memories.state(space)
    if len(texts) > CHANGE_FILES_MAX:
        await workspace.memories.load(state.files.values())
        _demand_valid(space, state, wanted, keep=keep)
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


def _demand_valid(space: str, state: MemoryState, wanted: Wanted, *, keep: bool) -> None:
    after: dict[str, bytes | Link] = of_space(state.files)
    for path, content in wanted.items():
        after.pop(path, None)
        if content is not None:
            after[path] = content
    found = validation.problems(after, only=[path for path in wanted if path in after])
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
    wanted = digest_of(*text) if text is not None else ""
    if found not in {expected, wanted}:
        raise MemoryConflict(
            space, path, expected, spaces.shown(*text) if text is not None else "", stood
        )


def difference(before: Tree, after: Tree) -> dict[str, bytes | Link | None]:
    """What is to change in one tree to have another."""
    changed: dict[str, bytes | Link | None] = {
        path: content for path, content in after.items() if before.get(path) != content
    }
    return changed | {path: None for path in before if path not in after}
