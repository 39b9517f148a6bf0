"""Calibration: which fields of a program's requests differ between two equal starts of it.

The first start is recorded as any other. The second one gets the answers of the first, each request
those of the nearest one that was not answered yet, so that what differs is the program's own doing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hansard.agents.flow import Flow
from hansard.domain import payload
from hansard.domain.errors import BadValue, Refused
from hansard.domain.steps import Step
from hansard.ext.models.differences import Difference, differences, identity_as_recorded, nearest
from hansard.ext.models.exchange import Exchange, Request, _plain_body
from hansard.ext.models.providers import Operation, identity_of
from hansard.ext.models.proxy import ModelProxy


class Proposal(msgspec.Struct, frozen=True):
    """A field that two equal starts of a program filled differently.

    Attributes:
        rule: The rule that would leave it out.
        calls: The calls in which it differed.
        first: A value of it in the first run.
        second: Its value in the second one.
        looks: Its form, if all of its values are one: `a UUID`, `a time` ...
        hides_text: True if the rule would leave out a text of messages or prompts.
    """

    rule: str
    calls: int
    first: str
    second: str
    looks: str = ""
    hides_text: bool = False

    @property
    def active(self) -> bool:
        """True if the rule is written as one; else it is a comment, for a person to judge."""
        return bool(self.looks) and not self.hides_text


_FORMS = (
    ("a UUID", re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)),
    ("a time", re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d)?|\b\d\d:\d\d:\d\d\b")),
    ("a number", re.compile(r"\A-?\d+(?:\.\d+)?\Z")),
    ("a random id", re.compile(r"\b(?=\w*\d)[0-9A-Za-z_-]{12,}\b")),
)


def proposals(pairs: Iterable[tuple[Operation, Any, Any]]) -> list[Proposal]:
    """Return the fields that differ between pairs of requests, as rules, most frequent first.

    Args:
        pairs: The operation, and the identities of the same call in two runs.
    """
    fields: dict[str, list[Difference]] = {}
    for operation, one, other in pairs:
        rules: dict[str, Difference] = {}
        for each in differences(one, other):
            rules.setdefault(operation.name + re.sub(r"/\d+(?=/|\Z)", "/*", each.field), each)
        for rule, each in rules.items():
            fields.setdefault(rule, []).append(each)
    listed = [
        Proposal(rule, len(each), each[0].recorded, each[0].now, _form(each), hides_text(rule))
        for rule, each in fields.items()
    ]
    return sorted(listed, key=lambda each: (-each.calls, each.rule))


def _form(each: Sequence[Difference]) -> str:
    """Return the form that all values have, or nothing: a text with other words has none."""
    texts = [text.strip('"') for one in each for text in (one.recorded, one.now)]

    def fits(form: re.Pattern[str]) -> bool:
        rests = [form.subn("", text) for text in texts]
        return all(count and not re.search(r"\s", rest) for rest, count in rests)

    return next((name for name, form in _FORMS if fits(form)), "")


class PairingProxy(ModelProxy):
    """A proxy that answers each request as the nearest recorded one that was not answered yet.

    Attributes:
        pairs: The operation of each answered request, and the identities of both requests.
        unpaired: Requests of operations of which no recorded request was left, by name.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.pairs: list[tuple[Operation, Any, Any]] = []
        self.unpaired: list[str] = []
        self._left: dict[str, list[tuple[Step, Any]]] | None = None
        self._lock = asyncio.Lock()

    @property
    def left(self) -> int:
        """The number of recorded requests that were not made again."""
        return sum(map(len, (self._left or {}).values()))

    async def _items(self, exchange: Exchange) -> AsyncGenerator[Any]:
        """Yield the items of the recorded exchange that is paired with one. Raises Refused."""
        async with self._lock:
            if self._left is None:
                self._left = await self._session._flow(self._recorded())  # noqa: SLF001 -- reads the record
            step = self._paired(exchange.request)
            items = await self._session._flow(self._items_of(step))  # noqa: SLF001 -- reads the record
        for item in items:
            yield item

    def _paired(self, request: Request) -> Step:
        """Take the recorded request that is nearest to one. Raises Refused."""
        operation = request.operation
        name = operation.name if operation else f"{request.provider}.request"
        left = (self._left or {}).get(name, [])
        if not left:
            self.unpaired.append(name)
            message = (
                f"the first start made no further request {name}: no answer is recorded for it"
            )
            raise Refused(message)
        if operation is None:
            return left.pop(0)[0]
        engine, volatile = self._session.engine, self._rules.volatile
        now = identity_as_recorded(engine, operation, _plain_body(request.body), volatile)
        known = [(at, identity_of(operation, body, volatile)) for at, (_, body) in enumerate(left)]
        near = nearest(now, known)
        assert near is not None  # noqa: S101 -- some are left
        self.pairs.append((operation, known[near.step][1], now))
        return left.pop(near.step)[0]

    def _recorded(self) -> Flow[dict[str, list[tuple[Step, Any]]]]:
        """Read the recorded requests by tool, in their order."""
        outcomes = self._session.engine.outcomes
        left: dict[str, list[tuple[Step, Any]]] = {}
        for _, step in sorted(self._session.engine.ledger.state.steps.items()):
            arguments = yield from outcomes.fetch(outcomes.reader.arguments(step))
            left.setdefault(step.tool, []).append((step, arguments.get("body")))
        return left

    def _items_of(self, step: Step) -> Flow[list[Any]]:
        """Read the items of a step."""
        items = []
        for raw in step.items:
            item = yield from self._session.engine.outcomes.fetch(payload.unpack(raw))
            items.append(item)
        return items


# ---------------------------------------------------------------- rules


TEXTS = frozenset(
    {
        *("messages", "input", "contents", "content", "system", "instructions", "prompt"),
        *("systemInstruction", "system_instruction", "suffix", "requests", "tools", "functions"),
    }
)
"""Fields of requests, of all providers, that hold the texts of messages, prompts and tools."""

TEXT_WORD = "text:"
"""Word before a rule that leaves out such a text, by which a person accepts it."""

_IDS = re.compile(r"id|\w+_id|[a-z]\w*Id")
_ARGUMENTS = frozenset({"input", "args", "arguments", "response", "parameters"})


def hides_text(rule: str) -> bool:
    """Return whether a rule leaves out a text of messages, prompts or tools.

    Without that text, requests for different things are one call. The ids of messages and of their
    parts are no text; an id among the arguments of a tool is one.
    """
    names = [each.replace("~1", "/").replace("~0", "~") for each in rule.split("/")[1:]]
    if names[0] != "*" and names[0] not in TEXTS:
        return False
    return not (len(names) > 1 and _IDS.fullmatch(names[-1]) and _ARGUMENTS.isdisjoint(names[1:]))


def read_rules(file: Path) -> tuple[str, ...]:
    """Return the rules of a file: one a line, `#` begins a comment. Raises BadValue, OSError."""
    lines = (line.partition("#")[0].strip() for line in file.read_text("utf-8").splitlines())
    return tuple(checked_rule(line) for line in lines if line)


def checked_rule(rule: str) -> str:
    """Return a rule: `/metadata/run`, or `openai.responses/metadata/run`.

    Raises BadValue, also for a rule that hides a text, without `TEXT_WORD` before it.
    """
    accepted = rule.startswith(TEXT_WORD)
    rule = rule.removeprefix(TEXT_WORD)
    operation, slash, field = rule.partition("/")
    if not slash or not field.strip("/") or " " in operation:
        remedy = "write a JSON pointer such as /metadata/run, after an operation or none"
        raise BadValue("rule", f"{rule!r:.80}", remedy)
    if hides_text(rule) and not accepted:
        fact = f"{rule!r:.80} leaves out a text: other questions would get its recorded answers"
        remedy = f"keep what varies out of the text, or accept that with '{TEXT_WORD}{rule:.80}'"
        raise BadValue("rule", fact, remedy)
    return rule
