"""Answers and errors for a role do not depend on files that it may not see."""

from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from hansard.agents.memory import drafts
from hansard.agents.memory.drafts import Op, apply_ops
from hansard.agents.memory.formats import of_space
from hansard.agents.memory.reading import VisibilityFilter, files_of, undo_of
from hansard.agents.memory.search import Rankers, grep, paths_matching, search
from hansard.agents.memory.store import check_change
from hansard.agents.policy.permits import Permit
from hansard.bus.log import Stored
from hansard.domain.decider import fold
from hansard.domain.errors import HansardError
from hansard.domain.events import Actor, Commit
from hansard.domain.label import Confidentiality, Label
from hansard.domain.memory import space
from hansard.domain.memory.files import MemoryChanged, stream_of
from hansard.domain.memory.lines import blame
from hansard.domain.memory.space import MemoryState
from hansard.domain.roles.model import May, RoleDefined, RoleRule
from hansard.ext.memory.harnesses import Harness, export
from hansard.projections.file_search import FileWords
from hansard.state.memories import MemoryEventAt, by_of
from hansard.testing.programs import Memory, workspace_of

T = TypeVar("T")

WORKSPACE = workspace_of(Memory())
"""An empty workspace, which is never read."""

RULES = RoleDefined(
    sees=(RoleRule("notes", kinds=("memory.*",), paths=("org/notes/**",)),),
    may=May(paths=("org/notes/**", "org/pay/**")),
    clearance="internal",
)
MINE = ("notes/a.md", "notes/b.md", "notes/AGENTS.md")
OTHERS = ("pay/a.md", "AGENTS.md", "notes-not/a.md", "notes/secret.md")
"""Files hidden from the role: three by path, the last by its label."""

texts = st.sampled_from(["", "one\n", "one\ntwo\n", "@pay/a.md\n", "@../AGENTS.md\n", "two\n"])
writes = st.lists(
    st.dictionaries(st.sampled_from([*MINE, *OTHERS]), st.none() | texts, min_size=1, max_size=3),
    max_size=10,
)
OPS: tuple[list[Op], ...] = (
    [drafts.create("notes/a.md", "mine\n")],
    [drafts.create("notes/AGENTS.md", "@a.md\n")],
    [drafts.create("pay/a.md", "mine\n")],
    [drafts.create("notes/way.md", "../AGENTS.md", link=True)],
    [drafts.create("skills/x/SKILL.md", "no front matter")],
    [drafts.edit("notes/a.md", "one", "1")],
    [drafts.edit("pay/a.md", "one", "1")],
    [drafts.rename("notes/b.md", "notes/c.md")],
    [drafts.rename("notes/b.md", "notes/a.md")],
    [drafts.delete("notes/b.md")],
    [drafts.delete("AGENTS.md")],
)


def did(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    message = "it waits for something"
    raise AssertionError(message)


async def cleared() -> Confidentiality:
    """Return the role's clearance."""
    return Confidentiality.INTERNAL


def sight() -> VisibilityFilter:
    """Return the role's visibility filter."""
    return VisibilityFilter(Permit("reader", RULES, enforced=True), cleared)


def is_mine(path: str) -> bool:
    """Return whether the role sees a file."""
    return path in MINE


def happened(made: Sequence[dict[str, str | None]], *, all_of: bool) -> list[MemoryEventAt]:
    """Return the changes of some writes; without `all_of` those that the role sees."""
    state, events = space.MemoryState(), list[MemoryEventAt]()
    for number, files in enumerate(made):
        secret = "notes/secret.md" in files
        texts = {
            path: text for path, text in files.items() if (not secret if is_mine(path) else all_of)
        }
        changes = [
            space.change_of(path, state.files.get(path), text) for path, text in texts.items()
        ]
        event = MemoryChanged(files=tuple(each for each in changes if each is not None))
        if not event.files:
            continue
        label = Label(Confidentiality.SECRET) if secret else None
        commit = Commit(
            id=f"c{number}",
            version=state.version + 1,
            at=datetime(2026, 11, 24, 12, 0, number, tzinfo=UTC),
            actor=Actor("ada"),
            events=(),
            label=label,
        )
        stored = Stored(state.version + 7, number * 10**9, stream_of("org"), commit, b"")
        events.append(MemoryEventAt(stored, state.version + 1, f"e{number}", event))
        state = fold(state, [event], by_of(stored, f"e{number}"))
    return events


def state_after(history: Sequence[MemoryEventAt]) -> MemoryState:
    """Return the space after these changes."""
    state = space.MemoryState()
    for each in history:
        state = fold(state, [each.event], by_of(each.stored, each.id))
    return state


def outcome(work: Callable[[], Any]) -> Any:
    """Return the result of the work, or its error."""
    try:
        return work()
    except HansardError as error:
        return type(error).__name__, error.args


def answers(history: Sequence[MemoryEventAt]) -> dict[str, Any]:
    """Return all answers about a space that the role can request."""
    state, sees = state_after(history), sight()
    seen = did(sees.of("org", state))
    tree = {path: file.text for path, file in seen.files.items()}
    shown = did(sees.history("org", history))
    every: dict[str, Any] = {
        "files": {path: (each.text, each.digest, each.event) for path, each in seen.files.items()},
        "size": seen.size,
        "glob": paths_matching(tree, "**"),
        "grep": grep(tree, "one|two"),
        "search": search(tree, "one two", Rankers(FileWords())),
        "export": outcome(lambda: export(of_space(seen.files), Harness.CLAUDE_CODE)),
        "changes": did(sees.versions("org", history, None)),
    }
    for path in (*MINE, *OTHERS):
        every[f"view {path}"] = seen.file(path) is not None
        every[f"history {path}"] = did(sees.versions("org", history, path))
        versions = files_of(history, path, shown)
        texts_then = [(each, file.text if file is not None else "") for each, file in versions]
        every[f"blame {path}"] = [(each.id, line) for each, line in blame(texts_then)]
    for number, ops in enumerate(OPS):
        every[f"change {number}"] = outcome(partial(changed, sees, state, seen, ops))
    for number in range(10):
        every[f"revert {number}"] = outcome(partial(undone, sees, history, seen, f"e{number}"))
    return every


def changed(sees: VisibilityFilter, state: MemoryState, seen: MemoryState, ops: list[Op]) -> object:
    """Return the result of a change."""
    changes = apply_ops("org", seen, ops, {path: each.digest for path, each in seen.files.items()})
    sees.demand_changes("org", changes)
    event = MemoryChanged(files=changes)
    return did(check_change(WORKSPACE, sees, "org", state, event, 0))


def undone(
    sees: VisibilityFilter, history: Sequence[MemoryEventAt], seen: MemoryState, event: str
) -> object:
    """Return the result of a revert."""
    did(sees.demand_whole("org", history, event))
    undo = undo_of("org", history, event)
    did(sees.demand_returned("org", event, undo.label))
    return undo.ops(seen)


def plain(results: dict[str, Any]) -> dict[str, bytes]:
    """Answers as they can be compared."""
    return {name: msgspec.json.encode(each) for name, each in results.items()}


@given(writes)
@settings(max_examples=max(10, settings().max_examples // 3))
def test_what_is_hidden_has_no_influence_on_any_answer(made):
    """Hidden files influence no answer, except that shared changes cannot be undone."""
    both = {f"revert {at}" for at, files in enumerate(made) if len(set(map(is_mine, files))) > 1}
    whole = plain(answers(happened(made, all_of=True)))
    alone = plain(answers(happened(made, all_of=False)))
    for name in whole.keys() - both:
        assert whole[name] == alone[name], name
