"""What of memory stands in a system prompt: every AGENTS.md, and what skills there are.

Instructions are given from the farthest to the nearest: of all, of the user, of the agent, and of
each from the root into the folders, so that what comes later counts more, as agents.md says. Of a
skill its name and description stand there; its file is read when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from hansard.agents.memory.validation import frontmatter
from hansard.agents.memory.validation.frontmatter import FrontMatter, Text
from hansard.domain.errors import BadValue
from hansard.domain.memory.paths import AGENTS, SKILLS
from hansard.domain.memory.space import MemoryFile

SKILL = "SKILL.md"
BUDGET_MIN = 200
"""Least budget, in characters: less holds no instruction."""

DESCRIPTION_MAX = 1_024
"""Most characters of a skill's description: the most that its specification allows."""


class PromptPart(msgspec.Struct, frozen=True):
    """A file that a prompt tells of."""

    space: str
    file: MemoryFile


def is_told(path: str) -> bool:
    """Whether a prompt tells of a file."""
    *folders, name = path.split("/")
    return name == AGENTS or (name == SKILL and SKILLS in folders)


def composed(parts: Iterable[PromptPart], spaces: tuple[str, ...], budget: int | None) -> str:
    """The block of a system prompt, of at most so many characters.

    parts: every AGENTS.md of all levels, and the skills that are seen. spaces: the nearest first.
    Where the budget is too small, the farthest instructions are cut first, and it is said. Raises
    BadValue for a budget below BUDGET_MIN.
    """
    if budget is not None and budget < BUDGET_MIN:
        raise BadValue("budget", f"{budget} characters", f"give {BUDGET_MIN} or more, or none")
    given = list(parts)
    told = [each for each in given if each.file.path.split("/")[-1] == AGENTS]
    told.sort(key=lambda it: (-spaces.index(it.space), it.file.path.count("/"), it.file.path))
    skills = [each for each in given if each not in told]
    lines = sorted(_skill(each) for each in skills)
    ending = ""
    if lines:
        head = "## Skills\n\nView a skill's file before you do what it is for.\n\n"
        ending = head + "".join(lines)
    blocks = [_instructions(each) for each in told]
    if budget is not None:
        ending = ending[:budget]
        blocks = _within(told, blocks, budget - len(ending) - 1)
    return "\n".join([*(block for block in blocks if block), *([ending] if ending else [])])


def _instructions(part: PromptPart) -> str:
    text = part.file.text.rstrip("\n")
    return f"## {part.file.path} ({part.space})\n\n{text}\n" if text else ""


def _within(told: list[PromptPart], blocks: list[str], budget: int) -> list[str]:
    """The blocks that fit, the nearest whole as long as they do; of others it is said where."""
    found: list[str] = []
    left = budget
    for part, block in reversed(list(zip(told, blocks, strict=True))):
        room = left - len(found)
        fits = block if len(block) <= room else _cut(part, block, room)
        found.insert(0, fits)
        left -= len(fits)
    return found


def _cut(part: PromptPart, block: str, room: int) -> str:
    note = f"\n(cut: view {part.file.path} of {part.space})\n"
    return block[: room - len(note)] + note if room > len(note) else ""


def _skill(part: PromptPart) -> str:
    """A skill in a line: what its front matter says, as far as that can be read."""
    name, about = part.file.path.split("/")[-2], ""
    read = frontmatter.read(part.file.path, part.file.text, flow=True)
    if isinstance(read, FrontMatter):
        fields = read.fields.fields
        name, about = _text(fields.get("name")) or name, _text(fields.get("description"))
    words = " ".join(about.split())[:DESCRIPTION_MAX]
    return f"- {name} ({part.file.path}){f': {words}' if words else ''}\n"


def _text(value: object) -> str:
    return value.value if isinstance(value, Text) else ""
