"""`hansard memory export`, `import`, `checkout`, `commit`, `validate` on a real log."""

import json

import pytest

from hansard.agents.memory.formats import Link
from hansard.ext.memory import harnesses
from tests.memory.portable.test_harnesses import SKILL, SPACE

pytestmark = pytest.mark.slow


def json_of(call, *arguments):
    """Return the JSON output of a command."""
    ran = call("memory", *arguments, "--json")
    assert ran.code == 0, ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


@pytest.fixture
def space(call, tmp_path):
    """Return a space with all that a harness looks for."""
    harnesses.write(tmp_path / "in", SPACE | {"CLAUDE.md": Link("AGENTS.md")})
    [made] = json_of(call, "import", tmp_path / "in")
    assert (made["space"], made["version"], made["changes"]) == ("org", 1, 1)
    return SPACE | {"CLAUDE.md": Link("AGENTS.md")}


def test_what_is_not_valid_is_not_imported(call, space, tmp_path):
    """An invalid import is refused with the place and recorded; the space is unchanged."""
    harnesses.write(tmp_path / "bad", {"skills/pay/SKILL.md": SKILL.replace(b"pay", b"PAY")})
    ran = call("memory", "import", tmp_path / "bad")
    assert ran.code == 2
    assert "skills/pay/SKILL.md:2: skill.name.case: found 'PAY'" in ran.err
    assert call("memory", "validate").code == 0
    report = call("memory", "validate", tmp_path / "bad")
    assert report.code == 1
    assert "skills/pay/SKILL.md:2: skill.name.folder" in report.out
    json_of(call, "export", tmp_path / "out")
    assert harnesses.read(tmp_path / "out") == space


def test_a_policy_is_set_before_anything_else_is_on_record(call):
    """The policy command makes the workspace, so an agent's first run needs no approval."""
    ran = call("memory", "policy", "agent/new", "off", "--by", "ann")
    assert (ran.code, ran.err) == (0, "")
    assert json_of(call, "policy", "agent/new")[0]["approval"] == "off"


def test_what_became_of_a_checkout_is_one_change(call, space, tmp_path):
    """All edits, additions, deletions and renames of a checkout are one change."""
    folder = tmp_path / "work"
    json_of(call, "checkout", "--as", "claude-code", folder)
    (folder / "AGENTS.md").write_text("Be kind.\n")
    (folder / ".claude/skills/pay/rates.md").rename(folder / ".claude/skills/pay/prices.md")
    (folder / "notes/vendors.md").unlink()
    (folder / "notes/new.md").write_text("New.\n")
    [made] = json_of(call, "commit", folder, "--reason", "kinder")
    assert made["version"] == 2
    assert made["changed"] == [
        *("AGENTS.md", "notes/new.md", "notes/vendors.md"),
        *("skills/pay/prices.md", "skills/pay/rates.md"),
    ]
    [again] = json_of(call, "commit", folder)
    assert (again["version"], again["changed"], again["brought"]) == (2, [], [])
    json_of(call, "export", tmp_path / "out")
    out = harnesses.read(tmp_path / "out")
    assert out["AGENTS.md"] == b"Be kind.\n"
    assert out["skills/pay/prices.md"] == space["skills/pay/rates.md"]
    assert "notes/vendors.md" not in out


def test_two_checkouts_take_each_others_changes(call, space, tmp_path):
    """Two checkouts merge other files and conflict on one file, and lose nothing."""
    one, other = tmp_path / "one", tmp_path / "other"
    json_of(call, "checkout", one)
    json_of(call, "checkout", other)
    (one / "AGENTS.md").write_text("One.\n")
    (other / "web/AGENTS.md").unlink()
    (other / "web").rmdir()
    json_of(call, "commit", one)
    [made] = json_of(call, "commit", other)
    assert (made["changed"], made["brought"]) == (["web/AGENTS.md"], ["AGENTS.md"])
    assert (other / "AGENTS.md").read_text() == "One.\n"
    [made] = json_of(call, "commit", one)
    assert made["brought"] == ["web/AGENTS.md"]
    assert not (one / "web").exists()
    (one / "AGENTS.md").write_text("Mine.\n")
    (other / "AGENTS.md").write_text("Theirs.\n")
    json_of(call, "commit", other)
    before = harnesses.read(one)
    ran = call("memory", "commit", one)
    assert ran.code == 1
    assert "-Theirs.\n+Mine." in ran.out
    assert harnesses.read(one) == before


def test_a_folder_that_is_no_checkout_is_reported(call, space, tmp_path):
    """A folder without a valid mark of a checkout is refused, with the remedy."""
    (tmp_path / "plain").mkdir()
    ran = call("memory", "commit", tmp_path / "plain")
    assert (ran.code, "hansard memory checkout" in ran.err) == (2, True)
    json_of(call, "checkout", tmp_path / "work")
    (tmp_path / "work/.hansard-checkout.json").write_text("{")
    ran = call("memory", "commit", tmp_path / "work")
    assert (ran.code, "check out again" in ran.err) == (2, True)
