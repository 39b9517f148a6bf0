"""Memory spaces: permitted changes, their results, and conflicts between writers."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.agents.memory.store import pack
from hansard.bus import recheck as _recheck_memory
from hansard.bus.clock import Clock
from hansard.bus.commits import new_commit
from hansard.domain.decider import By, fold
from hansard.domain.errors import BadValue, Corrupt
from hansard.domain.events import Actor
from hansard.domain.label import Label
from hansard.domain.memory import files as paths
from hansard.domain.memory import lines, space
from hansard.domain.memory.files import (
    FileChange,
    FileForm,
    FileOp,
    MemoryApproval,
    MemoryChanged,
    MemoryKind,
    MemoryPolicySet,
    digest_of,
    stream_of,
)
from hansard.domain.memory.space import MemoryConflict, MemoryFile, MemoryState

texts = st.lists(st.sampled_from(["a\n", "b\n", "  c\n", "\n", "é", "a longer line\n"])).map(
    "".join
)


def change_of(
    path: str, stood: MemoryFile | None, text: str | None, *, link: bool = False
) -> FileChange:
    """Return a change of a file, which must exist."""
    change = space.change_of(path, stood, text, FileForm(link=link))
    assert change is not None
    return change


def having(**files: str) -> MemoryState:
    """Return a space with files, each made by its own change."""
    state = space.MemoryState()
    for name, text in files.items():
        state = put(state, name.replace("__", "/").replace("_", "."), text)
    return state


def put(state: MemoryState, path: str, text: str | None, link: bool = False) -> MemoryState:
    """Return the space after a file got another text, or was deleted."""
    change = change_of(path, state.files.get(path), text, link=link)
    return fold(state, space.decide("org", state, MemoryChanged(files=(change,))), By("ada"))


@given(texts, texts)
def test_an_edit_makes_the_text_after_of_the_one_before(before, after):
    """A diff turns the old text into the new one, and is empty for equal texts."""
    made = lines.between(before, after)
    stored: list[object] = [list(part) for part in made]
    assert lines.applied(before, stored, "x") == after
    assert (made == []) == (before == after)
    assert sum(len(part[2]) for part in made) <= len(after)


@given(texts, texts)
def test_what_did_not_change_is_equal_on_both_sides(before, after):
    """Lines between a diff's blocks are equal on both sides, and no blocks touch."""
    old, new = lines.split(before), lines.split(after)
    at = to = 0
    for block in lines.diff(old, new):
        assert old[at : block.start] == new[to : block.new_start]
        at, to = block.end, block.new_end
    assert old[at:] == new[to:]


@given(st.lists(texts, max_size=6))
def test_each_line_is_blamed_on_a_version_that_has_it(versions):
    """Blame has the lines of the newest version, each in the version that it names."""
    blame = lines.blame(enumerate(versions))
    assert "".join(line for _, line in blame) == (versions[-1] if versions else "")
    assert all(line in lines.split(versions[mark]) for mark, line in blame)


@given(texts, texts, texts)
def test_changes_to_different_files_commute(first, second, text):
    """Changes to different files commute."""
    start = having(a_md="x\n", b_md="y\n")
    one = MemoryChanged(files=(change_of("a.md", start.files["a.md"], first + "1"),))
    other = MemoryChanged(files=(change_of("b.md", start.files["b.md"], second + "2"),))
    results = []
    for order in ((one, other), (other, one)):
        state = start
        for change in order:
            state = fold(state, space.decide("org", state, change))
        results.append({path: file.text for path, file in state.files.items()})
    assert results[0] == results[1] == {"a.md": first + "1", "b.md": second + "2"}


def test_a_rename_takes_the_text_along_and_leaves_nothing_behind():
    """A rename keeps or changes the text; a rename onto an existing file is a conflict."""
    state = having(a_md="x\n", b_md="y\n")
    moved = change_of("docs/c.md", state.files["a.md"], "x\nz\n")
    assert (moved.op, moved.was) == (FileOp.RENAMED, "a.md")
    after = fold(state, space.decide("org", state, MemoryChanged(files=(moved,))))
    assert sorted(after.files) == ["b.md", "docs/c.md"]
    assert after.files["docs/c.md"].text == "x\nz\n"
    onto = change_of("b.md", state.files["a.md"], "x\n")
    with pytest.raises(MemoryConflict):
        space.decide("org", state, MemoryChanged(files=(onto,)))


def test_an_event_that_does_not_follow_changes_nothing():
    """Readers skip and report an event that does not follow from the state."""
    state = having(a_md="x\n")
    forged = change_of(
        "a.md", MemoryFile(path="a.md", body=lines.FileText("?"), digest="?", version=1), "y\n"
    )
    after = fold(state, [MemoryChanged(files=(forged,))])
    assert after.files == state.files
    assert after.version == 2
    assert after.unfit == [(2, "'a.md' is not what it was changed from")]
    real = change_of("a.md", state.files["a.md"], "y\n")
    assert fold(state, [MemoryChanged(files=(real,))]).unfit == []


@pytest.mark.parametrize("edit", [b'[[9,9,"z"]]', b'[[0,1,"z"]]', b"7"])
def test_a_text_that_is_not_what_its_change_says_is_found_where_it_is_used(edit):
    """A text that does not match its change is found in use, and a whole new one repairs it."""
    state = having(a_md="x\n", b_md="b\n")
    real = change_of("a.md", state.files["a.md"], "y\n")
    forged = msgspec.structs.replace(real, edit=msgspec.Raw(edit))
    other = change_of("b.md", state.files["b.md"], "B\n")
    after = fold(state, [MemoryChanged(files=(forged, other))])
    assert (after.unfit, after.files["b.md"].text) == ([], "B\n")
    for _ in range(2):
        with pytest.raises(Corrupt, match=r"a\.md"):
            _ = after.files["a.md"].text
    whole = msgspec.structs.replace(
        real, before=real.after, after=digest_of("z\n"), edit=msgspec.Raw(b'"z\\n"')
    )
    mended = msgspec.structs.replace(whole, op=FileOp.CREATED)
    assert fold(after, [MemoryChanged(files=(mended,))]).files["a.md"].text == "z\n"


@pytest.mark.parametrize(
    ("path", "fact"),
    [
        ("", "empty"),
        ("/etc/passwd", "absolute"),
        ("../x", "'..'"),
        ("a/../../x", "'..'"),
        ("a\0b", "control"),
        ("a\nb", "control"),
        ("a\\b", "backslash"),
        ("skills/", "folder"),
        (".git/hooks/x", ".git"),
        ("a/.GIT/x", ".GIT"),
        ("x" * 256, "256 bytes"),
        ("/".join("x" * 40), "40 segments"),
        ("/".join(["é" * 60] * 5), "bytes"),
        ("\ud800", "surrogate"),
        (None, "no text"),
    ],
)
def test_what_is_no_path_inside_a_tree_is_refused(path, fact):
    """A path outside a tree is refused, with the fault and the remedy."""
    with pytest.raises(BadValue, match="path") as bad:
        paths.normal(path)
    assert fact in str(bad.value)


def test_a_path_is_normalised():
    """A path is normalised to NFC, without redundant parts."""
    assert paths.normal("./a//b/./c.md") == "a/b/c.md"
    assert paths.normal("cafe\u0301.md") == "caf\u00e9.md"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("Docs/a.md", "case"),
        ("docs/A.md", "case"),
        ("docs", "folder"),
        ("docs/a.md/x", "no folder"),
        ("runs/r1/summary.md", "generated from the log"),
        ("Runs/x", "generated from the log"),
    ],
)
def test_what_cannot_stand_beside_another_is_refused(path, why):
    """Paths that a common file system cannot hold together are refused."""
    with pytest.raises(BadValue, match=why):
        put(having(docs__a_md="x"), path, "y")


@pytest.mark.parametrize(
    "link", ["../x", "/etc/passwd", "docs/../../x", "a/../b", "", "..", "a\\b", "../../x"]
)
def test_a_link_never_leaves_the_tree(link):
    """A link never leaves the tree; `..` after a folder is refused, since that may be a link."""
    with pytest.raises(BadValue, match="link"):
        put(having(), "CLAUDE.md", link, link=True)


def test_a_link_is_followed_and_a_circle_is_an_error():
    """Links are followed, also of folders; a circle is an error, a dangling link has no file."""
    state = put(having(docs__a_md="x"), "CLAUDE.md", "docs/a.md", link=True)
    state = put(state, "more", "docs", link=True)
    state = put(state, "nowhere", "gone.md", link=True)
    for path in ("CLAUDE.md", "more/a.md"):
        file = state.file(path)
        assert file is not None
        assert file.path == "docs/a.md"
    assert state.file("nowhere") is None
    state = put(put(state, "b", "c", link=True), "c", "b", link=True)
    with pytest.raises(BadValue, match="circle"):
        state.file("b")
    with pytest.raises(BadValue, match="no folder"):
        put(state, "more/new.md", "x")


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (b"\x89PNG\r\n", "no UTF-8: byte 0 is 0x89"),
        (b"a\0b", "binary"),
        (b"x" * (space.FILE_BYTES_MAX + 1), "1,048,577 bytes"),
        ("\ud800", "surrogate"),
        ("é" * space.FILE_BYTES_MAX, "2,097,152 bytes"),
        (17, "int"),
    ],
)
def test_what_is_no_text_is_refused(content, fact):
    """Binary data, other encodings and oversized texts are refused with the fact."""
    with pytest.raises(BadValue, match=fact):
        space.text_of("a.md", content)


def test_a_text_is_kept_as_it_is():
    """A text is kept exactly, with byte order marks and line ends."""
    assert space.text_of("a", "\ufeffa\r\nb".encode()) == "\ufeffa\r\nb"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("AGENTS.md", MemoryKind.PROCEDURAL),
        ("packages/web/AGENTS.md", MemoryKind.PROCEDURAL),
        ("tools.json", MemoryKind.PROCEDURAL),
        ("subagents/critic.md", MemoryKind.PROCEDURAL),
        ("skills/billing/SKILL.md", MemoryKind.SEMANTIC),
        ("notes.md", MemoryKind.SEMANTIC),
        ("runs/r1/summary.md", MemoryKind.EPISODIC),
    ],
)
def test_a_path_says_what_kind_of_memory_it_is(path, kind):
    """A path determines the kind of memory: procedure, fact or episode."""
    assert paths.kind_of(path) is kind


def test_changes_are_asked_about_unless_a_policy_says_otherwise():
    """Changes need approval unless a policy ends that; untrusted input always does."""
    untrusted = Label(untrusted=True)
    until = datetime(2026, 11, 25, tzinfo=UTC)
    ends = round(until.timestamp()) * 10**9
    state = having()
    assert state.asks(0, None, ["a"])
    policy = MemoryPolicySet(approval=MemoryApproval.OFF, until=until, untrusted=("web/**",))
    state = fold(state, space.decide("org", state, policy))
    assert not state.asks(ends - 1_000, None, ["a"])
    assert state.asks(ends, None, ["a"])
    assert state.depends_on_time
    assert state.asks(None, None, ["a"])
    assert state.asks(0, untrusted, ["web/a", "a"])
    assert not state.asks(0, untrusted, ["web/a"])
    assert space.decide("org", state, policy) == ()


def test_a_label_goes_along_with_the_text():
    """An edit keeps the label of the previous text; a new file does not inherit one."""
    untrusted = Label(untrusted=True)
    state = having(a_md="x\n")
    change = change_of("a.md", state.files["a.md"], "x\ny\n")
    state = fold(state, [MemoryChanged(files=(change,))], By(label=untrusted))
    state = put(state, "a.md", "x\ny\nz\n")
    assert state.files["a.md"].label == untrusted
    assert put(put(state, "a.md", None), "a.md", "new").files["a.md"].label is None


def test_a_change_has_bounds():
    """A change has a bound on its files, and names each file once."""
    many = tuple(
        change_of(f"{number}.md", None, "x") for number in range(space.CHANGE_FILES_MAX + 1)
    )
    with pytest.raises(BadValue, match="501 files"):
        space.decide("org", having(), MemoryChanged(files=many))
    with pytest.raises(BadValue, match="twice"):
        space.decide("org", having(), MemoryChanged(files=(many[0], many[0])))


async def test_a_check_finds_the_change_that_does_not_follow():
    """A check reports an event that does not follow, by the same fold as readers use."""
    first = change_of("a.md", None, "x\n")
    real = change_of("a.md", having(a_md="x\n").files["a.md"], "y\n")
    events = [MemoryChanged(files=(each,)) for each in (first, real, real)]
    stream, misfits = stream_of("org"), list[tuple[int, str]]()
    memory = _recheck_memory.Memory(_Blobs({}))
    for number, event in enumerate(events, 1):
        commit = new_commit(Clock(), number, Actor("ada"), [event])
        misfits += await memory.unfit(stream, commit)
    assert misfits == [(3, "'a.md' is not what it was changed from")]


async def test_a_check_reads_the_texts_of_a_change_together_and_derives_each():
    """A check fetches a change's blobs in one request and reports texts that do not match."""
    sent = [change_of(f"{number}.md", None, f"{number}" * 9_000) for number in range(40)]
    files, stored = pack(sent)
    files = (*files[:-1], msgspec.structs.replace(files[-1], after="forged"))
    blobs = _Blobs({hashlib.sha256(each).hexdigest(): each for each in stored})
    commit = new_commit(Clock(), 1, Actor("ada"), [MemoryChanged(files=files)])
    misfits = await _recheck_memory.Memory(blobs).unfit(stream_of("org"), commit)
    assert [(version, "39.md" in why) for version, why in misfits] == [(1, True)]
    assert blobs.requests == [len(stored)]


class _Blobs:
    def __init__(self, held: dict[str, bytes]) -> None:
        self._held = held
        self.requests: list[int] = []

    async def blobs(self, named: Sequence[tuple[str, int]]) -> dict[str, bytes]:
        self.requests.append(len(named))
        return {sha256: self._held[sha256] for sha256, _ in named}
