"""Requests of a role to the service, and the answers over the wire.

Two exchanges are compared byte for byte, without incidental parts: ids are numbered within an
answer, in order of appearance (so their number, places and equalities all count); times, durations
and the digests over ids and times are left out. The run's name is the same in both.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

import hansard
from hansard.bus.portal import portal
from hansard.client.restricted.link import Link, SessionLink
from hansard.operations.protocol import wire
from hansard.operations.protocol.wire import BlockExit, Do, Open
from hansard.operations.session import OPERATIONS
from tests.service.support import House

Request = tuple[str, Any]
"""A verb and its data."""

IDS = re.compile(
    rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    rb"|[0-9a-f]{32}"  # names of sessions and instances
)
MEASURED = re.compile(
    rb"\d{4}-\d\d-\d\dT[0-9:.]+(?:Z|\+00:00)"  # times
    rb"|(?<=\"duration_ms\":)[0-9.e-]+"
    rb"|(?<=\"lease_left_s\":)[0-9.]+"
    rb"|(?<=\"digest\":\")[A-Za-z0-9_-]{24}"  # of what has ids and times in it
)
STRANGE = "01a1fef2-5cb1-793a-a392-e2de8fb45e85"
"""The id of no event."""


def request(name: str, *values: Any) -> msgspec.Raw:
    """Return the request of an operation: its fields in order, with the passed values."""
    fields = [*OPERATIONS[name].fields] if name in OPERATIONS else []
    encoded = {field: wire.dump(each) for field, each in zip(fields, values, strict=False)}
    return msgspec.Raw(wire.encode({"op": name, **encoded}))


def do(name: str, *values: Any) -> Request:
    """Return an operation of a session."""
    return "do", Do(operation=request(name, *values))


def of_record(name: str, *values: Any) -> Request:
    """Return an operation of the record."""
    return OPERATIONS[name].verb, request(name, *values)


def numbered(answer: bytes) -> bytes:
    """Return an answer with ids numbered in order of appearance, without measured values."""
    names: dict[bytes, bytes] = {}
    answer = IDS.sub(lambda match: names.setdefault(match[0], b"#%d" % len(names)), answer)
    return MEASURED.sub(b"#", answer)


def shown_in(answer: bytes) -> list[str]:
    """Return the ids of the events of a view."""
    value = msgspec.json.decode(answer).get("value") or {}
    return re.findall(r'"id":"([0-9a-f-]{36})"', msgspec.json.encode(value).decode())


class Exchange:
    """Keep each answer of a bare connection; `meanwhile` runs in steps between questions."""

    def __init__(self, link: Link, meanwhile: Sequence[Callable[[], None]] = ()) -> None:
        self.answers: list[tuple[str, bytes]] = []
        self._meanwhile = list(meanwhile)
        self._link = link
        self._last = b""
        self._asking = link.requests.ask
        link.requests.ask = self._listening  # type: ignore[method-assign] # only listens

    async def _listening(self, subject: str, payload: bytes, timeout_s: float) -> bytes:
        answer = await self._asking(subject, payload, timeout_s)
        if not subject.endswith("beat"):
            self._last = answer
        return answer

    def keep(self, what: str) -> None:
        """Store the last answer under its request."""
        self.answers.append((what, numbered(self._last)))

    def outside(self, requests: Sequence[Request]) -> None:
        """Ask outside of any session."""
        for verb, data in requests:
            portal().run(self._link.outside(verb, data))
            self.keep(f"{verb} {bytes(data).decode()}")

    def session(self, run: str, requests: Sequence[Request], outside: Sequence[Request]) -> None:
        """Open a session; ask within it, and outside of it while it is open; end it."""
        for wrong, workflow in ((f"{run}-not", None), (run, "another")):
            try:
                portal().run(
                    self._link.open_session(Open(agent="ada", run=wrong, workflow=workflow))
                )
            except hansard.HansardError as error:
                self.keep(f"open: {type(error).__name__}")
        session = portal().run(self._link.open_session(Open(agent="ada", run=run)))
        self.keep("open")
        step = len(requests) // max(1, len(self._meanwhile))
        try:
            for number, (verb, data) in enumerate(requests, 1):
                portal().run(session.ask(verb, data))
                what = bytes(data.operation).decode() if isinstance(data, Do) else ""
                self.keep(f"{verb} {what}")
                if len(self._meanwhile) > 1 and number % step == 0:
                    self._meanwhile.pop(0)()
            self._middle(session, run)
            self._transaction(session)
            self.outside(outside)
            portal().run(session.ask("close", BlockExit()))
            self.keep("close")
        finally:
            portal().run(session.end())

    def _middle(self, session: SessionLink, run: str) -> None:
        """Request the view as of an event in its middle."""
        portal().run(session.ask(*do("session.view")))
        shown = shown_in(self._last)
        at = shown[len(shown) // 2]
        portal().run(session.ask(*do("session.view", at)))
        self.keep("session.view at the middle")
        portal().run(self._link.outside(*of_record("record.roles.view", run, at)))
        self.keep("view at the middle")

    def _transaction(self, session: SessionLink) -> None:
        """Request a transaction with reads and writes in one commit, and changes between them."""
        began: list[int] = []
        portal().run(session.ask("enter", Do(operation=request("board.transaction")), began=began))
        self.keep("enter")
        for name, args in (
            ("transaction.get", ("findings/a", None)),
            ("transaction.get", ("plans/a", None)),
            ("transaction.put", ("findings/tx", 1, None, {}, None)),
            ("transaction.put", ("plans/a", 1, None, {}, None)),
        ):
            work = Do(operation=request(name, *args), context=began[0])
            portal().run(session.ask("do", work))
            self.keep(f"{name}{args}")
        for happens in self._meanwhile:
            happens()
        portal().run(session.ask("exit", BlockExit(context=began[0])))
        self.keep("exit")


def exchanged(
    house: House,
    run: str,
    requests: Sequence[Request],
    outside: Sequence[Request],
    meanwhile: Sequence[Callable[[], None]] = (),
) -> list[tuple[str, bytes]]:
    """Return the requests to a workspace's service, each with its answer."""
    with house.link() as link:
        made = Exchange(link, meanwhile)
        made.session(run, requests, outside)
    return made.answers


def answers_outside(house: House, requests: Sequence[Request]) -> list[tuple[str, bytes]]:
    """Return the answers to requests outside of a session."""
    with house.link() as link:
        made = Exchange(link)
        made.outside(requests)
    return made.answers
