"""Files that a folder cannot show stay in the space when the folder changes or disappears."""

import asyncio

import msgspec
import pytest

from hansard.agents.memory.formats import of_space
from hansard.ext.memory import harnesses, imports
from hansard.ext.memory.harnesses import Harness
from hansard.testing.programs import Memory, workspace_of
from tests.memory.portable.test_harnesses import SKILL

pytestmark = pytest.mark.later

HIDDEN = {
    "node_modules/left-pad.md": b"How we use it.\n",
    "notes/.venv/x.md": b"v\n",
    "notes/__pycache__": b"a file\n",
    "skills/pay/.hg/x.md": b"hg\n",
    "a.hansard-partial": b"half\n",
    ".0.hansard-partial/x.md": b"half\n",
    f".{'0' * 16}.hansard-partial": b"half\n",
    imports.MARK: msgspec.json.encode(imports.Mark("user/eve", 1)),
}
SHOWN = {"AGENTS.md": b"a\n", "skills/pay/SKILL.md": SKILL, "notes/a.md": b"a\n"}


@pytest.fixture
def workspace():
    """Return a workspace in memory."""
    return workspace_of(Memory())


async def tree(workspace):
    """Return the files of the space."""
    return of_space((await workspace.memories.state("org")).files)


@pytest.mark.parametrize("harness", Harness)
def test_an_untouched_checkout_commits_nothing(workspace, tmp_path, harness):
    """An untouched checkout commits nothing; a changed one only its own changes."""
    folder = tmp_path / "work"

    async def work():
        await imports.change(workspace, "org", HIDDEN | SHOWN, by="ann")
        _, notes = await imports.checkout(workspace, "org", folder, harness)
        assert sum(note.startswith(imports.MARK) for note in notes) == 1
        made = await imports.commit(workspace, folder)
        assert (made.space, made.version, made.changed, made.brought, made.left) == (
            *("org", 1),
            *([], [], []),
        )
        assert await tree(workspace) == HIDDEN | SHOWN
        (folder / "AGENTS.md").write_text("b\n")
        (folder / "notes/a.md").unlink()
        (folder / "node_modules/left-pad.md").unlink()
        made = await imports.commit(workspace, folder)
        assert made.changed == ["AGENTS.md", "notes/a.md"]
        expected = HIDDEN | SHOWN | {"AGENTS.md": b"b\n"}
        expected.pop("notes/a.md")
        assert await tree(workspace) == expected

    asyncio.run(work())


def test_what_others_change_there_is_not_brought_and_holds_nothing_up(workspace, tmp_path):
    """Others' changes to hidden files do not block a commit, which reaches the newest version."""
    folder = tmp_path / "work"

    async def work():
        await imports.change(workspace, "org", HIDDEN | SHOWN, by="ann")
        await imports.checkout(workspace, "org", folder)
        theirs = {"node_modules/left-pad.md": b"Newer.\n", "notes/.venv/x.md": None}
        await imports.change(workspace, "org", theirs | {"AGENTS.md": b"c\n"}, by="eve")
        made = await imports.commit(workspace, folder)
        assert (made.version, made.changed, made.brought, made.left) == (2, [], ["AGENTS.md"], [])
        assert imports.read_mark(folder).version == 2
        assert (await tree(workspace))["node_modules/left-pad.md"] == b"Newer.\n"

    asyncio.run(work())


@pytest.mark.parametrize("harness", Harness)
def test_a_folder_that_replaces_a_space_replaces_what_a_folder_shows(workspace, tmp_path, harness):
    """Files that no folder shows are not treated as deleted."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/AGENTS.md").write_text("b\n")
    (tmp_path / "in/node_modules").mkdir()
    (tmp_path / "in/node_modules/other.md").write_text("x\n")

    async def work():
        await imports.change(workspace, "org", HIDDEN | SHOWN, by="ann")
        await imports.import_folder(workspace, "org", tmp_path / "in", harness, replace=True)
        files = await tree(workspace)
        files.pop("CLAUDE.md", None)
        assert files == HIDDEN | {"AGENTS.md": b"b\n"}

    asyncio.run(work())


def test_a_file_of_the_marks_name_is_neither_written_over_nor_taken_for_the_mark(
    workspace, tmp_path
):
    """A file with the mark's name is neither overwritten nor taken for the mark."""

    async def work():
        await imports.change(workspace, "org", HIDDEN | SHOWN, by="ann")
        made = harnesses.export(await tree(workspace), Harness.AGENTS_MD).tree
        harnesses.write(tmp_path / "out", made)
        with pytest.raises(harnesses.BadFolder, match="no checkout"):
            await imports.commit(workspace, tmp_path / "out")
        for path in (f"{imports.MARK}/x.md", imports.MARK.upper()):
            other = {imports.MARK: None, path: b"x\n"}
            await imports.change(workspace, "org", other, by="ann")
            folder = tmp_path / path.replace("/", "-")
            mark, _ = await imports.checkout(workspace, "org", folder)
            assert imports.read_mark(folder) == mark
            assert (await imports.commit(workspace, folder)).changed == []
            assert (await tree(workspace))[path] == b"x\n"
            await imports.change(workspace, "org", {path: None}, by="ann")

    asyncio.run(work())


def test_a_sweep_takes_what_a_commit_left_and_no_more(workspace, tmp_path):
    """A sweep removes only a killed commit's leftovers, named by sixteen hexadecimal digits."""
    folder = tmp_path / "work"
    mine, left = folder / ".mine.hansard-partial", folder / f".{'a' * 16}.hansard-partial"

    async def work():
        await imports.change(workspace, "org", SHOWN, by="ann")
        await imports.checkout(workspace, "org", folder)
        mine.write_text("x")
        left.write_text("x")
        await imports.commit(workspace, folder)

    asyncio.run(work())
    assert mine.exists()
    assert not left.exists()


def test_what_is_left_out_is_what_a_folder_does_not_show(tmp_path):
    """Writing and reading a folder leave out the same files."""
    every = HIDDEN | SHOWN | {"notes/node_modules.md": b"x", "a.hansard-partial.md": b"x"}
    for path, content in every.items():
        place = tmp_path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    (tmp_path / "node_modules.d").symlink_to("notes")
    (tmp_path / "skills/node_modules").symlink_to("../notes")
    files = harnesses.read(tmp_path)
    assert set(files) == {path for path in every if not harnesses.is_left_out(path)} | {
        "node_modules.d"
    }
    assert all(harnesses.is_left_out(path) for path in HIDDEN)
