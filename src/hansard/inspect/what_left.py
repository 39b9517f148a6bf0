"""What went out of a run: to models, pages and tools, as it is on record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from hansard.agents.workspace import Workspace
from hansard.domain.steps import Effects
from hansard.inspect import trace as traces
from hansard.inspect.answer import Answer
from hansard.inspect.payloads import Payloads
from hansard.inspect.trace import TracedStep

_INSIDE = ("browser.find", "browser.look", "browser.choose", "browser.extract", "experience.checks")
"""Steps that look at a page, or ask a check: nothing of the run goes anywhere."""

_NOT_SENT = ("blocked", "requested")


class SentOut(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="sent"):
    """A call by which something left a run.

    Attributes:
        destination: Of a page its host, or `a file`; else the tool's name.
        kind: `model`, `page` or `tool`.
        agent: Whose call it was.
        step: Its step.
        tool: What was called.
        arguments: What it was given, as it is on record: a secret stands there by its name.
        secrets: The names of the secrets that were given to it in their place.
    """

    destination: str
    kind: Literal["model", "page", "tool"]
    agent: str
    step: int
    tool: str
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


async def what_left(workspace: Workspace, run: str, fetch: Payloads) -> list[SentOut]:
    """The calls of a run to models, pages and tools that were made, in order. Raises NotFound,
    Corrupt.
    """
    history = await workspace.states.history(run, await workspace.points.up_to(run, None))
    made: list[SentOut] = []
    host = ""
    async for step in traces.trace(run, history).whole(fetch):
        told = step.told
        if not _is_sent(told):
            continue
        at_page = told.tool.startswith("browser.") and told.kind == "tool"
        if at_page:
            host = _host(told) or host
        made.append(
            SentOut(
                destination=(host or "a file") if at_page else told.tool,
                kind="model" if told.kind == "model" else "page" if at_page else "tool",
                agent=told.agent,
                step=told.step,
                tool=told.tool,
                arguments=told.arguments,
                secrets=tuple(dict.fromkeys(_secrets(told.arguments))),
            )
        )
    return made


def _is_sent(told: TracedStep) -> bool:
    composite = told.effects == Effects.COMPOSITE.value
    inside = told.tool in _INSIDE or told.kind not in ("tool", "model")
    answered = told.reused_from is not None
    return not (composite or inside or answered or told.status in _NOT_SENT)


def _host(told: TracedStep) -> str:
    """The host of the page that a step was done to; empty where it is none."""
    result = told.result
    page = result.get("page") if isinstance(result, dict) else None
    address = page.get("address", "") if isinstance(page, dict) else ""
    if told.tool == "browser.goto" and isinstance(told.arguments, dict):
        address = told.arguments.get("url", "")
    return urlsplit(str(address)).hostname or ""


def _secrets(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if set(value) == {"$secret"}:
            yield str(value["$secret"])
        for each in value.values():
            yield from _secrets(each)
    elif isinstance(value, list):
        for each in value:
            yield from _secrets(each)
