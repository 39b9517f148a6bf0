"""The versions of the remembering prompt are on record, with their results in SQL."""

import json

import pytest

from hansard.bus.clock import OS_USER
from hansard.domain.memory.files import MemoryProposal
from hansard.ext.memory.upkeep import TEXT, ExpectedLine, ReflectionScore, score_proposals

pytestmark = pytest.mark.later

KEY = [
    {"path": "AGENTS.md", "words": ["action items", "last"], "never": ["Monday"]},
    {"path": "skills/billing/SKILL.md", "words": ["by the hour"]},
    {"path": "AGENTS.md", "words": ["two pages"], "never": ["Ann"]},
    {"path": "notes/ann.md", "words": ["prefers mail"]},
]
MODEL = '''
import json

def model(prompt):
    """Written by hand: it puts a procedure into the instructions and keeps what passes."""
    assert "Action items last, please" in prompt
    source = prompt.split("[")[-1].split("]")[0]
    better = "A procedure never" not in prompt
    items = [
        ("AGENTS.md", "- Action items come last.\\n"),
        ("skills/billing/SKILL.md" if better else "AGENTS.md",
         "---\\nname: billing\\ndescription: How.\\n---\\nBy the hour.\\n"),
        ("AGENTS.md", "- Two pages at most.\\n" if better else "- Two pages for Ann.\\n"),
        ("notes/x.md", "It rains.\\n"),
    ]
    return "So:\\n" + json.dumps([{"path": p, "text": t, "sources": [source]} for p, t in items])

def talks(prompt):
    return "Nothing to remember."
'''


def test_a_key_says_what_was_missed_spurious_misplaced_and_too_specific():
    """Each item of the key is matched by at most one proposal, the right file first."""
    key = [
        ExpectedLine("a.md", ("x",), ("monday",)),
        ExpectedLine("b.md", ("x",)),
        ExpectedLine("c.md", ("y",)),
    ]
    proposals = [MemoryProposal("b.md", "X"), MemoryProposal("a.md", "x on Monday")]
    assert score_proposals(proposals, key) == ReflectionScore(3, 1, 1, 0, 0, 1)
    assert score_proposals(
        [MemoryProposal("z.md", "x"), MemoryProposal("z.md", "?")], key[:1]
    ) == ReflectionScore(1, 0, 0, 1, 1, 0)
    assert score_proposals([], []) == ReflectionScore()


@pytest.mark.thorough(quick="prompts/test_command.py::test_versions_by_the_command_line")
def test_each_version_of_our_prompt_has_its_figures(record, call, tmp_path, monkeypatch):
    """Each version of the prompt has its own figures; a bad answer takes no run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "remembers.py").write_text(MODEL)
    (tmp_path / "key.json").write_text(json.dumps(KEY))
    for version in (1, 2):
        with record.run("w", agent="ada", run=f"r{version}") as session:
            session.message("user", "Action items last, please")
        if version == 2:
            shorter = TEXT.replace(" A procedure never goes into AGENTS.md.", "")
            assert shorter != TEXT
            record.prompts.add("memory-remember", shorter)
            record.prompts.alias("memory-remember@2", "production", reason="a try")
        else:
            refused = call("memory", "reflect", "org", "--ask", "remembers:talks")
            assert (refused.code, "must be a JSON array" in refused.err) == (2, True)
        [made] = call("memory", "reflect", "org", "--ask", "remembers:model", "--json").lines
        assert made["runs"] == [f"r{version}"]
        lines = call("memory", "judge", made["run"], "key.json", "--json").lines
        assert lines == [
            {"wanted": 4, "right": 1, "missed": 1, "spurious": 1, "misplaced": 1, "too_specific": 1}
            if version == 1
            else {
                "wanted": 4,
                "right": 3,
                "missed": 1,
                "spurious": 1,
                "misplaced": 0,
                "too_specific": 0,
            }
        ]
    assert call("memory", "apply", "org", "last", "skills/billing/SKILL.md").code == 0
    rows = record.sql(
        "SELECT version, runs, proposals, made, judged, wanted, correct, missed, spurious, "
        "misplaced, too_specific FROM remembering() ORDER BY version"
    ).rows
    assert rows == [(1, 2, 4, 0, 1, 4, 1, 1, 1, 1, 1), (2, 1, 4, 1, 1, 4, 3, 1, 1, 0, 0)]
    changes = record.sql(
        "SELECT path, standing, made_by FROM memory_proposals WHERE standing <> 'open'"
    ).rows
    assert changes == [("skills/billing/SKILL.md", "made", OS_USER)]
    assert call("memory", "judge", "r1", "key.json").code == 2
