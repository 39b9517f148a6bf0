"""A role's view of memory does not depend on files that the role may not see."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from hansard.bus.commits import record
from hansard.domain.decider import fold
from hansard.domain.ids import WorkspaceStream
from hansard.domain.memory import space
from hansard.domain.memory.files import KIND, MemoryChanged
from hansard.domain.roles import view
from hansard.domain.roles.authorize import may_change, sees_whole_file
from hansard.domain.roles.model import May, RoleDefined, RoleRule
from hansard.domain.roles.view import UnjudgedEvent, facts, files_of

READER = RoleDefined(
    sees=(RoleRule("notes", kinds=("memory.*",), paths=("org/notes/**",)),),
    may=May(paths=("org/notes/**", "org/pay/**")),
)
STREAM = WorkspaceStream(KIND, "org")

writes = st.lists(
    st.tuples(
        st.lists(
            st.sampled_from(["notes/a.md", "notes/b.md", "pay.md", "notes-not/a.md"]),
            min_size=1,
            max_size=2,
            unique=True,
        ),
        st.text("ab\n", max_size=8),
    ),
    max_size=8,
)


def happened(made: Sequence[tuple[list[str], str]]) -> list[tuple[bool, UnjudgedEvent]]:
    """Return the events of some writes, each with whether all of its files may be seen."""
    state, events = space.MemoryState(), list[tuple[bool, UnjudgedEvent]]()
    for number, (paths, text) in enumerate(made):
        changes = [space.change_of(path, state.files.get(path), text) for path in paths]
        files = tuple(change for change in changes if change is not None)
        event = MemoryChanged(files=files, because=f"write of {[each.path for each in files]}")
        if not files:
            continue
        state = fold(state, [event])
        data = record(event, "").data
        judged = facts(event.tag, STREAM, "ada", {}, {})
        judged = msgspec.structs.replace(judged, paths=files_of(STREAM, bytes(data)))
        mine = all(change.path.startswith("notes/") for change in files)
        at = datetime(2026, 11, 24, tzinfo=UTC)
        events.append(
            (mine, UnjudgedEvent(facts=judged, id=f"e{number}", commit="c", at=at, data=data))
        )
    return events


@given(writes)
def test_what_is_hidden_has_no_influence_on_what_is_shown(made):
    """A role's rows equal those of a log without the hidden events."""
    all_of = happened(made)
    with_hidden = list(view.view(READER, [event for _, event in all_of]))
    without = list(view.view(READER, [event for mine, event in all_of if mine]))
    assert with_hidden == without
    encoded = msgspec.json.encode(with_hidden)
    assert b"pay" not in encoded
    assert b"notes-not" not in encoded


@given(st.sampled_from(["org/notes/a.md", "org/pay/a.md", "org/notes", "agent/ada/notes/a.md"]))
def test_a_file_is_changed_only_where_it_is_seen_whole(file):
    """A file may be changed only by a role that sees all of it."""
    assert sees_whole_file(READER, file).allowed == file.startswith("org/notes/")
    assert may_change(READER, file).allowed == file.startswith("org/notes/")
    masked = msgspec.structs.replace(READER, sees=())
    assert not may_change(masked, file).allowed
    assert not may_change(None, file).allowed


def test_an_agents_name_reaches_into_no_other_ones_files():
    """`agent/ada/**` does not match files of an agent named `ada/x`, whose slash is escaped."""
    rule = RoleRule("own", kinds=("memory.*",), paths=("agent/ada/**",))
    reader = RoleDefined(sees=(rule,), may=May(paths=("agent/ada/**",)))
    for owner, seen in (("ada", True), ("ada/x", False)):
        change = space.change_of("a.md", None, "x\n")
        assert change is not None
        data = bytes(record(MemoryChanged(files=(change,)), "").data)
        [named] = files_of(WorkspaceStream(KIND, f"agent/{owner}"), data)
        assert may_change(reader, named).allowed is seen
        assert sees_whole_file(reader, named).allowed is seen
        assert named == f"agent/{owner.replace('/', '%2F')}/a.md"
