"""An agent as its files say it: its name and model, its tools, and the subagents that it has.

deepagents' form: `agent.json`, `AGENTS.md`, `tools.json`, `skills/`, and of each subagent the same
in `subagents/NAME/`, or Claude Code's one file `subagents/NAME.md`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from hansard.agents.memory.portable import subagent_forms
from hansard.agents.memory.validation.json_files import Tool, tools_of
from hansard.domain.errors import BadValue
from hansard.domain.memory.paths import AGENTS

AGENT, TOOLS, SKILLS, SUBAGENTS = "agent.json", "tools.json", "skills", "subagents"


class AgentFiles(msgspec.Struct, frozen=True):
    """What the files of an agent say of it.

    Attributes:
        name: What it is called; empty if they do not say.
        description: When a subagent is handed work.
        model: As `provider:model`; None for its parent's, or the one that is given.
        instructions: A subagent's system prompt; an agent's own is its AGENTS.md, as memory.
        tools: The tools of MCP servers that it may use, and no others.
        skills: The folder of its skills; empty where it has none.
        subagents: Those that it hands work to.
    """

    name: str
    description: str = ""
    model: str | None = None
    instructions: str = ""
    tools: list[Tool] = []
    skills: str = ""
    subagents: list[AgentFiles] = []

    @property
    def all_tools(self) -> list[Tool]:
        """Its own and its subagents', each once."""
        of_all = [self.tools, *(each.tools for each in self.subagents)]
        return list(dict.fromkeys(tool for tools in of_all for tool in tools))


def is_said(path: str) -> bool:
    """Whether a file says something of the agent that is read before it starts."""
    parts = path.split("/")
    if parts[0] != SUBAGENTS:
        return path in {AGENT, TOOLS}
    return len(parts) == 2 or (len(parts) == 3 and parts[2] in {AGENT, TOOLS, AGENTS})  # noqa: PLR2004 -- subagents/NAME/FILE


def read(texts: Mapping[str, str], paths: list[str]) -> AgentFiles:
    """An agent by the texts of those of its files that `is_said` names, which are valid, and the
    paths of all. Raises BadValue for tools of two servers with one name.
    """
    told = json.loads(texts.get(AGENT, "{}"))
    own = _tools(texts, TOOLS)
    names = {path.split("/")[1] for path in texts if path.startswith(f"{SUBAGENTS}/")}
    subagents = [_subagent(texts, paths, name, own) for name in sorted(names)]
    found = AgentFiles(
        name=told.get("name", ""),
        description=told.get("description", ""),
        model=_model(told),
        tools=own,
        skills=_skills(paths, ""),
        subagents=[each for each in subagents if each is not None],
    )
    servers: dict[str, str] = {}
    for tool in found.all_tools:
        other = servers.setdefault(tool.name, tool.mcp_server_url)
        if other != tool.mcp_server_url:
            fact = f"{tool.name!r} is of {other} and of {tool.mcp_server_url}"
            raise BadValue(
                "tools.json", fact, "name tools of different names: a model has one each"
            )
    return found


def _tools(texts: Mapping[str, str], path: str) -> list[Tool]:
    return tools_of(texts[path]) if path in texts else []


def _model(told: dict[str, Any]) -> str | None:
    found: str | None = told.get("model") or told.get("model_id")
    return found


def _skills(paths: list[str], folder: str) -> str:
    within = f"{folder}{SKILLS}/"
    return within if any(path.startswith(within) for path in paths) else ""


def _subagent(
    texts: Mapping[str, str], paths: list[str], name: str, own: list[Tool]
) -> AgentFiles | None:
    """A subagent in either form; None for a file that says none."""
    folder = f"{SUBAGENTS}/{name}/"
    if f"{folder}{AGENT}" in texts:
        told = json.loads(texts[f"{folder}{AGENT}"])
        return AgentFiles(
            name=name,
            description=told.get("description") or name,
            model=_model(told),
            instructions=texts.get(f"{folder}{AGENTS}", ""),
            tools=_tools(texts, f"{folder}{TOOLS}"),
            skills=_skills(paths, folder),
        )
    path = f"{SUBAGENTS}/{name}"
    found = subagent_forms.read(path, texts[path].encode()) if name.endswith(".md") else None
    if found is None:
        return None
    return AgentFiles(
        name=found.name,
        description=found.description,
        model=subagent_forms.model_of(found),
        instructions=found.instructions,
        tools=own if found.tools is None else [each for each in own if _named(each, found.tools)],
    )


def _named(tool: Tool, wanted: list[str]) -> bool:
    """Whether a subagent names a tool of its parent's, by itself or as `mcp__SERVER__TOOL`."""
    return tool.name in wanted or f"mcp__{tool.mcp_server_name}__{tool.name}" in wanted
