"""A space is exported in each harness's form and imported unchanged."""

import tomllib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hansard.agents.memory import drafts
from hansard.agents.memory.formats import Link
from hansard.ext.memory import harnesses
from hansard.ext.memory.harnesses import Harness

SKILL = b"---\nname: pay\ndescription: Pays.\n---\nPay.\n"
REVIEW = (
    b'---\nname: review\ndescription: "Reviews: code"\ntools: Read, Grep, mcp__fleet__find\n'
    b'model: sonnet\n---\nLook \\ """ twice.\n'
)
SPACE: dict[str, bytes | Link] = {
    "AGENTS.md": b"Be brief.\n",
    "web/AGENTS.md": b"Use CSS.\n",
    "skills/pay/SKILL.md": SKILL,
    "skills/pay/rates.md": b"1 %\n",
    "subagents/review.md": REVIEW,
    "subagents/write/agent.json": b'{"description": "Writes.", "model": "openai:gpt-5.4"}',
    "subagents/write/AGENTS.md": b"Write.\n",
    "subagents/write/skills/note/SKILL.md": SKILL.replace(b"pay", b"note"),
    "tools.json": b'{"tools": [{"name": "find", "mcp_server_url": "https://x.y/z",'
    b' "mcp_server_name": "fleet"}]}',
    "notes/vendors.md": b"None.\n",
}


def test_each_harness_finds_what_it_looks_for():
    """Each harness finds instructions, skills and subagents under the names that it reads."""
    made = {kind: harnesses.export(SPACE, kind, settings=True).tree for kind in Harness}
    assert made[Harness.AGENTS_MD] == SPACE
    claude = made[Harness.CLAUDE_CODE]
    assert claude["CLAUDE.md"] == claude["web/CLAUDE.md"] == Link("AGENTS.md")
    assert claude[".claude/skills/pay/SKILL.md"] == SKILL
    assert claude[".claude/agents/review.md"] == REVIEW
    assert b"https://x.y/z" in bytes(claude[".mcp.json"])  # type: ignore[arg-type]  # it is no link
    assert made[Harness.OPENCODE][".opencode/skills/pay/rates.md"] == b"1 %\n"
    assert made[Harness.CODEX][".agents/skills/pay/rates.md"] == b"1 %\n"
    assert made[Harness.DEEPAGENTS]["subagents/review/AGENTS.md"] == b'Look \\ """ twice.\n'
    for folder in made.values():
        assert drafts.problems(folder) == []


def test_what_a_subagent_may_not_use_is_denied_where_the_harness_can_say_so():
    """OpenCode's rules deny all but its tools; Codex' sandbox keeps who may not write from it."""
    text = harnesses.export(SPACE, Harness.OPENCODE).tree[".opencode/agents/review.md"]
    front = yaml.safe_load(bytes(text).split(b"---\n")[1])  # type: ignore[arg-type]  # it is no link
    rules = [(rule["action"], rule["effect"]) for rule in front["permissions"]]
    assert rules == [("*", "deny"), ("read", "allow"), ("grep", "allow"), ("fleet_find", "allow")]
    made = harnesses.export(SPACE, Harness.CODEX, settings=True).tree
    agent = tomllib.loads(bytes(made[".codex/agents/review.toml"]).decode())  # type: ignore[arg-type]  # it is no link
    assert agent["sandbox_mode"] == "read-only"
    assert agent["developer_instructions"] == 'Look \\ """ twice.\n'
    config = tomllib.loads(bytes(made[".codex/config.toml"]).decode())  # type: ignore[arg-type]  # it is no link
    assert config["mcp_servers"]["fleet"] == {"url": "https://x.y/z", "enabled_tools": ["find"]}


def test_what_a_harness_cannot_say_is_reported():
    """Settings that a harness cannot express are reported."""
    notes = harnesses.export(SPACE, Harness.OPENCODE).notes
    assert any("'sonnet'" in note for note in notes)
    assert any("subagents/write/skills/note/SKILL.md" in note for note in notes)
    assert any("opencode.json" in note for note in notes)


@pytest.mark.parametrize("harness", Harness)
def test_a_change_in_the_harness_comes_back_alone(harness):
    """Only edited, new and deleted files of the harness are imported; the rest is unchanged."""
    made = dict(harnesses.export(SPACE, harness).tree)
    [skill] = [path for path in made if path.endswith("pay/SKILL.md")]
    [rates] = [path for path in made if path.endswith("pay/rates.md")]
    made[skill] = SKILL + b"At once.\n"
    made[f"{skill.removesuffix('pay/SKILL.md')}new/SKILL.md"] = b"---\nname: new\n"
    del made[rates]
    expected = SPACE | {
        "skills/pay/SKILL.md": made[skill],
        "skills/new/SKILL.md": b"---\nname: new\n",
    }
    del expected["skills/pay/rates.md"]
    assert harnesses.import_tree(made, harness, SPACE) == expected


def test_claude_codes_own_file_is_read_by_others():
    """A folder with only CLAUDE.md gets AGENTS.md as a link to it, and round-trips unchanged."""
    folder = {"CLAUDE.md": b"Be brief."}
    space = harnesses.import_tree(folder, Harness.CLAUDE_CODE)
    assert space == {"CLAUDE.md": b"Be brief.", "AGENTS.md": Link("CLAUDE.md")}
    assert harnesses.export(space, Harness.CLAUDE_CODE).tree == folder


CODEX_AGENT = b'name = "review"\ndescription = "Reviews."\nnickname_candidates = ["R"]\n'


@pytest.mark.parametrize(
    ("harness", "path", "content"),
    [
        (Harness.CODEX, ".codex/agents/review.toml", CODEX_AGENT),
        (Harness.CODEX, ".codex/agents/review.toml", b"not = toml = at all"),
        (Harness.OPENCODE, ".opencode/agents/a.md", b"---\ndescription: d\ntemperature: 1\n---\n"),
        (Harness.OPENCODE, ".opencode/agents/a.md", b"\xff"),
    ],
)
def test_a_subagent_that_has_no_exact_way_back_stays_as_it_is(harness, path, content):
    """A subagent that uses harness-specific terms is kept in the harness's format."""
    space = harnesses.import_tree({path: content}, harness)
    assert space == {path: content}
    assert harnesses.export(space, harness).tree == {path: content}


def test_a_subagent_that_has_a_way_back_is_one_of_the_space():
    """An exactly convertible subagent becomes one of the space, and is exported byte by byte."""
    for harness, path in (
        (Harness.CODEX, ".codex/agents/review.toml"),
        (Harness.OPENCODE, ".opencode/agents/review.md"),
    ):
        space = {"subagents/review.md": b"---\nname: review\ndescription: Reviews.\n---\nLook.\n"}
        made = harnesses.export(space, harness).tree
        back = harnesses.import_tree(made, harness)
        assert list(back) == ["subagents/review.md"]
        assert drafts.problems(back) == []
        assert harnesses.export(back, harness).tree == made == {path: made[path]}


NAMES = st.sampled_from(["AGENTS.md", "CLAUDE.md", "a.md", "SKILL.md", "agent.json", "x.toml"])
FOLDERS = st.sampled_from(
    [
        *("", "web/", "skills/a/", "skills/", "subagents/", "subagents/a/", ".claude/skills/a/"),
        *(".claude/agents/", ".opencode/agents/", ".codex/agents/", ".agents/skills/a/"),
    ]
)
CONTENTS = st.sampled_from(
    [b"", b"x", REVIEW, SKILL, b'{"description": "d"}', Link("AGENTS.md"), Link("CLAUDE.md")]
)


@given(
    st.dictionaries(st.builds(str.__add__, FOLDERS, NAMES), CONTENTS, max_size=8),
    st.sampled_from(Harness),
)
def test_whatever_a_space_has_comes_back(space, harness):
    """Every space survives a round trip, valid or not, in any combination of files."""
    made = harnesses.export(space, harness).tree
    assert harnesses.import_tree(made, harness, space) == space


def test_what_configures_a_harness_is_exported_only_when_it_is_asked_for():
    """Harness configuration is exported on request only, by name, and never overwritten."""
    own = {".claude/settings.json": b"{}\n", "web/.gitattributes": b"*.md text\n"}
    space = SPACE | own
    made = harnesses.export(space, Harness.CLAUDE_CODE)
    settings = {*own, ".mcp.json"}
    assert not settings & set(made.tree)
    assert {note.split()[0] for note in made.notes if "--settings" in note} == settings
    assert settings <= set(harnesses.export(space, Harness.CLAUDE_CODE, settings=True).tree)
    assert harnesses.import_tree(made.tree, Harness.CLAUDE_CODE, space) == space
    changed = {**made.tree, ".claude/settings.json": b'{"a": 1}\n'}
    back = harnesses.import_tree(changed, Harness.CLAUDE_CODE, space)
    assert back[".claude/settings.json"] == b'{"a": 1}\n'
