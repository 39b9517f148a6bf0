"""SKILL.md by the Agent Skills specification (agentskills.io/specification).

The verdicts are those of its reference validator, skills-ref 0.1.1, but for what the specification
says and that one does not look at: `metadata` is a mapping of texts, `compatibility` is not empty.
"""

from __future__ import annotations

import unicodedata

from hansard.agents.memory.validation import frontmatter
from hansard.agents.memory.validation.fields import Checked, written
from hansard.agents.memory.validation.frontmatter import Fields, Items, Text
from hansard.domain.memory.events import Problem

FILE = "SKILL.md"
NAME_CHARS_MAX = 64
DESCRIPTION_CHARS_MAX = 1024
COMPATIBILITY_CHARS_MAX = 500
LICENSE_CHARS_MAX = frontmatter.CHARS_MAX
FIELDS = ("allowed-tools", "compatibility", "description", "license", "metadata", "name")


def problems(path: str, text: str) -> list[Problem]:
    """What is wrong with a SKILL.md; its folder's name counts."""
    front = frontmatter.read(path, text, flow=False)
    if isinstance(front, Problem):
        return [front]
    checked = Checked(path, front.fields, "skill")
    checked.known(FIELDS)
    name = checked.text("name", most=frontmatter.CHARS_MAX)
    if name is not None:
        _name(checked, unicodedata.normalize("NFKC", name.strip()))
    checked.text("description", most=DESCRIPTION_CHARS_MAX)
    checked.text("compatibility", most=COMPATIBILITY_CHARS_MAX, required=False)
    checked.text("license", most=LICENSE_CHARS_MAX, required=False)
    _others(checked)
    return checked.found


def _name(checked: Checked, name: str) -> None:
    def bad(rule: str, allowed: str) -> None:
        checked.bad("name", f"name.{rule}", name, allowed)

    if len(name) > NAME_CHARS_MAX:
        bad("length", f"at most {NAME_CHARS_MAX} characters; it has {len(name)}")
    if name != name.lower():
        bad("case", f"lower case: {name.lower()!r}")
    if name.startswith("-") or name.endswith("-"):
        bad("edge", "a letter or digit at either end")
    if "--" in name:
        bad("hyphens", "one hyphen between two words")
    if not all(letter.isalnum() or letter == "-" for letter in name):
        bad("characters", "letters, digits and hyphens alone")
    folder = unicodedata.normalize("NFKC", "/".join(checked.path.split("/")[-2:-1]))
    if folder != name:
        bad("folder", f"the name of its folder, {folder!r}; or move it to 'skills/{name}/{FILE}'")


def _others(checked: Checked) -> None:
    tools = checked.fields.fields.get("allowed-tools")
    if isinstance(tools, Fields) or (
        isinstance(tools, Items) and not all(isinstance(tool, Text) for tool in tools.items)
    ):
        checked.bad(
            "allowed-tools", "allowed-tools.text", written(tools), "names with a space between them"
        )
    metadata = checked.fields.fields.get("metadata")
    is_empty = isinstance(metadata, Text) and not metadata.value
    if metadata is not None and not isinstance(metadata, Fields) and not is_empty:
        checked.bad(
            "metadata", "metadata.fields", written(metadata), "a line 'name: value' for each"
        )
