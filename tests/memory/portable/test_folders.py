"""A folder is read as it is, with links, and written whole or not at all."""

import os
import signal
import socket
import subprocess
from datetime import UTC, datetime

import pytest

from hansard.agents.memory.formats import Link
from hansard.ext.memory import harnesses, imports
from hansard.ext.memory.harnesses import BadFolder

TREE: dict[str, bytes | Link] = {
    "AGENTS.md": b"a\r\n\xff",
    "CLAUDE.md": Link("AGENTS.md"),
    "skills/a/x": b"",
    "d": Link("skills"),
}


def test_what_is_written_is_read_again(tmp_path):
    """A written folder is read back byte by byte, with links to files and folders."""
    harnesses.write(tmp_path / "new/deep", TREE)
    assert harnesses.read(tmp_path / "new/deep") == TREE
    harnesses.write(tmp_path / "empty", {})
    harnesses.write(tmp_path / "empty", TREE)
    assert harnesses.read(tmp_path / "empty") == TREE
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "new"]


def test_a_folder_that_is_there_is_not_written_over(tmp_path):
    """An existing folder, file or link target is not overwritten."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "file").write_text("")
    for name in ("full", "link", "file"):
        with pytest.raises(BadFolder, match="not there"):
            harnesses.write(tmp_path / name, TREE)
    assert (tmp_path / "full/mine").read_text() == "mine"
    assert not (tmp_path / "elsewhere").exists()


def test_an_error_on_the_way_leaves_nothing(tmp_path):
    """A failed write leaves nothing: for a path that leads out, or an invalid name."""
    for path in ("../out", "x" * 300, "/etc/hansard-test"):
        with pytest.raises(BadFolder):
            harnesses.write(tmp_path / "new", {"a": b"", path: b""})
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_through_a_link(tmp_path):
    """Nothing is written through a link, in any order of the tree."""
    with pytest.raises(BadFolder):
        harnesses.write(tmp_path / "new", {"a": Link(".."), "a/b": b""})
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_is_killed_leaves_no_folder(tmp_path):
    """A killed writer leaves no folder; the next one writes all and removes the leftovers."""
    pid = os.fork()
    if not pid:
        os.fsync = lambda fd: os.kill(os.getpid(), signal.SIGKILL)
        harnesses.write(tmp_path / "new", TREE)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert not (tmp_path / "new").exists()
    harnesses.write(tmp_path / "new", TREE)
    assert harnesses.read(tmp_path / "new") == TREE
    assert len(list(tmp_path.iterdir())) == 1


def test_what_is_no_memory_is_refused_in_bounded_time(tmp_path):
    """Pipes, sockets, devices, huge files and non-folders are refused in bounded time."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadFolder, match="no regular file"):
        harnesses.read(tmp_path)
    (tmp_path / "pipe").unlink()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        with pytest.raises(BadFolder):
            harnesses.read(tmp_path)
    (tmp_path / "s").unlink()
    (tmp_path / "large").write_bytes(b"x" * 20_000_000)
    with pytest.raises(BadFolder, match="16,777,216 bytes"):
        harnesses.read(tmp_path)
    with pytest.raises(BadFolder, match="no folder"):
        harnesses.read(tmp_path / "large")


def test_files_beside_memory_are_left_out(tmp_path):
    """Version control and packages are left out; a link out of the folder stays a link."""
    for path in (".git/config", "node_modules/a/AGENTS.md", "AGENTS.md"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
    (tmp_path / "out").symlink_to("/etc")
    assert harnesses.read(tmp_path) == {"AGENTS.md": b"x", "out": Link("/etc")}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """Return a history with a link, a merge, a deletion, and a hook and a filter not to run."""
    folder = tmp_path_factory.mktemp("history")

    def run(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True)

    def commit(message: str, day: int) -> None:
        run("add", "-A")
        date = f"2026-01-0{day}T10:00:00+02:00"
        run(
            *("-c", "user.name=Ann Ö", "-c", "user.email=ann@example.org", "commit", "--quiet"),
            *("--message", message, "--date", date, "--allow-empty"),
        )

    run("init", "--quiet", "--initial-branch=main")
    (folder / "AGENTS.md").write_bytes(b"one\n")
    commit("Begin\n\nAt last.", 1)
    (folder / "CLAUDE.md").symlink_to("AGENTS.md")
    (folder / "naïve \n name.md").write_bytes(b"\xff\0")
    commit("Link", 2)
    commit("Nothing", 3)
    run("switch", "--quiet", "--create", "side")
    (folder / "side.md").write_text("side")
    commit("Side", 4)
    run("switch", "--quiet", "main")
    (folder / "AGENTS.md").write_bytes(b"two\n")
    commit("Two", 5)
    run("-c", "user.name=B", "-c", "user.email=", "merge", "--no-ff", "--message", "Merge", "side")
    (folder / "naïve \n name.md").unlink()
    commit("Less", 6)
    run("config", "core.fsmonitor", f"touch {folder}/ran; false")
    return folder


def test_each_commit_is_a_change(repository):
    """Each commit, also a merge, is one change with author and time; no repository code runs."""
    changes = list(imports.git_changes(repository))
    assert [(change.message, change.files) for change in changes] == [
        ("Begin\n\nAt last.", {"AGENTS.md": b"one\n"}),
        ("Link", {"CLAUDE.md": Link("AGENTS.md"), "naïve \n name.md": b"\xff\0"}),
        ("Two", {"AGENTS.md": b"two\n"}),
        ("Merge", {"side.md": b"side"}),
        ("Less", {"naïve \n name.md": None}),
    ]
    assert changes[0].author == "Ann Ö <ann@example.org>"
    assert changes[0].at == datetime(2026, 1, 1, 8, tzinfo=UTC)
    assert not (repository / "ran").exists()
    assert [change.message for change in imports.git_changes(repository, "side")][-1] == "Side"


@pytest.mark.parametrize("revision", ["no-such", "--output=x", "HEAD:AGENTS.md"])
def test_a_revision_that_is_none_is_reported(repository, revision):
    """An unknown revision is refused, and is never an option of git."""
    with pytest.raises(BadFolder, match="a revision that it has"):
        list(imports.git_changes(repository, revision))


def test_a_folder_that_is_no_repository_is_reported(tmp_path):
    """A folder that is no repository is refused, with the remedy."""
    with pytest.raises(BadFolder, match="name a git repository"):
        list(imports.git_changes(tmp_path))


def test_a_file_that_is_too_large_for_memory_is_reported(tmp_path):
    """A file too large for memory is refused unread."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / "large").write_bytes(b"x" * 20_000_000)
    for command in (["add", "-A"], ["commit", "--quiet", "--message", "Large"]):
        subprocess.run(
            ["git", "-c", "user.name=A", "-c", "user.email=a@b", "-C", tmp_path, *command],
            check=True,
        )
    with pytest.raises(BadFolder, match="16,777,216 bytes"):
        list(imports.git_changes(tmp_path))
