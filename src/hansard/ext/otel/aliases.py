"""The one table of attribute names: each fact of a span, by its names in each convention.

The GenAI conventions have renamed attributes in most of their releases, and two older conventions
have names of their own. A span is read by this table whichever of them its program follows, also if
it mixes them. The first name that a span has counts; those of the newest version stand first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

GENAI = "GenAI"
OPENINFERENCE = "OpenInference"
OPENLLMETRY = "OpenLLMetry"
OTHER = "frameworks"
CONVENTIONS = (GENAI, OPENINFERENCE, OPENLLMETRY, OTHER)
"""The conventions; the last are names that single frameworks use besides (Vercel's AI SDK, Google
ADK, PydanticAI, Langfuse)."""

VERSION = "2026-11"
"""Version of this table, recorded as a label of each run that is made by it."""


class Alias(msgspec.Struct, frozen=True):
    """A name of a fact.

    Attributes:
        name: The attribute. `*` stands for an index: such attributes are read as a list.
        convention: One of `CONVENTIONS`.
        versions: The versions that have it; empty: all.
    """

    name: str
    convention: str
    versions: str = ""


_NAME = re.compile(r"`([^`]+)`(?: \(([^)]*)\))?")


def _table(text: str) -> dict[str, tuple[Alias, ...]]:
    """Read the table: a row a fact, a cell a convention, in it each name with its versions."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    return {
        fact: tuple(
            Alias(name, convention, versions)
            for convention, cell in zip(CONVENTIONS, cells, strict=True)
            for name, versions in _NAME.findall(cell)
        )
        for fact, *cells in rows[2:]
    }


PAGE = Path(__file__).with_name("aliases.md").read_text("utf-8")
"""The table as Markdown, as docs/otel.md has it."""

TABLE = _table(PAGE)
"""Names by fact, the preferred first."""

TOKENS = tuple(fact for fact in TABLE if fact.endswith("_tokens"))
"""The facts that are numbers of tokens."""

_BY_KIND = {
    "model": "chat text_completion completion generate_content embeddings embedding rerank llm "
    "generation ai.generatetext.dogenerate ai.streamtext.dostream ai.generateobject.dogenerate "
    "ai.streamobject.dostream ai.embed.doembed ai.embedmany.doembed",
    "tool": "execute_tool tool retrieval retriever reranker ai.toolcall",
    "agent": "invoke_agent invoke_workflow agent workflow",
    "": "create_agent",
}
OPERATIONS = {name: kind for kind, names in _BY_KIND.items() for name in names.split()}
"""Kinds of spans by their operation, or kind, in lower case: a call of a `model` or a `tool`, or an
`agent`; any other is structure without a call."""


def read(attributes: Mapping[str, Any], *facts: str) -> Any:
    """Return the first fact that a span's attributes have, None if they have none of them."""
    for alias in (alias for fact in facts for alias in TABLE[fact]):
        if not alias.name.endswith(".*"):
            if alias.name in attributes:
                return attributes[alias.name]
        elif (listed := _indexed(attributes, alias.name[:-1])) is not None:
            return listed
    return None


def kind_of(attributes: Mapping[str, Any], name: str = "") -> str:
    """Return the kind of a span: `model`, `tool`, `agent`, or empty.

    A span that states neither an operation nor a kind is judged by what else it has.
    """
    for fact in ("operation", "kind"):
        stated = read(attributes, fact)
        if isinstance(stated, str) and stated.lower() in OPERATIONS:
            return OPERATIONS[stated.lower()]
    if isinstance(attributes.get("ai.operationId"), str):
        return "agent" if name.startswith("ai.") else ""
    if read(attributes, "tool") is not None or "tool_arguments" in attributes:
        return "tool"
    if read(attributes, "model") is not None and read(attributes, "agent") is None:
        return "model"
    return "agent" if read(attributes, "agent") is not None else ""


INDEX_MAX = 100_000
"""Largest index of a flattened list that is read; larger ones are left where they are."""


def _indexed(attributes: Mapping[str, Any], prefix: str) -> list[Any] | None:
    """Return a list that is flattened over attributes (`llm.input_messages.0.message.role`)."""
    tree: dict[str, Any] = {}
    for name, value in attributes.items():
        if not name.startswith(prefix):
            continue
        place = tree
        *path, last = name[len(prefix) :].split(".")
        for part in path:
            below = place.get(part)
            place = place.setdefault(part, {}) if isinstance(below, dict | None) else {}
        if not isinstance(place.get(last), dict):
            place[last] = value
    listed = _listed(tree)
    return listed if isinstance(listed, list) and listed else None


def _listed(value: Any) -> Any:
    """Return a tree whose objects with only indices for names are lists."""
    if not isinstance(value, dict):
        return value
    if value and all(name.isascii() and name.isdigit() for name in value):
        in_order = sorted(value, key=lambda name: int(name[:9]))
        return [_listed(value[name]) for name in in_order if int(name[:9]) <= INDEX_MAX]
    return {name: _listed(each) for name, each in value.items()}
