"""Data that left a run for models, pages and tools, as recorded."""

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
"""Steps that only inspect a page, or run a check: they send nothing."""

_NOT_SENT = "blocked"
_NO_ADDRESS = "an address that is none"


class SentOut(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="sent"):
    """Call that sent data out of a run.

    Attributes:
        destination: For a page its host, `a file` or `an address that is none`; else the tool's
            name.
        kind: `model`, `page` or `tool`.
        agent: The agent of the call.
        step: Its step.
        tool: The tool that was called.
        status: Its recorded status; of one that is `requested` or `in_doubt` it is unknown
            whether it was made.
        arguments: Its recorded arguments; a secret is replaced by its name.
        secrets: The names of the secrets passed to it.
    """

    destination: str
    kind: Literal["model", "page", "tool"]
    agent: str
    step: int
    tool: str
    status: str
    arguments: Any
    secrets: tuple[str, ...] = ()


class Egress(Answer):
    """Calls that sent data out of a run.

    Attributes:
        run: The run.
        sent: The calls, in order.
    """

    run: str
    sent: list[SentOut]

    def lines(self) -> Iterator[object]:
        """Yield each call, then their number."""
        yield from self.sent
        yield {"type": "left", "run": self.run, "count": len(self.sent)}


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """Recorded call; the report on it derives from this alone.

    The `result` of a page's step names the page's address.
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
    """Return the calls of a run to models, pages and tools that were or may have been made.

    In order. Raises NotFound, Corrupt.
    """
    history = await workspace.states.history(run, await workspace.points.up_to(run, None))
    calls: list[Call] = []
    async for step in traces.trace(run, history).whole(fetch):
        detail = step.traced
        # A reused or withheld call of a fork was made only in the original run.
        elsewhere = (
            detail.reused or detail.reused_from or detail.withheld or detail.recorded_in != run
        )
        if not elsewhere:
            fields = {name: getattr(detail, name) for name in Call.__struct_fields__}
            calls.append(Call(**fields))
    return list(_sent_calls(calls))


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


def by_tables(reader: Reader, run: str) -> Egress:
    """Return the calls of a run from its steps in the tables; of a role, those it is shown.

    Raises NotFound.
    """
    if not reader.rows("FROM runs WHERE run = $1 LIMIT 1", [run]):
        raise NotFound(f"run {run!r:.80}", "give a run of which the role is shown an event")
    rows = [dict(each) for each in reader.rows(_CALLS, [run])]
    for row in rows:
        for name in ("arguments", "result"):
            row[name] = None if row[name] is None else msgspec.json.decode(row[name])
    return Egress(run=run, sent=list(_sent_calls(msgspec.convert(rows, list[Call]))))


def _sent_calls(calls: Iterable[Call]) -> Iterator[SentOut]:
    """Yield the calls that sent data out of a run, in order."""
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
    """Return the host of a step's page; empty if it is known to have none."""
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
