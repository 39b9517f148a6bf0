"""A subagent in Claude Code's form: a Markdown file whose front matter says who it is.

The fields are those of code.claude.com/docs/en/sub-agents.
"""

from __future__ import annotations

import re

from hansard.agents.memory.validation import frontmatter
from hansard.agents.memory.validation.fields import Checked
from hansard.domain.memory.events import Problem

NAME_CHARS_MAX = 64
DESCRIPTION_CHARS_MAX = 16_384
MODEL_CHARS_MAX = 128
FIELDS = (
    *("name", "description", "tools", "disallowedTools", "model", "permissionMode", "maxTurns"),
    *("skills", "mcpServers", "hooks", "memory", "background", "effort", "isolation", "color"),
    "initialPrompt",
)

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_TOOL = re.compile(r"\*|[A-Za-z_][A-Za-z0-9_.*-]*(\([^()]*(\([^()]*\)[^()]*)*\))?")
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*(\[[a-z0-9]+\])?")
TOOLS = "names of tools with a comma between them, as 'Read, Grep, mcp__server__tool'"


def problems(path: str, text: str) -> list[Problem]:
    """What is wrong with a subagent's file."""
    front = frontmatter.read(path, text, flow=True)
    if isinstance(front, Problem):
        return [front]
    checked = Checked(path, front.fields, "subagent")
    checked.known(FIELDS)
    name = checked.text("name", most=NAME_CHARS_MAX)
    if name is not None and not _NAME.fullmatch(name):
        checked.bad(
            "name", "name.characters", name, "lower case letters, digits, a hyphen between words"
        )
    checked.text("description", most=DESCRIPTION_CHARS_MAX)
    model = checked.text("model", most=MODEL_CHARS_MAX, required=False)
    if model is not None and not _MODEL.fullmatch(model):
        checked.bad(
            "model", "model.name", model, "sonnet, opus, haiku, inherit, or a model's full name"
        )
    for field in ("tools", "disallowedTools"):
        checked.words(field, _TOOL, ",", TOOLS)
    return checked.found
