"""What is said of a version of a prompt that is added, and of an alias that is moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from hansard.agents.prompts.store import Draft, Move
from hansard.domain.choices import check_options
from hansard.domain.errors import BadValue


class PromptVersionOptions(TypedDict, total=False):
    """What may be said of a version besides its text.

    Attributes:
        model: The model that it is meant for.
        parameters: What else the model is given, by name.
        parents: The versions that it is made of: the newest if not given, two for a merge.
        feedback_applied: What was said of its parents that it answers.
        because: Why it is made.
        metrics: What its source claims of it, by name.
    """

    model: str
    parameters: Mapping[str, Any]
    parents: Sequence[int]
    feedback_applied: Sequence[str]
    because: str
    metrics: Mapping[str, float]


class PromptAliasOptions(TypedDict, total=False):
    """What may be said of an alias that is moved.

    Attributes:
        because: Why.
        expected: The version that it names now, None for none: any other one is a conflict.
        take_away: Take the alias away instead; the reference is then its prompt.
    """

    because: str
    expected: int | None
    take_away: bool


def drafted(text: object, options: Mapping[str, Any]) -> Draft:
    """A version to be added. Raises BadOption, BadValue."""
    check_options("record.add_prompt", options, PromptVersionOptions.__annotations__)
    if not isinstance(text, str) or not text.strip():
        raise BadValue("text", f"{text!r:.80}", "give the prompt's text")
    return Draft(text=text, **options)


def moving(alias: str, options: Mapping[str, Any]) -> Move:
    """An alias to be moved. Raises BadOption."""
    check_options("record.alias_prompt", options, PromptAliasOptions.__annotations__)
    return Move(alias=alias, **options)
