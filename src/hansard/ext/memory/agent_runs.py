"""Run a folder as an agent: its files become its memory, and every action is recorded.

The first start imports the folder into the space `agent/NAME`, which is the source of truth from
then on, since the agent may learn. Later differences of the folder are reported, and never imported
silently.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec

from hansard.agents.memory import store
from hansard.agents.memory.formats import Link, Tool, of_space, tools_of
from hansard.agents.policy import gate as gates
from hansard.agents.workspace import Workspace
from hansard.bus.clock import OS_USER
from hansard.bus.portal import portal
from hansard.client.record import Record
from hansard.domain.errors import BadValue, HansardError, import_extra
from hansard.domain.memory.files import AGENT, AGENTS, SKILLS, SUBAGENTS, TOOLS
from hansard.ext.mcp.recording import Rules, ToolEffects
from hansard.ext.memory import harnesses, imports
from hansard.ext.memory.imports import difference

WORKFLOW = "agent"
"""Workflow of these runs."""

_NAME = re.compile(r"[^A-Za-z0-9_-]+")


class AgentFailed(HansardError):
    """Error: deepagents or the model's SDK raised; everything before is on record.

    Attributes:
        run: The run of the error.
    """

    def __init__(self, run: str, error: Exception) -> None:
        text = " ".join(str(error).split())[:400]
        super().__init__(
            f"the agent stopped at {type(error).__name__}: {text}; all until then is on record, so "
            f"start it again with --run {run}"
        )
        self.run = run


class FolderAgent(msgspec.Struct, frozen=True):
    """Agent whose files are in memory.

    Attributes:
        name: Its name; its space is `agent/NAME`.
        version: The version of its space.
        brought: The paths that this start imported, sorted.
        differs: The paths whose content differs between the folder and memory, sorted.
    """

    name: str
    version: int
    brought: list[str] = []
    differs: list[str] = []


class AgentRun(msgspec.Struct, frozen=True):
    """Result of an agent's run.

    Attributes:
        run: The run.
        agent: The agent.
        text: Its last message.
        tools: The tools of MCP servers that it had, sorted.
        subagents: The subagents that it had, sorted.
        differs: The paths whose content differs between the folder and memory.
    """

    run: str
    agent: str
    text: str
    tools: list[str] = []
    subagents: list[str] = []
    differs: list[str] = []


async def brought(workspace: Workspace, folder: Path, by: str) -> FolderAgent:
    """Import an agent's folder into its space, if that is empty.

    Raises BadFolder, MemoryInvalid, BadValue, ExtraMissing.
    """
    read = harnesses.read(folder)
    tree = {path: content for path, content in read.items() if _is_memory(path)}
    if AGENTS not in tree and harnesses.AGENT not in tree:
        fact = f"it has neither {AGENTS} nor {harnesses.AGENT}"
        raise BadValue(str(folder), fact, "name the folder of an agent")
    name = _name(folder, tree.get(harnesses.AGENT))
    space = f"{AGENT}{name}"
    state = await workspace.memories.whole(space)
    current = of_space(state.files)
    if current:
        differs = [path for path in sorted(tree) if current.get(path) != tree[path]]
        return FolderAgent(name, state.version, differs=differs)
    targets = difference({}, tree)
    because = f"the folder of {name}"
    version = await imports.change(workspace, space, targets, seen={}, reason=because, by=by)
    return FolderAgent(name, version, brought=sorted(targets))


def _is_memory(path: str) -> bool:
    top = path.split("/", maxsplit=1)[0]
    return top in {AGENTS, harnesses.AGENT, TOOLS} or ("/" in path and top in {SKILLS, SUBAGENTS})


def _name(folder: Path, agent: bytes | Link | None) -> str:
    text = ""
    if isinstance(agent, bytes):
        try:
            value = json.loads(agent)
        except ValueError as error:
            remedy = "see 'hansard memory validate' for where"
            raise BadValue(harnesses.AGENT, f"it is not JSON ({error})", remedy) from error
        text = str(value.get("name", "")) if isinstance(value, dict) else ""
    name = _NAME.sub("-", text or folder.resolve().name).strip("-")
    if not name:
        raise BadValue(str(folder), "it has no name", f"give one in {harnesses.AGENT}")
    return name


async def named_tools(workspace: Workspace, name: str) -> list[Tool]:
    """Return the tools that its `tools.json` files name."""
    files = (await workspace.memories.state(f"{AGENT}{name}")).files
    named = [file for path, file in files.items() if _is_tools_file(path)]
    await workspace.memories.load(named)
    texts = [file.text for file in named]
    return [tool for text in texts for tool in tools_of(text)]


def _is_tools_file(path: str) -> bool:
    return harnesses.is_agent_setting(path) and path.rsplit("/", maxsplit=1)[-1] == TOOLS


def run_folder(
    record: Record,
    folder: Path,
    prompt: str,
    *,
    run: str | None = None,
    model: str | None = None,
    rules: Rules | None = None,
    by: str = OS_USER,
    asks: bool = True,
) -> AgentRun:
    """Run an agent from its folder on a prompt, by deepagents.

    Given a run, continue it: recorded calls, above all answers of models, are not repeated.

    Args:
        record: The workspace's record, of the sync client.
        folder: `AGENTS.md`, `agent.json`, `tools.json`, `skills/`, `subagents/`.
        prompt: The task.
        run: The run to continue; a new one if None.
        model: As `provider:model`; the one of `agent.json` if None.
        rules: Effects of tools, and refusals, as for the MCP proxy.
        by: The author of the import of the folder.
        asks: Whether calls need approval as `tools.json` and the policy of the agent's space
            say. If False, none does, and the policy is set to `off`.

    Raises:
        ExtraMissing: deepagents is not installed, or what checks files.
        BadFolder, BadValue: It is no folder of an agent.
        MemoryInvalid: One of its files is not valid.
        AgentFailed: deepagents or the model's SDK raised; start it again with the run.
        NeedsSettling: The outcome of a step must be settled first.
    """
    deep = import_extra("hansard.ext.memory.deep_agent", "hansard agent run", "deepagents", "agent")
    value = rules or Rules()
    loop = portal()
    agent = loop.run(brought(record.workspace, folder, by))
    tools = loop.run(named_tools(record.workspace, agent.name))
    request = dict.fromkeys(tool.name for tool in tools if tool.interrupt and asks)
    if not asks:
        record.memory(f"{AGENT}{agent.name}").set_policy(
            "off", by=by, untrusted=["**"], reason="a run without approvals"
        )
    interrupts = [gates.ask_first(name, name=f"interrupt_config {name}") for name in request]
    hosts = dict.fromkeys(store.host_of(tool.mcp_server_url) for tool in tools)
    gate = [*value.rules(), *interrupts]
    labels = {store.LABEL: " ".join(hosts)} if hosts else {}
    with record.run(WORKFLOW, run=run, agent=agent.name, gate=gate, labels=labels) as session:
        try:
            made: AgentRun = deep.work(session, prompt, model=model, effects=ToolEffects(value))
        except HansardError:
            raise
        except Exception as error:
            raise AgentFailed(session.run, error) from error
        return msgspec.structs.replace(made, differs=agent.differs)
