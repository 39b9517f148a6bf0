"""Which tools the MCP servers have that a `tools.json` names, as the record knows it: the newest
list that the proxy, or an agent that is a folder, was given by a server of that address.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from hansard.agents.steps.payloads import Reader
from hansard.agents.workspace import Workspace
from hansard.bus.commits import drive_fetch
from hansard.bus.errors import NotFound
from hansard.bus.log import Blobs
from hansard.domain.agent import AgentState
from hansard.domain.payload.references import Fetch
from hansard.domain.steps import StepStatus

FILE = "tools.json"
"""The file that names tools."""

LABEL = "mcp_server"
"""The label of runs that asked an MCP server: the host and port of its address."""

LISTED = "mcp:tools/list"
"""The step by which a server's tools were listed."""

RUNS_MAX = 20
"""Runs of a server that are looked at, the newest first: a list that is older is not known."""

_URL = re.compile(r"https?://(?:[^/@]*@)?(?P<host>[^/?#]+)")
_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")


def host_of(url: str) -> str:
    """The host and port of a server's address; empty where it is none."""
    found = _URL.match(url)
    return found["host"] if found is not None else ""


async def offered(workspace: Workspace, texts: Iterable[str]) -> dict[str, set[str]]:
    """The tools of each server that some `tools.json` name, by its address; of a server of which
    nothing is on record, or whose list broke off, nothing is said.
    """
    found: dict[str, set[str]] = {}
    for url in dict.fromkeys(url for text in texts for url in _urls(text)):
        names = await _listed(workspace, url)
        if names:
            found[url] = names
    return found


def _urls(text: str) -> list[str]:
    """The addresses that a file names; none of one that is not valid, which is told elsewhere."""
    try:
        tools = json.loads(text)["tools"]
        return [str(tool["mcp_server_url"]) for tool in tools]
    except (ValueError, LookupError, TypeError, RecursionError):
        return []


async def _listed(workspace: Workspace, url: str) -> set[str]:
    host = host_of(url)
    runs = await workspace.runs() if host else []
    asked = [run for run, life in runs if host in str(life.labels.get(LABEL, "")).split()]
    for run in asked[:RUNS_MAX]:
        view = await workspace.states.run(run)
        for state in view.agents.values():
            if names := await _in(workspace.blobs, state, url):
                return names
    return set()


async def _in(blobs: Blobs, state: AgentState, url: str) -> set[str]:
    """The newest list of an agent's, its pages together; none where its newest page is not the
    last one, as the list broke off then.
    """
    reader = Reader(lambda: state)
    found: set[str] = set()
    is_last = True
    for step in sorted(state.steps.values(), key=lambda each: -each.number):
        if step.tool != LISTED or step.status is not StepStatus.COMPLETED:
            continue
        asked = await _fetched(blobs, reader.arguments(step))
        if asked.get("url", url) != url:
            continue
        told = await _fetched(blobs, reader.result(step))
        if is_last and isinstance(told, Mapping) and told.get("nextCursor"):
            return set()
        is_last = False
        found |= _names(told)
        if not asked.get("cursor"):
            return found
    return set()


def _names(told: Any) -> set[str]:
    tools = told.get("tools", []) if isinstance(told, Mapping) else told
    names = [each.get("name") for each in tools if isinstance(each, Mapping)]
    return {name for name in names if isinstance(name, str) and _NAME.fullmatch(name)}


async def _fetched(blobs: Blobs, fetch: Fetch) -> Any:
    try:
        return await drive_fetch(fetch, blobs.get)
    except NotFound:  # it was erased
        return {}
