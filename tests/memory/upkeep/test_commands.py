"""`hansard memory glob|grep|search|compact|reflect`, and `session.memory.search`."""

import json
import signal
import subprocess
import time

import pytest

from tests.faults._warm import python

pytestmark = pytest.mark.later

NOTES = {
    "AGENTS.md": "Answer in bullets, and briefly please.\n- answer in bullets and briefly please\n",
    "notes/paris.md": "The office in Paris is closed in August.\n",
}


@pytest.fixture
def filled(record):
    """Return a workspace whose common space has two files."""
    memory = record.memory()
    for path, text in NOTES.items():
        memory.create(path, text, by="ada")
    return record


def test_files_are_found_from_the_command_line(filled, call):
    """Files are found by path, pattern and words; JSON has one hit in each line."""
    assert call("memory", "glob", "org", "**/*.md").out.split() == list(NOTES)
    assert call("memory", "grep", "org", "(?i)^answer").out == (
        "AGENTS.md:1: Answer in bullets, and briefly please.\n"
    )
    output = call("memory", "search", "org", "when is the office closed", "--json").out
    hit = json.loads(output.splitlines()[0])
    assert hit["path"] == "notes/paris.md"
    assert call("memory", "grep", "org", "(").code == 2
    arguments = ("memory", "search", "org", "answer office", "--json", "--kind")
    assert [hit["path"] for hit in call(*arguments, "procedural").lines] == ["AGENTS.md"]
    assert [hit["path"] for hit in call(*arguments, "semantic").lines] == ["notes/paris.md"]
    assert "give one of procedural, semantic" in call(*arguments, "tacit").err


@pytest.mark.thorough(quick="test_what_is_written_during_a_compaction_survives")
def test_a_compaction_is_made_where_it_is_asked_for(filled, call, tmp_path, monkeypatch):
    """Shown first; a function's is judged; what loses a probe changes nothing, --apply or not."""
    shown = call("memory", "compact", "org").out
    assert "near_duplicate" in shown
    assert filled.memory().view("AGENTS.md") == NOTES["AGENTS.md"]
    (tmp_path / "shorter.py").write_text(
        "def none(findings, files):\n    return {'notes/paris.md': 'closed\\n'}\n"
    )
    monkeypatch.chdir(tmp_path)
    lost = call("memory", "compact", "org", "--with", "shorter:none", "--keep", "Paris", "--apply")
    assert "loses what must stay: 'Paris'" in lost.out
    assert filled.memory().view("notes/paris.md") == NOTES["notes/paris.md"]
    call("memory", "compact", "org", "--apply", "--by", "ada")
    assert filled.memory().view("AGENTS.md") == "Answer in bullets, and briefly please.\n"
    assert call("memory", "compact", "org", "--with", "shorter").code == 2


@pytest.mark.thorough(
    quick="memory/test_shown.py::test_files_changes_refusals_and_policies_are_rows"
)
def test_files_that_no_agent_has_read_are_reported(filled, call):
    """Viewed, or as instructions in a prompt; that of the same name in another space is another."""
    filled.memory().create("notes/rome.md", "The office in Rome is open in August.\n", by="ada")
    filled.memory("agent/ada").create("notes/rome.md", "Mine.\n", by="ada")
    with filled.run("w", run="r", agent="ada") as session:
        session.memory.view("notes/paris.md", space="org")
        session.memory.view("notes/rome.md")

    def unread() -> list[str]:
        report = json.loads(call("memory", "compact", "org", "--json").out)
        findings = report["compacted"]["findings"]
        return [each["spots"][0]["path"] for each in findings if each["kind"] == "never_read"]

    assert unread() == ["AGENTS.md", "notes/rome.md"]
    with filled.run("w", run="s", agent="ada") as session:
        session.memory.prompt()
    assert unread() == ["notes/rome.md"]
    assert "no recorded read of 'notes/rome.md'" in call("memory", "compact", "org").out


DURING = """
import hansard

async def shorter(findings, files):
    async with hansard.connect_async({workspace!r}, data_dir={folder!r}) as record:
        await record.memory().create({path!r}, "Theirs.\\n", by="bob")
    return {{"AGENTS.md": "Answer in bullets, and briefly please.\\n"}}
"""


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("path", ["AGENTS.md", "notes/paris.md"])
def test_what_is_written_during_a_compaction_survives(
    filled, call, tmp_path, monkeypatch, data_dir, workspace, path
):
    """A write to the compacted file is a conflict and nothing is made; other writes are kept."""
    text = DURING.format(workspace=workspace, folder=str(data_dir), path=path)
    (tmp_path / f"during_{len(path)}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    made = call("memory", "compact", "org", "--with", f"during_{len(path)}:shorter", "--apply")
    assert filled.memory().view(path) == "Theirs.\n"
    if path == "AGENTS.md":
        assert made.code != 0
        assert "'bob' wrote the current one" in made.err
        assert "nothing was written" in made.err
    else:
        assert filled.memory().view("AGENTS.md") == "Answer in bullets, and briefly please.\n"


def test_a_reflection_proposes_and_changes_no_file(filled, call):
    """A reflection proposes the user's requests; the second one proposes nothing."""
    with filled.run("w", agent="ada") as session:
        session.message("user", "/remember Action items come last.")
    first = call("memory", "reflect", "org")
    assert "AGENTS.md: - Action items come last." in first.out
    assert "0 runs reflected on" in call("memory", "reflect", "org").err
    assert filled.memory().view("AGENTS.md") == NOTES["AGENTS.md"]


SLOW = """
import pathlib, time

def wait(*given):
    pathlib.Path("begun").touch()
    time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("compact", "org", "--apply"),
        pytest.param(("compact", "org", "--propose"), marks=pytest.mark.thorough),
        ("reflect", "org"),
    ],
    ids=" ".join,
)
def test_one_interrupt_ends_a_command_while_its_function_is_at_work(
    filled, call, command, tmp_path
):
    """An interrupt leaves no change and no proposal; the next reflection takes the run."""
    with filled.run("w", run="past", agent="ada") as session:
        session.message("user", "/remember Water the plants.")
    (tmp_path / "slow.py").write_text(SLOW)
    where = filled.workspace.command.split()[1:]
    process = subprocess.Popen(
        [python(), "-m", "hansard", *where, "memory", *command, "--with", "slow:wait"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while not (tmp_path / "begun").exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        error = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    assert (process.returncode, "Traceback" in error) == (130, False), error
    space = filled.memory()
    assert {entry.path: entry.text for entry in space.entries()} == NOTES
    assert len(space.history()) == len(NOTES)
    assert call("memory", "proposals", "org").out == ""
    assert "1 run reflected on" in call("memory", "reflect", "org").err
