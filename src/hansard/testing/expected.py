"""What a test may expect of a program: calls and decisions, by what it cares to say of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from hansard.testing.comparison import brief

UNSAID = msgspec.UNSET
"""Of a field that a test does not care about."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call, as it is expected or as it was made; of what is expected only what is given counts.

    Attributes:
        tool: The tool's name.
        how: `answered` from what was on record before the session began, else `ran`.
        agent: Who made it.
        step: Its number.
        arguments: What it was given, by name; of what is expected, each that is named.
        result: What it returned.
        status: What became of it: `completed`, `failed`, `blocked`, `in_doubt`, `requested`.
        error: Of what it raised: the class's name, a colon and its text; or a part of that.
    """

    tool: str
    how: str
    agent: str | None = None
    step: int | None = None
    arguments: Mapping[str, Any] = {}
    result: Any = UNSAID
    status: str | None = None
    error: str | None = None

    def fits(self, made: Call) -> bool:
        """Whether a call that was made is as this one expects."""
        same = (self.tool, self.how) == (made.tool, made.how)
        named = all(
            name in made.arguments and made.arguments[name] == value
            for name, value in self.arguments.items()
        )
        return (
            same
            and named
            and self.agent in (None, made.agent)
            and self.step in (None, made.step)
            and self.status in (None, made.status)
            and (self.result is UNSAID or self.result == made.result)
            and (self.error is None or self.error in (made.error or ""))
        )

    def __str__(self) -> str:
        given = ", ".join(f"{name}={brief(value)}" for name, value in self.arguments.items())
        number = f"#{self.step}" if self.step is not None else ""
        who = f"{self.agent or ''}{number} " if self.agent or number else ""
        told = f"{self.how} {who}{self.tool}" + (f"({given})" if given else "")
        if self.error is not None:
            return f"{told} {self.status or 'raised'}: {self.error}"
        if self.status not in (None, "completed"):
            return f"{told} {self.status}"
        return told if self.result is UNSAID else f"{told} -> {brief(self.result)}"


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision, as it is expected or as it was made; of what is expected only what is given
    counts.

    Attributes:
        question: What was decided.
        selected: What was chosen.
        because: Why, or a part of it.
        agent: Who decided.
    """

    question: str
    selected: str | None = None
    because: str = ""
    agent: str | None = None

    def fits(self, made: Decision) -> bool:
        """Whether a decision that was made is as this one expects."""
        return (
            self.question == made.question
            and self.selected in (None, made.selected)
            and self.because in made.because
            and self.agent in (None, made.agent)
        )

    def __str__(self) -> str:
        who = f"{self.agent} " if self.agent else ""
        chosen = f": {self.selected}" if self.selected is not None else ""
        why = f" because {self.because}" if self.because else ""
        return f"{who}decided {self.question!r}{chosen}{why}"


def answered(tool: str, **said: Any) -> Call:
    """A call that the record answers: its tool's body does not run.

    Args:
        tool: The tool's name.

    Keyword Args:
        arguments (Mapping): What it is given: each argument that is named here.
        result (Any): What it returns.
        status (str): What became of it, such as `failed`.
        error (str): The class's name of what it raises, its text, or a part of either.
        agent (str): Who makes it.
        step (int): Its number.
    """
    return Call(tool=tool, how="answered", **said)


def ran(tool: str, **said: Any) -> Call:
    """A call whose tool's body runs, or that is refused or interrupted; takes what `answered`
    takes.
    """
    return Call(tool=tool, how="ran", **said)


def decided(
    question: str, selected: str | None = None, *, because: str = "", agent: str | None = None
) -> Decision:
    """A decision that comes on record.

    Args:
        question: What is decided.
        selected: What is chosen.
        because: Why, or a part of it.
        agent: Who decides.
    """
    return Decision(question=question, selected=selected, because=because, agent=agent)
