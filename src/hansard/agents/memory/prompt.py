"""What of memory stands in a system prompt: every AGENTS.md, and what skills there are.

Instructions are given from the farthest to the nearest: of all, of the user, of the agent, and of
each from the root into the folders, so that what comes later counts more, as agents.md says. Of a
skill its name and description stand there; its file is read when it is needed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

import msgspec

from hansard.agents.memory.validation import frontmatter
from hansard.agents.memory.validation.frontmatter import FrontMatter, Text
from hansard.domain.errors import BadValue
from hansard.domain.memory.paths import AGENTS, SKILLS
from hansard.domain.memory.space import MemoryFile

SKILL = "SKILL.md"
BUDGET_MIN, COUNTED_MIN = 200, 50
"""Least budget, in characters and in what is counted: less holds no instruction."""

Count = Callable[[str], int]
"""How large a text is: a tokenizer's, in tokens. A longer text is not smaller."""

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


def composed(
    parts: Iterable[PromptPart],
    spaces: tuple[str, ...],
    budget: int | None,
    count: Count | None = None,
) -> str:
    """The block of a system prompt, of at most so many characters, or of what is counted.

    parts: every AGENTS.md of all levels, and the skills that are seen. spaces: the nearest first.
    Where the budget is too small, the farthest instructions are cut first, and it is said. Raises
    BadValue for a budget below BUDGET_MIN, or COUNTED_MIN.
    """
    least, what = (BUDGET_MIN, "characters") if count is None else (COUNTED_MIN, "as it is counted")
    if budget is not None and budget < least:
        raise BadValue("budget", f"{budget} {what}", f"give {least} or more, or none")
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
        ending = _begin(ending, "", budget, count or len)
        blocks = _within(told, blocks, ending, budget, count or len)
    return _joined([*blocks, ending])


def _joined(blocks: Iterable[str]) -> str:
    return "\n".join(block for block in blocks if block)


def _instructions(part: PromptPart) -> str:
    text = part.file.text.rstrip("\n")
    return f"## {part.file.path} ({part.space})\n\n{text}\n" if text else ""


def _within(
    told: list[PromptPart], blocks: list[str], ending: str, budget: int, size: Count
) -> list[str]:
    """The blocks that fit before an ending, the nearest whole as long as they do; of others it is
    said where.
    """
    found: list[str] = []
    for part, block in reversed(list(zip(told, blocks, strict=True))):
        left = _joined([*found, ending])
        if size(_joined([block, left])) <= budget:
            found.insert(0, block)
            continue
        note = f"\n(cut: view {part.file.path} of {part.space})\n"
        found.insert(0, _begin(block, note, budget, functools.partial(_beside, size, left)))
    return found


def _beside(size: Count, left: str, text: str) -> int:
    """How large a text is together with what stands behind it."""
    return size(_joined([text, left]))


def _begin(text: str, note: str, budget: int, size: Count) -> str:
    """As much of a text as fits, with a note behind where that is not all; empty where not even
    the note does.
    """
    if size(text) <= budget:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if size(text[:middle] + note) <= budget else (low, middle - 1)
    return text[:low] + note if low else ""


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
