"""What a server's tools may do to the world, and which calls are refused or asked about: a file's
rules, and of the rest what the server's own annotations say.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

import hansard.agents.policy.gate as gates
from hansard.domain.choices import nearest
from hansard.domain.errors import BadValue
from hansard.domain.roles.model import DOT, read, tool_matches
from hansard.domain.steps import Effects
from hansard.integrations.mcp import frames
from hansard.integrations.mcp.calls import PREFIX
from hansard.integrations.mcp.frames import Answer, Frame

Declared = Literal["pure", "idempotent", "once"]


class GateRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which tools are refused, and about which somebody is asked first: patterns."""

    deny: list[str] = []
    ask_first: list[str] = []


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a file says: see docs/mcp.md.

    Attributes:
        trust_annotations: Whether `readOnlyHint` and `idempotentHint` of a tool are believed.
        effects: By patterns of tools.
        gate: Which calls are refused or asked about.
        redact: Variables of the environment by the names that stand in their values' place.
    """

    trust_annotations: bool = True
    effects: dict[str, Declared] = {}
    gate: GateRules = GateRules()
    redact: dict[str, str] = {}

    def rules(self) -> list[gates.GateRule]:
        """Those of the gate."""
        return [
            *(gates.deny(tool) for tool in self.gate.deny),
            *(gates.ask_first(tool) for tool in self.gate.ask_first),
        ]

    def denies(self, tool: str) -> bool:
        """Return whether no call of a tool is let through."""
        return any(tool_matches(pattern, tool) for pattern in self.gate.deny)

    def asks_first(self, tool: str) -> bool:
        """Return whether a tool's calls may have to be approved."""
        return any(tool_matches(pattern, tool) for pattern in self.gate.ask_first)

    def secrets(self) -> dict[str, str]:
        """The values to keep out of the record. Raises BadValue for a variable that is not set."""
        missing = [variable for variable in self.redact.values() if not os.environ.get(variable)]
        if missing:
            raise BadValue(
                f"[redact] {missing[0]}", "no such variable is set", "set it, or leave it out"
            )
        return {name: os.environ[variable] for name, variable in self.redact.items()}


def load(path: Path) -> Rules:
    """The rules of a file. Raises BadValue."""
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
        found = msgspec.convert(told, Rules)
    except OSError as error:
        raise BadValue(str(path), f"cannot be read ({error.strerror})", "name a file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadValue(str(path), f"is no TOML ({error})", "see docs/mcp.md") from None
    except msgspec.ValidationError as error:
        known = [*Rules.__struct_fields__, *GateRules.__struct_fields__]
        field = str(error).partition("field `")[2].partition("`")[0]
        like = nearest(field, known) if field else ""
        raise BadValue(str(path), f"{error}", f"{like}see docs/mcp.md for all there is") from None
    for pattern in (*found.effects, *found.gate.deny, *found.gate.ask_first):
        read(pattern, DOT, str(path))
    return found


class ToolEffects:
    """What each tool of a server does, as far as that is known: `learn` takes its lists in."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._annotated: dict[str, Effects] = {}

    def knows(self, tool: str) -> bool:
        """Whether a server need not be asked what it says of a tool."""
        return tool in self._annotated or self._named(tool) is not None or not self.asks

    def without_denied(self, answer: Frame) -> Answer | None:
        """Return a list of tools without those that are denied; None where none of them is."""
        if not isinstance(answer, Answer) or not isinstance(answer.result, dict):
            return None
        tools = answer.result.get("tools")
        if not isinstance(tools, list):
            return None
        kept = [each for each in tools if not self._is_denied(each)]
        if len(kept) == len(tools):
            return None
        shown = {**answer.result, "tools": kept}
        return Answer(frames.result(answer.id, shown), answer.id, shown)

    def _is_denied(self, tool: object) -> bool:
        name = tool.get("name") if isinstance(tool, dict) else None
        return isinstance(name, str) and self._rules.denies(name)

    @property
    def asks(self) -> bool:
        """Whether what a server says of its tools counts."""
        return self._rules.trust_annotations

    def learn(self, tools: object) -> dict[str, Effects]:
        """Take in a list of tools as a server gave it; those that are new."""
        new: dict[str, Effects] = {}
        for each in tools if isinstance(tools, list) else []:
            name = each.get("name") if isinstance(each, dict) else None
            if isinstance(name, str) and name not in self._annotated:
                self._annotated[name] = _annotated(each.get("annotations"))
                new[name] = self.of(name)
        return new

    def of(self, tool: str) -> Effects:
        """What a tool does: by the rules, else by its annotations, else `once`."""
        if tool.startswith(PREFIX):
            return Effects.PURE
        named = self._named(tool)
        if named is not None:
            return named
        return self._annotated.get(tool, Effects.ONCE) if self.asks else Effects.ONCE

    def _named(self, tool: str) -> Effects | None:
        fitting = (
            Effects(told)
            for pattern, told in self._rules.effects.items()
            if tool_matches(pattern, tool)
        )
        return next(fitting, None)


def _annotated(told: Any) -> Effects:
    """By MCP's ToolAnnotations, whose defaults are a tool that writes, and not idempotently."""
    hints = told if isinstance(told, dict) else {}
    if hints.get("readOnlyHint") is True:
        return Effects.PURE
    return Effects.IDEMPOTENT if hints.get("idempotentHint") is True else Effects.ONCE
