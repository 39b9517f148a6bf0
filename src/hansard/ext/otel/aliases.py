"""The one table of attribute names: each fact of a span, by its names in each convention.

The GenAI conventions have renamed attributes in most of their releases, and two older conventions
have names of their own. A span is read by this table whichever of them its program follows, also if
it mixes them. The first name that a span has counts; those of the newest version stand first.
"""

from __future__ import annotations

from collections.abc import Mapping
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


def _names(
    genai: Mapping[str, str],
    openinference: str = "",
    openllmetry: str = "",
    other: str = "",
) -> tuple[Alias, ...]:
    built = [Alias(name, GENAI, versions) for name, versions in genai.items()]
    texts = {OPENINFERENCE: openinference, OPENLLMETRY: openllmetry, OTHER: other}
    built += [Alias(name, of, "") for of, names in texts.items() for name in names.split()]
    return tuple(built)


SINCE_37, UNTIL_36, UNTIL_27 = "1.37 to v0.1.0", "to 1.36", "to 1.27"

TABLE: dict[str, tuple[Alias, ...]] = {
    "operation": _names({"gen_ai.operation.name": "1.28 to v0.1.0"}, "", "llm.request.type"),
    "kind": _names({}, "openinference.span.kind", "traceloop.span.kind", "ai.operationId"),
    "provider": _names(
        {"gen_ai.provider.name": SINCE_37, "gen_ai.system": UNTIL_36},
        "llm.provider llm.system",
        "llm.vendor",
        "ai.model.provider",
    ),
    "model": _names(
        {"gen_ai.request.model": "to v0.1.0"},
        "llm.model_name embedding.model_name",
        "llm.request.model",
        "ai.model.id model_name",
    ),
    "response_model": _names(
        {"gen_ai.response.model": "to v0.1.0"}, "", "llm.response.model", "ai.response.model"
    ),
    "response_id": _names({"gen_ai.response.id": "to v0.1.0"}, "", "", "ai.response.id"),
    "finish_reasons": _names(
        {"gen_ai.response.finish_reasons": "to v0.1.0"},
        "llm.finish_reason",
        "llm.response.finish_reason llm.response.stop_reason",
        "ai.response.finishReason",
    ),
    "input_tokens": _names(
        {"gen_ai.usage.input_tokens": "1.28 to v0.1.0", "gen_ai.usage.prompt_tokens": UNTIL_27},
        "llm.token_count.prompt",
        "llm.usage.prompt_tokens",
        "ai.usage.inputTokens ai.usage.promptTokens",
    ),
    "output_tokens": _names(
        {
            "gen_ai.usage.output_tokens": "1.28 to v0.1.0",
            "gen_ai.usage.completion_tokens": UNTIL_27,
        },
        "llm.token_count.completion",
        "llm.usage.completion_tokens",
        "ai.usage.outputTokens ai.usage.completionTokens",
    ),
    "cached_tokens": _names(
        {"gen_ai.usage.cache_read.input_tokens": "1.40 to v0.1.0"},
        "llm.token_count.prompt_details.cache_read",
        "gen_ai.usage.cache_read_input_tokens",
        "ai.usage.cachedInputTokens",
    ),
    "cache_write_tokens": _names(
        {
            "gen_ai.usage.cache_creation.input_tokens": "1.40 to v0.1.0",
            "gen_ai.usage.cache_write.input_tokens": "as anthropic writes it",
        },
        "llm.token_count.prompt_details.cache_write",
        "gen_ai.usage.cache_creation_input_tokens",
    ),
    "reasoning_tokens": _names(
        {"gen_ai.usage.reasoning.output_tokens": "1.41 to v0.1.0"},
        "llm.token_count.completion_details.reasoning",
        "gen_ai.usage.reasoning_tokens",
        "ai.usage.reasoningTokens",
    ),
    "cost": _names({}, "llm.cost.total", "gen_ai.usage.cost", "operation.cost"),
    "input_messages": _names(
        {"gen_ai.input.messages": SINCE_37},
        "llm.input_messages.*",
        "gen_ai.prompt.* llm.prompts.*",
        "ai.prompt.messages ai.prompt gcp.vertex.agent.llm_request langfuse.observation.input",
    ),
    "output_messages": _names(
        {"gen_ai.output.messages": SINCE_37},
        "llm.output_messages.*",
        "gen_ai.completion.* llm.completions.*",
        "gcp.vertex.agent.llm_response langfuse.observation.output",
    ),
    "message_events": _names({}, "", "", "events all_messages_events"),
    "output_text": _names({}, "", "", "ai.response.text ai.response.object"),
    "output_calls": _names({}, "", "", "ai.response.toolCalls"),
    "system_instructions": _names({"gen_ai.system_instructions": SINCE_37}),
    "tools": _names(
        {"gen_ai.tool.definitions": "1.38 to v0.1.0"},
        "llm.tools.*",
        "llm.request.functions.*",
        "ai.prompt.tools",
    ),
    "input": _names({}, "input.value", "traceloop.entity.input", ""),
    "output": _names({}, "output.value", "traceloop.entity.output", ""),
    "tool": _names(
        {"gen_ai.tool.name": "1.31 to v0.1.0"}, "tool.name", "", "ai.toolCall.name mcp.tool.name"
    ),
    "call_id": _names(
        {"gen_ai.tool.call.id": "1.31 to v0.1.0"}, "tool_call.id tool.id", "", "ai.toolCall.id"
    ),
    "tool_arguments": _names(
        {"gen_ai.tool.call.arguments": "1.38 to v0.1.0"},
        "tool.parameters",
        "",
        "ai.toolCall.args ai.toolCall.input tool_arguments gcp.vertex.agent.tool_call_args",
    ),
    "tool_result": _names(
        {"gen_ai.tool.call.result": "1.38 to v0.1.0"},
        "",
        "",
        "ai.toolCall.result ai.toolCall.output tool_response gcp.vertex.agent.tool_response",
    ),
    "agent": _names(
        {
            "gen_ai.agent.name": "1.31 to v0.1.0",
            "gen_ai.workflow.name": "1.41 to 1.42",
        },
        "agent.name",
        "",
        "agent_name",
    ),
    "workflow": _names({}, "", "traceloop.workflow.name", "ai.telemetry.functionId"),
    "entity": _names({}, "graph.node.name", "traceloop.entity.name", ""),
    "conversation": _names(
        {"gen_ai.conversation.id": "1.34 to v0.1.0"},
        "session.id",
        "traceloop.association.properties.session_id",
        "langfuse.session.id",
    ),
    "error_type": _names({"error.type": ""}, "exception.type"),
}
"""Names by fact, the preferred first."""

TOKENS = tuple(fact for fact in TABLE if fact.endswith("_tokens"))
"""The facts that are numbers of tokens."""

OPERATIONS = {
    "chat": "model",
    "text_completion": "model",
    "completion": "model",
    "generate_content": "model",
    "embeddings": "model",
    "embedding": "model",
    "rerank": "model",
    "execute_tool": "tool",
    "tool": "tool",
    "retrieval": "tool",
    "retriever": "tool",
    "reranker": "tool",
    "llm": "model",
    "generation": "model",
    "invoke_agent": "agent",
    "create_agent": "",
    "invoke_workflow": "agent",
    "agent": "agent",
    "workflow": "agent",
    "ai.generatetext.dogenerate": "model",
    "ai.streamtext.dostream": "model",
    "ai.generateobject.dogenerate": "model",
    "ai.streamobject.dostream": "model",
    "ai.embed.doembed": "model",
    "ai.embedmany.doembed": "model",
    "ai.toolcall": "tool",
}
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


def page() -> str:
    """Return the table as Markdown, as docs/otel.md has it."""
    lines = ["| fact | " + " | ".join(CONVENTIONS) + " |", "|---" * (len(CONVENTIONS) + 1) + "|"]
    for fact, aliases in TABLE.items():
        cells = []
        for convention in CONVENTIONS:
            some = [each for each in aliases if each.convention == convention]
            versions = {each.name: f" ({each.versions})" if each.versions else "" for each in some}
            cells.append(", ".join(f"`{name}`{of}" for name, of in versions.items()))
        lines.append(f"| {fact} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
