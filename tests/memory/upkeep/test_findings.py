"""Shortening candidates found without a model: lists that need a rule and duplicate lines."""

import pytest

from hansard.ext.memory.compaction import Kind, find

VENDORS = ["Acme", "Globex Corp", "Initech", "Umbrella", "Hooli", "Stark Industries", "Wayne"]


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"- Ignore emails from {vendor}." for vendor in VENDORS),
        "Do not archive mails.\n" + "\n".join(f"Skip invoices of {v} for now" for v in VENDORS),
        "Ignore these vendors:\n\n" + "\n".join(f"* {vendor}" for vendor in VENDORS),
        f"- Vendors to ignore: {', '.join(VENDORS)}.",
    ],
    ids=["lines", "in the middle", "items", "one line"],
)
def test_a_list_of_vendors_to_ignore_wants_a_rule(text):
    """A list of vendors in any notation becomes a rule; the lead is kept, and every value is
    listed.
    """
    [finding] = find({"AGENTS.md": f"# Mail\n\nBe brief.\n\n{text}\n"})
    assert finding.kind is Kind.VALUE_LIST
    assert list(finding.values) == VENDORS
    assert {"ignore", "skip"} & set(finding.lead.casefold().split())


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"- Ignore emails from {vendor}." for vendor in VENDORS[:5]),
        "```\n" + "\n".join(f"ignore mails of {vendor}" for vendor in VENDORS) + "\n```",
        "Ignored files:\n" + "\n".join(f"- `*.{end}`" for end in "abcdefgh"),
        "Our vendors:\n" + "\n".join(f"- {vendor}" for vendor in VENDORS),
        "\n".join(f"| Ignore | {vendor} |" for vendor in VENDORS),
    ],
    ids=["few", "code", "globs", "no directive", "table"],
)
def test_other_lists_are_left_alone(text):
    """Short lists, code, tables, and lists without a common rule are left alone."""
    assert find({"AGENTS.md": text}) == []


@pytest.mark.real
def test_real_instructions_have_no_false_lists(real_data, evidence):
    """None of the AGENTS.md of other projects has such a list, links included."""
    names = {"AGENTS.md", "CLAUDE.md"}
    files = [path for path in (real_data / "agents-md").rglob("*.md") if path.name in names]
    lists = [
        finding
        for path in files
        for finding in find({path.name: path.read_text()})
        if finding.kind is Kind.VALUE_LIST
    ]
    evidence.record("memory.compact.lists", files=len(files), found=len(lists))
    assert len(files) == 67
    assert lists == []


def test_lines_that_say_the_same_are_found_across_files():
    """The longest duplicate represents the others; another number or negation is no duplicate."""
    tree = {
        "AGENTS.md": "- Always put the action items last in the minutes of each meeting.\n"
        "- Send it by 5 o'clock.",
        "notes.md": "* always put action items last in the minutes of each meeting\n\n"
        "- Send it by 6 o'clock.",
        "other.md": "Never put the action items last in the minutes of each meeting.",
    }
    [finding] = find(tree)
    assert finding.kind is Kind.NEAR_DUPLICATE
    assert [(spot.path, spot.line) for spot in finding.spots] == [("AGENTS.md", 1), ("notes.md", 1)]


def test_files_that_nobody_read_are_named_where_somebody_counted():
    """Unread files are only reported where reads were counted."""
    tree = {"a.md": "x", "b.md": "y"}
    assert [each.spots[0].path for each in find(tree, {"a.md": 2})] == ["b.md"]
    assert find(tree) == []
