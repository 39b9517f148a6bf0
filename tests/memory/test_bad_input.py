"""Bad input at each interface of memory: fact, value and remedy, and no partial change."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import hansard

BOMB = "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9) if n else 'x'}]\n" for n in range(9)
).encode()
SKILL = "skills/pay/SKILL.md"
HEAD = b"---\nname: pay\ndescription: How to pay.\n"

FILES = {
    "10 MB": ("notes/big.md", b"x" * 10_000_000, r"bytes.*split it"),
    "binary": ("notes/c.md", b"\x89PNG\r\n\0\0", r"no UTF-8: byte 0 is 0x89|NUL byte at 6"),
    "NUL": ("notes/b.md", b"a\0b", r"binary.*NUL.*(by reference|text)"),
    "latin-1": ("notes/b.md", b"caf\xe9", r"no UTF-8: byte 3 is 0xE9|0xe9 at 3.*save it as UTF-8"),
    "UTF-16": ("notes/b.md", "hi".encode("utf-16"), r"byte 0 is 0xFF|UTF-16.*as UTF-8"),
    "YAML bomb": (SKILL, HEAD + BOMB + b"---\n", r"md:4: yaml\.anchor: found '&a0'.*no anchors"),
    "YAML object": (
        SKILL,
        b"---\nname: !!python/object/apply:os.system ['true']\n---\n",
        r"SKILL\.md:2: yaml\.tag: .*os\.system.*no tags",
    ),
    "JSON bomb": ("tools.json", b"[" * 200_000, r"tools\.json:1: json\.depth.*at most 32 levels"),
    "case twin": ("Notes/A.md", b"x", r"'notes' is there already.*case alone; use that one"),
    "backslash": ("a\\b.md", b"x", r"has a backslash; separate folders by /"),
    "newline": ("a\nb.md", b"x", r"control character.*leave it out"),
    "made of the log": ("runs/r/summary.md", b"x", r"generated from the log.*write it elsewhere"),
    "bytes in a name": (os.fsdecode(b"caf\xe9.md"), b"x", r"lone surrogate; leave it out"),
}
"""Path, content and expected message; these files exist in a folder, too."""

PATHS = {
    "..": ("a/../../b.md", r"has '\.\.'; give it from the root"),
    "NUL": ("a\0b.md", r"control character.*leave it out"),
    "git's own": (".git/config", r"segment '\.git'.*use another"),
    "empty": ("", r"empty|no path|give"),
    "too long": ("x" * 600 + ".md", r"bytes|long"),
    "deep": ("/".join(["d"] * 40) + "/a.md", r"segments|folders|deep"),
}
"""A path that no folder can have, and the expected message."""

LINKS = {
    "out": ("../../x.md", r"outside of the tree; have it lead to a file inside"),
    "absolute": ("/etc/passwd", r"'/etc/passwd'; give a relative path inside the tree"),
    "itself": ("link.md", r"link: found 'link\.md'; have a link lead to a file"),
    "nowhere": ("nothing.md", r"link\.dangling: found 'nothing\.md'.*that is there"),
}

REFUSED = (hansard.BadValue, hansard.errors.MemoryInvalid)


@pytest.fixture
def filled(record):
    """Return a record whose common space has files and changes without approval."""
    memory = record.memory()
    memory.create("AGENTS.md", "- good\n", by="ann")
    memory.create("notes/a.md", "good\n", by="ann")
    memory.set_policy("off", by="ann")
    return record


def files(record) -> dict[str, str]:
    """Return the current files."""
    return {entry.path: entry.text for entry in record.memory().entries()}


def test_a_session_and_a_program_get_the_message_and_nothing_is_written(filled):
    """Bad input is refused in sessions and programs; a change of several files is refused whole."""
    before = files(filled)
    cases = [*FILES.values(), *((path, b"x", message) for path, message in PATHS.values())]
    with filled.run("w", agent="ada") as session:

        def several(path: str, content: bytes) -> None:
            with session.memory.change("x", space="org") as change:
                change.create("fine.md", "fine\n")
                change.append("AGENTS.md", "- fine")
                change.create(path, content)

        doors: list[Callable[[str, bytes], object]] = [
            lambda path, content: session.memory.create(path, content, space="org"),
            lambda path, content: filled.memory().create(path, content, by="ann"),
            several,
        ]
        for path, content, message in cases:
            for door in doors:
                with pytest.raises(REFUSED, match=f"(?s){message}"):
                    door(path, content)
                assert files(filled) == before
        for path, message in PATHS.values():
            for ask in (session.memory.view, session.memory.history, session.memory.delete):
                with pytest.raises(hansard.BadValue, match=message):
                    ask(path)
            with pytest.raises(hansard.BadValue, match=message):
                session.memory.rename("AGENTS.md", path, space="org")
        for to, message in LINKS.values():
            with pytest.raises(REFUSED, match=message):
                session.memory.create("link.md", to, space="org", link=True)
    assert files(filled) == before


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("door", ["import", "commit"])
def test_a_folder_is_taken_whole_or_not_at_all(filled, call, tmp_path, door):
    """Good files beside bad ones are not taken, and the folder is left unchanged."""
    before = files(filled)
    for number, (name, (path, content, message)) in enumerate(FILES.items()):
        folder = begun(call, tmp_path / f"{number}", door)
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
        refused(call, door, folder, message)
        assert files(filled) == before, name
        assert (folder / path).read_bytes() == content
    for name, (to, message) in LINKS.items():
        folder = begun(call, tmp_path / name, door)
        (folder / "link.md").symlink_to(to)
        refused(call, door, folder, message)
    folder = begun(call, tmp_path / "fifo", door)
    os.mkfifo(folder / "pipe.md")
    refused(call, door, folder, "no regular file: leave it out")
    assert files(filled) == before


def begun(call, folder: Path, door: str) -> Path:
    """Make a folder for a commit, with a good file."""
    if door == "commit":
        assert call("memory", "checkout", folder).code == 0
    else:
        (folder / "notes").mkdir(parents=True)
        (folder / "notes" / "a.md").write_text("good\n")
    (folder / "fine.md").write_text("fine\n")
    return folder


def refused(call, door: str, folder: Path, message: str) -> None:
    """Check that the change is refused with the expected message."""
    ran = call("memory", door, folder)
    assert ran.code == 2, ran.out
    assert re.search(f"(?s){message}", ran.err), ran.err


@pytest.mark.slow
def test_the_commands_paths_and_points_are_checked(filled, call):
    """The commands refuse invalid paths and points with code 2 and the value."""
    for arguments in (
        ("show", "org", "../x"),
        ("log", "org", "../x"),
        ("blame", "org", "../x"),
        ("diff", "org", "../x", "--from", "@1"),
        ("remember", "org", "x", "--path", "../x", "--by", "ann"),
    ):
        ran = call("memory", *arguments)
        assert (ran.code, "'..'" in ran.err) == (2, True), ran.err
    for space in ("../x", "agent/", "nobody/x", "agent/a\nb", "a" * 500):
        ran = call("memory", "ls", space)
        assert ran.code == 2, (space, ran.out, ran.err)
        assert repr(space)[1:20] in ran.err
    for point in ("@0", "@-1", "@x", "@99", "yesterday"):
        ran = call("memory", "show", "org", "AGENTS.md", "--at", point)
        assert ran.code in (2, 4), (point, ran.code, ran.err)
        assert point in ran.err
    assert files(filled) == {"AGENTS.md": "- good\n", "notes/a.md": "good\n"}
