"""Published folders of skills: with assets, scripts and binary files."""

import io
import os
import subprocess
import zipfile
import zlib

import pytest

from hansard.ext.memory.harnesses import Harness

pytestmark = pytest.mark.slow

SKILL = b"---\r\nname: charts\r\ndescription: Draws charts.\r\n---\r\nRun scripts/draw.sh.\r\n"


def png() -> bytes:
    """Return a picture of one pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        raw = kind + data
        return len(data).to_bytes(4, "big") + raw + zlib.crc32(raw).to_bytes(4, "big")

    header = b"\0\0\0\1\0\0\0\1\x08\2\0\0\0"
    pixel = zlib.compress(b"\0\xff\0\0")
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", pixel) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def archive() -> bytes:
    """Return a zip larger than the smallest blob."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        file.writestr("noise.bin", os.urandom(100_000))
    return made.getvalue()


FILES = {
    "skills/charts/SKILL.md": SKILL,
    "skills/charts/assets/logo.png": png(),
    "skills/charts/assets/fonts.zip": archive(),
    "skills/charts/scripts/draw.sh": b"#!/bin/sh\necho drawn\n",
    "skills/charts/data/latin.csv": "name\ncaf\xe9\n".encode("latin-1"),
    "skills/charts/data/no-final-newline.txt": b"a\r\nb",
    "skills/charts/data/nul.txt": b"a\0b",
    "skills/charts/data/large.csv": b"1,2,3\n" * 200_000,
    "skills/charts/__init__.py": b"",
    "README.md": b"# Skills\n",
}
EXECUTABLE = {"skills/charts/scripts/draw.sh", "skills/charts/assets/logo.png"}
"""Executable files, a binary one among them, as in archives of other systems."""


@pytest.fixture
def folder(tmp_path):
    """Return a folder of skills."""
    place = tmp_path / "skills-repository"
    for path, content in FILES.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(content)
        (place / path).chmod(0o755 if path in EXECUTABLE else 0o644)
    return place


def files_of(place):
    """Return each file of a folder, and whether it may be executed."""
    return {
        str(file.relative_to(place)): (file.read_bytes(), os.access(file, os.X_OK))
        for file in place.rglob("*")
        if file.is_file() and ".git" not in file.parts
    }


EXPECTED = {path: (content, path in EXECUTABLE) for path, content in FILES.items()}


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("harness", Harness)
def test_a_folder_of_skills_comes_back_byte_by_byte(call, folder, tmp_path, harness):
    """A folder of skills round-trips with executable bits, and a second import changes nothing."""
    made = call("memory", "import", folder)
    assert made.code == 0, made.err
    assert "5 binary files as bytes, which agents are not shown" in made.err
    call("memory", "export", tmp_path / "out")
    assert files_of(tmp_path / "out") == EXPECTED
    [again] = call("memory", "import", folder, "--json").lines
    assert again["changes"] == 0
    call("memory", "export", tmp_path / "form", "--as", harness)
    [again] = call(
        "memory", "import", tmp_path / "form", "--as", harness, "--replace", "--json"
    ).lines
    assert (again["changes"], again["files"]) == (0, [])


def test_a_history_of_skills_comes_back_byte_by_byte(call, folder, tmp_path):
    """A git history of skills is imported with modes; a change of mode alone is a change."""
    git = ["git", "-C", folder, "-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "Add skills"]):
        subprocess.run([*git, *command], check=True)
    (folder / "README.md").chmod(0o755)
    subprocess.run([*git, "commit", "-qam", "Make it executable"], check=True)
    [made] = call("memory", "import", "--git", folder, "--json").lines
    assert made["changes"] == 2
    call("memory", "export", tmp_path / "out")
    assert files_of(tmp_path / "out") == {**EXPECTED, "README.md": (FILES["README.md"], True)}


def test_a_checkout_keeps_and_commits_modes_and_bytes(call, record, folder, tmp_path):
    """A changed picture and a changed mode are one change; revert undoes it."""
    call("memory", "import", folder)
    checkout = tmp_path / "checkout"
    call("memory", "checkout", checkout)
    untouched = call("memory", "commit", checkout, "--json").lines
    assert untouched[0]["changed"] == []
    script, picture = "skills/charts/scripts/draw.sh", "skills/charts/assets/logo.png"
    (checkout / script).chmod(0o644)
    (checkout / picture).write_bytes(png() + b"\0")
    [made] = call("memory", "commit", checkout, "--json").lines
    assert made["changed"] == sorted([script, picture])
    diff = record.memory("org").diff(before="@1")
    assert f"Binary files a/{picture} and b/{picture} differ\n" in diff
    assert f"diff --git a/{script} b/{script}\nold mode 100755\nnew mode 100644\n" in diff
    assert call("memory", "revert", "org", "@2").code == 0
    call("memory", "export", tmp_path / "out")
    assert files_of(tmp_path / "out") == EXPECTED


def test_agents_are_shown_no_bytes_and_edit_none(call, record, folder):
    """Agents see the size of a binary file, not its bytes; an edited script stays executable."""
    call("memory", "import", folder)
    space = record.memory("org")
    entry = space.entry("skills/charts/assets/logo.png")
    assert (entry.text, entry.binary) == (f"(binary file, {len(png())} bytes)", len(png()))
    assert entry.executable
    with pytest.raises(Exception, match="it is binary, and has no text to edit"):
        space.insert("skills/charts/assets/logo.png", 0, "x", by="eve")
    space.edit("skills/charts/scripts/draw.sh", "drawn", "done", by="eve")
    entry = space.entry("skills/charts/scripts/draw.sh")
    assert (entry.text, entry.executable) == ("#!/bin/sh\necho done\n", True)
    assert space.search("IHDR").hits == []
    space.rename("skills/charts/assets/logo.png", "skills/charts/assets/mark.png", by="eve")
    assert space.entry("skills/charts/assets/mark.png").binary == len(png())
    [row] = record.sql("SELECT count(*) FROM memory_files WHERE path LIKE '%mark.png'").rows
    assert row == (1,)
    assert call("check").code == 0


def test_git_applies_a_diff_with_modes_links_and_binary_files(call, record, folder, tmp_path):
    """An exported diff applies with git: modes, links, binaries, odd names, missing line ends."""
    call("memory", "import", folder)
    space = record.memory("org")
    with space.change("begin", by="eve") as change:
        change.create("a file.md", "one\ntwo")
        change.create("gone.md", "gone\n")
        change.create("empty.md", "")
        change.create("link.md", "gone.md", link=True)
    before, checkout = tmp_path / "before", tmp_path / "checkout"
    call("memory", "export", before)
    call("memory", "checkout", checkout)
    for path in ("a file.md", "b.md", 'say "hi".md', "déjà vu.md"):
        (checkout / path).write_text(f"one\n{path}")
    (checkout / "empty.md").unlink()
    (checkout / "new.md").write_text("")
    (checkout / "link.md").unlink()
    (checkout / "link.md").write_text("a file now\n")
    (checkout / "to.md").symlink_to("b.md")
    (checkout / "gone.md").unlink()
    (checkout / "README.md").chmod(0o755)
    script, picture = "skills/charts/scripts/draw.sh", "skills/charts/assets/logo.png"
    (checkout / script).write_text("#!/bin/sh\necho other\n")
    (checkout / script).chmod(0o644)
    (checkout / picture).write_bytes(bytes(range(256)) * 40)
    (checkout / "new.bin").write_bytes(b"\0\1\2")
    (checkout / "skills/charts/scripts/draw.bin").write_bytes(b"\0" * 60)
    assert call("memory", "commit", checkout).code == 0
    patch = tmp_path / "a.patch"
    patch.write_text(call("memory", "diff", "org", "--from", "@2", "--binary").out)
    subprocess.run(["git", "apply", "--check", patch], cwd=before, check=True)
    subprocess.run(["git", "apply", patch], cwd=before, check=True)
    call("memory", "export", tmp_path / "after")
    assert files_of(before) == files_of(tmp_path / "after")
    assert (before / "to.md").is_symlink()
    assert not (before / "link.md").is_symlink()


def test_the_blame_of_a_binary_file_says_its_size_and_who_wrote_it(call, record, folder):
    """The blame of a binary file has its size and its newest change, but no content."""
    call("memory", "import", folder, "--by", "ann")
    picture = "skills/charts/assets/logo.png"
    [line] = record.memory("org").blame(picture)
    assert (line.line, line.author) == (1, "ann")
    assert line.text == f"(binary file, {len(png())} bytes)"


def test_tables_say_which_files_are_binary_and_executable(call, record, folder):
    """The SQL tables mark binary and executable files, in each change and in the current tree."""
    call("memory", "import", folder)
    for table in ("memory_changes", "memory_files"):
        rows = record.sql(f"SELECT path, is_binary, is_executable FROM {table}").rows
        assert {path for path, _, executable in rows if executable} == set(EXECUTABLE)
        assert {path for path, binary, _ in rows if binary} == {
            path for path, content in FILES.items() if len(content) > 2**20 or is_binary(content)
        }


def is_binary(content: bytes) -> bool:
    """Return whether a content is not text."""
    try:
        return "\0" in content.decode()
    except UnicodeDecodeError:
        return True
