"""What went out of a run: to models, pages and tools, as it is on record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from hansard.agents.workspace import Workspace
from hansard.bus.errors import NotFound
from hansard.domain.steps import Effects
from hansard.inspect import trace as traces
from hansard.inspect.answer import Answer
from hansard.inspect.payloads import Payloads
from hansard.projections.reader import Reader

_INSIDE = ("browser.find", "browser.look", "browser.choose", "browser.extract", "experience.checks")
"""Steps that look at a page, or ask a check: nothing of the run goes anywhere."""

_NOT_SENT = "blocked"
_NO_ADDRESS = "an address that is none"


class SentOut(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="sent"):
    """A call by which something left a run.

    Attributes:
        destination: Of a page its host, `a file` or `an address that is none`; else the tool's
            name.
        kind: `model`, `page` or `tool`.
        agent: Whose call it was.
        step: Its step.
        tool: What was called.
        status: How it stands on record: of one that is `requested` or `in_doubt` nobody knows
            whether it was made.
        arguments: What it was given, as it is on record: a secret stands there by its name.
        secrets: The names of the secrets that were given to it in their place.
    """

    destination: str
    kind: Literal["model", "page", "tool"]
    agent: str
    step: int
    tool: str
    status: str
    arguments: Any
    secrets: tuple[str, ...] = ()


class WhatLeft(Answer):
    """What went out of a run.

    Attributes:
        run: Which.
        sent: Each call, in order.
    """

    run: str
    sent: list[SentOut]

    def lines(self) -> Iterator[object]:
        """Each call, then how many there are."""
        yield from self.sent
        yield {"type": "left", "run": self.run, "count": len(self.sent)}


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call as it is on record: what is told of it follows from this alone. Its `result` is that
    of a page's step: it says where the page was.
    """

    agent: str
    step: int
    tool: str
    kind: str
    effects: str
    status: str
    arguments: Any = None
    result: Any = None


async def what_left(workspace: Workspace, run: str, fetch: Payloads) -> list[SentOut]:
    """The calls of a run to models, pages and tools that were or may have been made, in order.
    Raises NotFound, Corrupt.
    """
    history = await workspace.states.history(run, await workspace.points.up_to(run, None))
    calls: list[Call] = []
    async for step in traces.trace(run, history).whole(fetch):
        detail = step.told
        # What is taken over, or withheld in a fork, was made there alone where it first stood.
        elsewhere = (
            detail.reused or detail.reused_from or detail.withheld or detail.recorded_in != run
        )
        if not elsewhere:
            fields = {name: getattr(detail, name) for name in Call.__struct_fields__}
            calls.append(Call(**fields))
    return list(_sent(calls))


_CALLS = """
    SELECT
        agent, step, coalesce(tool, '') AS tool, coalesce(kind, '') AS kind,
        coalesce(effects, '') AS effects, status, arguments,
        if(starts_with(tool, 'browser.'), result, NULL) AS result
    FROM steps
    WHERE run = $1 AND NOT inherited AND tool IS NOT NULL
        AND reused_step IS NULL AND reused_from IS NULL AND withheld IS NULL
    ORDER BY requested_position, agent, step
"""


def by_tables(reader: Reader, run: str) -> WhatLeft:
    """The same, of the steps that stand in tables: of a role's own those that it is shown. Raises
    NotFound.
    """
    if not reader.rows("FROM runs WHERE run = $1 LIMIT 1", [run]):
        raise NotFound(f"run {run!r:.80}", "give the id of one that the role is shown any of")
    rows = [dict(each) for each in reader.rows(_CALLS, [run])]
    for row in rows:
        for name in ("arguments", "result"):
            row[name] = None if row[name] is None else msgspec.json.decode(row[name])
    return WhatLeft(run=run, sent=list(_sent(msgspec.convert(rows, list[Call]))))


def _sent(calls: Iterable[Call]) -> Iterator[SentOut]:
    """Those of a run's calls, in order, by which something left it."""
    hosts: dict[str, str] = {}  # by agent: each has its own page
    for call in calls:
        if not _is_sent(call):
            continue
        at_page = call.tool.startswith("browser.") and call.kind == "tool"
        host = _host(call) or hosts.get(call.agent, "")
        if at_page and host != _NO_ADDRESS:
            hosts[call.agent] = host
        yield SentOut(
            destination=(host or "a file") if at_page else call.tool,
            kind="model" if call.kind == "model" else "page" if at_page else "tool",
            agent=call.agent,
            step=call.step,
            tool=call.tool,
            status=call.status,
            arguments=call.arguments,
            secrets=tuple(dict.fromkeys(_secrets(call.arguments))),
        )


def _is_sent(call: Call) -> bool:
    composite = call.effects == Effects.COMPOSITE.value
    inside = call.tool in _INSIDE or call.kind not in ("tool", "model")
    return not (composite or inside or call.status == _NOT_SENT)


def _host(call: Call) -> str:
    """The host of the page that a step was done to; empty where it is known to be none."""
    result = call.result
    page = result.get("page") if isinstance(result, dict) else None
    address = page.get("address", "") if isinstance(page, dict) else ""
    if call.tool == "browser.goto" and isinstance(call.arguments, dict):
        address = call.arguments.get("url", "")
    try:
        return urlsplit(str(address)).hostname or ""
    except ValueError:
        return _NO_ADDRESS


def _secrets(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if set(value) == {"$secret"}:
            yield str(value["$secret"])
        for each in value.values():
            yield from _secrets(each)
    elif isinstance(value, list):
        for each in value:
            yield from _secrets(each)
