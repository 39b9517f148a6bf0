"""A `tools.json` is checked at commit against the newest list of a server's tools on record."""

import json

import pytest

import hansard
from hansard.agents.memory import store
from hansard.client.record import Record
from hansard.ext.mcp.frames import LIST_TOOLS, PREFIX

URL = "https://user@tools.example:8443/mcp"


def named(*tools: str) -> str:
    """Return a `tools.json` of these tools, one a line."""
    return json.dumps(
        {"tools": [{"name": each, "mcp_server_url": URL} for each in tools]}, indent=1
    )


def listed(record: Record, run: str, pages: list[dict[str, object]]) -> None:
    """Record a run in which the proxy received a list of tools, one page in each step."""
    with record.run(
        "mcp", run=run, agent="client", labels={"mcp_server": "tools.example:8443"}
    ) as s:

        @s.tool(effects="pure", kind="resource", name=store.LISTED)
        def page(cursor: str | None = None) -> dict[str, object]:
            return pages[int(cursor or 0)]

        for number in range(len(pages)):
            page(str(number)) if number else page()


def test_only_tools_that_the_server_has_are_named(record: Record):
    """Only tools of the newest complete list are named."""
    assert f"{PREFIX}{LIST_TOOLS}" == store.LISTED
    space = record.memory("org")
    space.create("tools.json", named("anything"), by="ann")
    listed(
        record, "one", [{"tools": [{"name": "a"}], "nextCursor": "1"}, {"tools": [{"name": "b"}]}]
    )
    space.create("tools.json", named("a", "b"), by="ann")
    with pytest.raises(
        hansard.errors.MemoryInvalid, match=r"tools\.offered: found 'anything'"
    ) as refused:
        space.create("subagents/x/tools.json", named("a", "anything"), by="ann")
    [problem] = refused.value.problems
    assert (problem.path, problem.line) == ("subagents/x/tools.json", 8)
    assert problem.allowed == f"a tool that {URL} has: a, b"
    listed(record, "two", [{"tools": [{"name": "c"}], "nextCursor": "1"}])
    space.create("tools.json", named("b"), by="ann")
    listed(record, "three", [{"tools": [{"name": "c"}]}])
    record.memory("agent/ada").set_policy("off", by="ann")
    with record.run("w", agent="ada") as session:
        with pytest.raises(hansard.errors.MemoryInvalid, match="has: c"):
            session.memory.create("tools.json", named("a"), space="agent/ada")
        session.memory.create("tools.json", named("c"), space="agent/ada")
