"""A git history is imported exactly once, for any change and after any kill."""

import asyncio
import subprocess

import pytest

from hansard.agents.memory.store import MemoryStore
from hansard.domain.memory.space import FILE_BYTES_MAX, MemoryInvalid
from hansard.ext.memory import harnesses, imports
from hansard.testing.programs import Memory, workspace_of

pytestmark = pytest.mark.later

FILES = 700
"""Number of files that exceeds one change."""


class Killed(BaseException):
    """An error in place of the end of a process."""


class Repository:
    """A folder with a history."""

    def __init__(self, folder):
        self.folder = folder
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments):
        """Run git there."""
        who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
        command = ["git", "-C", str(self.folder), *who, *arguments]
        subprocess.run(command, check=True, capture_output=True)

    def commit(self, **texts):
        """Commit a text a file."""
        for name, text in texts.items():
            (self.folder / f"{name}.md").write_text(f"{text}\n")
        self.git("add", "-A")
        self.git("commit", "--quiet", "--message", " ".join(texts.values()))


@pytest.fixture
def repository(tmp_path):
    """Return an empty repository."""
    return Repository(tmp_path)


@pytest.fixture
def workspace():
    """Return a workspace in memory."""
    return workspace_of(Memory())


def ran(work):
    """Return the result of the work."""
    return asyncio.run(work)


async def texts(workspace):
    """Return the text at each path."""
    state = await workspace.memories.state("org")
    return {path: file.text.strip() for path, file in state.files.items()}


async def edit(workspace, text):
    """Edit a file as another user."""
    await imports.change(workspace, "org", {"notes.md": f"{text}\n".encode()}, by="ann")


@pytest.mark.fast(cases=1, slow=0)
@pytest.mark.parametrize("ones", [range(0), range(450, FILES)], ids=["new", "the last stand"])
def test_a_commit_of_many_files_that_was_killed_on_the_way_is_made_whole(
    repository, workspace, ones
):
    """A commit counts as imported after its last part; unchanged files are not recorded again."""
    repository.commit(**{f"n{number:04}": f"{number}" for number in range(FILES)})
    append, left = workspace.log.append, [1]

    async def killing(commit):
        if not left[0]:
            raise Killed
        left[0] -= 1
        return await append(commit)

    async def work():
        stand = {f"n{number:04}.md": f"{number}\n".encode() for number in ones}
        await imports.change(workspace, "org", stand, by="ann")
        if not ones:
            workspace.log.append = killing
            with pytest.raises(Killed):
                await imports.import_git(workspace, "org", repository.folder)
            workspace.log.append = append
            assert len(await texts(workspace)) == 500
        made = await imports.import_git(workspace, "org", repository.folder)
        assert made.changes == 1
        whole = await texts(workspace)
        assert whole == {f"n{number:04}.md": f"{number}" for number in range(FILES)}
        [last] = [
            each.event.because
            for each in await workspace.memories.history("org")
            if imports.TRAILER in each.event.because
        ]
        assert last.startswith("0 1 2 ")
        await imports.change(workspace, "org", {"n0000.md": b"newer\n"}, by="ann")
        again = await imports.import_git(workspace, "org", repository.folder)
        assert again.changes == 0
        assert await texts(workspace) == whole | {"n0000.md": "newer"}

    ran(work())


def test_a_commit_that_changed_nothing_is_not_made_over_what_followed_it(repository, workspace):
    """A commit that changed nothing overwrites no later change."""
    repository.commit(notes="one")
    repository.commit(notes="two")

    async def work():
        await edit(workspace, "one")
        assert (await imports.import_git(workspace, "org", repository.folder)).changes == 1
        for text in ("two", "three"):
            await edit(workspace, text)
            assert (await imports.import_git(workspace, "org", repository.folder)).changes == 0
            assert await texts(workspace) == {"notes.md": text}
        repository.commit(notes="four")
        assert (await imports.import_git(workspace, "org", repository.folder)).changes == 1
        assert await texts(workspace) == {"notes.md": "four"}

    ran(work())


def test_of_a_rewritten_history_the_new_commits_are_made_on_top(repository, workspace):
    """New commits of a rewritten history go on top of the last common one; old changes stay."""
    repository.commit(notes="one")
    repository.commit(notes="two", old="old")

    async def work():
        assert (await imports.import_git(workspace, "org", repository.folder)).changes == 2
        repository.git("reset", "--hard", "HEAD~1")
        repository.commit(notes="other", new="new")
        made = await imports.import_git(workspace, "org", repository.folder)
        assert (made.changes, made.files) == (1, ["new.md", "notes.md"])
        expected = {"notes.md": "other", "new.md": "new", "old.md": "old"}
        assert await texts(workspace) == expected
        assert (await imports.import_git(workspace, "org", repository.folder)).changes == 0

    ran(work())


def test_more_of_a_shallow_history_is_not_made_over_what_followed(repository, workspace, tmp_path):
    """Deepening a shallow history does not reimport commits that an imported commit contains."""
    repository.commit(notes="one")
    repository.commit(notes="two")
    shallow = tmp_path / "shallow"
    repository.git("clone", "--quiet", "--depth=1", f"file://{repository.folder}", str(shallow))

    async def work():
        assert (await imports.import_git(workspace, "org", shallow)).changes == 1
        assert (await imports.import_git(workspace, "org", repository.folder)).changes == 0
        assert await texts(workspace) == {"notes.md": "two"}

    ran(work())


def test_an_imported_line_has_the_author_that_its_commit_claims(repository, workspace):
    """Log and blame name the author of a commit, not the user who imported it."""
    repository.commit(AGENTS="Bullets.")
    ran(imports.import_git(workspace, "org", repository.folder, by="eve"))
    store = MemoryStore(workspace, "org")
    [version], [line] = ran(store.versions("AGENTS.md")), ran(store.blame("AGENTS.md"))
    assert version.author == line.author == "Ann <ann@example.org>"
    assert version.at == line.at


SKILL = b"---\nname: x\ndescription: d\n---\nhi\n"


def test_fields_of_another_harness_are_kept_and_warned_of(tmp_path, workspace):
    """An unknown field is kept byte by byte, with a warning."""
    path = "skills/x/SKILL.md"
    skill = SKILL.replace(b"d\n", b"d\ndisable-model-invocation: true\n")
    harnesses.write(tmp_path / "in", {path: skill})
    made = ran(imports.import_folder(workspace, "org", tmp_path / "in"))
    assert (made.changes, made.left_out) == (1, [])
    assert [each.split(";")[0] for each in made.warnings] == [
        "skills/x/SKILL.md:4: skill.field: found 'disable-model-invocation'"
    ]
    assert ran(texts(workspace))[path] == skill.decode().strip()


def test_one_invalid_file_of_a_folder_refuses_the_others_only_unless_it_is_left_out(
    tmp_path, workspace
):
    """An invalid, oversized or non-text file refuses the folder unless it is left out, by name."""
    harnesses.write(
        tmp_path / "in",
        {
            "AGENTS.md": b"hi\n",
            "skills/x/SKILL.md": SKILL,
            "skills/x/icon.md": b"\x89PNG\0",
            "skills/y/SKILL.md": b"no front matter",
            "large.md": b"x" * (FILE_BYTES_MAX + 1),
        },
    )
    with pytest.raises(MemoryInvalid, match=r"large\.md"):
        ran(imports.import_folder(workspace, "org", tmp_path / "in"))
    made = ran(imports.import_folder(workspace, "org", tmp_path / "in", leave_out=True))
    assert sorted(ran(texts(workspace))) == made.files == ["AGENTS.md", "skills/x/SKILL.md"]
    named = "\n".join(made.left_out)
    assert all(path in named for path in ("icon.md", "skills/y/SKILL.md", "large.md"))


def test_files_that_are_not_valid_are_kept_where_that_is_asked_for(tmp_path, workspace):
    """Invalid files are kept on request, with a warning; non-text where text is required is
    refused.
    """
    invalid = {"skills/y/SKILL.md": b"no front matter"}
    harnesses.write(tmp_path / "in", {"skills/x/SKILL.md": SKILL, **invalid})
    made = ran(imports.import_folder(workspace, "org", tmp_path / "in", keep=True))
    assert made.files == ["skills/x/SKILL.md", "skills/y/SKILL.md"]
    assert [each.split(":")[0] for each in made.warnings] == ["skills/y/SKILL.md"]
    assert ran(texts(workspace))["skills/y/SKILL.md"] == "no front matter"
    harnesses.write(tmp_path / "worse", {"AGENTS.md": b"caf\xe9", **invalid})
    with pytest.raises(MemoryInvalid, match=r"AGENTS\.md:1: file\.encoding"):
        ran(imports.import_folder(workspace, "org", tmp_path / "worse", keep=True))
