"""A version made of what was said of the one before: by a rule of ours, a function, or a model.

The rules work on the text alone: equal text and feedback give an equal version.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from hansard.agents.prompts.store import Draft, Prompt, add, get
from hansard.agents.workspace import Workspace
from hansard.domain import prompt as prompts
from hansard.domain.choices import nearest
from hansard.domain.errors import BadValue

FEEDBACK_MAX = 100
"""Pieces of feedback that one version answers."""

BRIEF = "Answer as briefly as the task allows: no introduction, no repetition, no closing remark."
CONTEXT = (
    "Context:\n{context}\n\nWhere the context does not hold what is needed, say what is missing."
)

Evolver = Callable[[Prompt, str], str | Awaitable[str]]
"""Gives the new text of a prompt that something was said of: a function, or what asks a model."""

_BLANKS = re.compile(r"[ \t]+(?=\n|\Z)")
_GAPS = re.compile(r"\n{3,}")


def too_verbose(prompt: Prompt, _: str = "") -> str:
    """The text asks for brevity; a line that says what an earlier one said goes."""
    lines: list[str] = []
    seen: set[str] = set()
    for line in _BLANKS.sub("", prompt.text).split("\n"):
        said = " ".join(line.split()).casefold()
        if said and said in seen and len(said) >= LINE_CHARACTERS_MIN:
            continue
        seen.add(said)
        lines.append(line)
    text = _GAPS.sub("\n\n", "\n".join(lines)).strip("\n")
    return text if BRIEF in text else f"{text}\n\n{BRIEF}"


LINE_CHARACTERS_MIN = 20
"""Of a line that is left out where it comes again: a shorter one (`}`) may be part of a form."""


def missing_context(prompt: Prompt, _: str = "") -> str:
    """The text has a variable `context`, which who formats it then gives, and asks to say what is
    missing in it.
    """
    if "context" in prompts.variables(prompt.text):
        return prompt.text
    text = prompt.text.rstrip("\n")
    return f"{text}\n\n{CONTEXT}"


RULES: Mapping[str, Callable[[Prompt, str], str]] = {
    "too_verbose": too_verbose,
    "missing_context": missing_context,
}
"""Those that come along, by the feedback that they answer."""


def told(feedback: object) -> list[str]:
    """Feedback as a list, each once. Raises BadValue."""
    said = [feedback] if isinstance(feedback, str) else feedback
    if (
        not isinstance(said, Sequence)
        or not 0 < len(said) <= FEEDBACK_MAX
        or not all(isinstance(each, str) and each for each in said)
    ):
        raise BadValue("feedback", f"{feedback!r:.80}", f"give 1 to {FEEDBACK_MAX} texts")
    return list(dict.fromkeys(said))


def rule_of(feedback: str, using: Evolver | None) -> Evolver:
    """What answers a piece of feedback. Raises BadValue."""
    if using is not None:
        return using
    if feedback not in RULES:
        like = nearest(feedback, RULES)
        remedy = f"{like}give one of {', '.join(RULES)}, or using= a function that gives the text"
        raise BadValue("feedback", f"no rule answers {feedback!r:.80}", remedy)
    return RULES[feedback]


def evolved(prompt: Prompt, text: object) -> Prompt:
    """The prompt with the text that an evolver gave. Raises BadValue."""
    if not isinstance(text, str) or not text.strip():
        raise BadValue("what the evolver gave", f"{text!r:.80}", "give the new text")
    return msgspec.structs.replace(prompt, text=str(text))


async def added(
    workspace: Workspace,
    before: Prompt,
    after: Prompt,
    feedback: Sequence[str],
    *,
    because: str,
    by: str,
) -> Prompt:
    """The version that an evolved text is added as; the one before where it is the same. Raises
    Refused, BadValue, Conflict after 50 lost races.
    """
    draft = Draft(
        text=after.text,
        model=before.model,
        parameters=before.parameters,
        parents=(before.version,),
        feedback_applied=tuple(feedback),
        because=because,
    )
    version = await add(workspace, before.name, draft, by=by)
    return await get(workspace, f"{before.name}@{version}")
