"""Several servers behind one door: to its client they are one.

Tools and prompts have their server's name before their own (`papers__search`), in lists and in
calls; a resource is its server's that lists it. What asks for a list asks all of them, through all
of their pages; what is told without an answer is told to all. A request that a server makes has its
name before its id, since two servers may draw the same. The rest is passed on as it came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from hansard.agents.errors import NotDone
from hansard.bus.loggers import logger
from hansard.domain.choices import nearest
from hansard.integrations.mcp import frames
from hansard.integrations.mcp.calls import CALL, DISCOVER, INITIALIZE
from hansard.integrations.mcp.frames import Answer, Frame, Id, Request
from hansard.integrations.mcp.servers import BETWEEN
from hansard.integrations.mcp.upstream import Beside, Heard, Server, ServerGone

_log = logger(__name__)

LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
"""Requests for a list, and the field of a result that has it."""

NAMED = (CALL, "prompts/get")
"""Requests that name a tool or a prompt."""

BY_ADDRESS = ("resources/read", "resources/subscribe", "resources/unsubscribe")

COMPLETE = "completion/complete"

PAGES_MAX = 50
"""Pages of one server's list."""


class Several:
    """Servers by their names; `ask` and `next` are as those of one."""

    def __init__(self, servers: Mapping[str, Server]) -> None:
        self._servers = dict(servers)
        self._heard = Heard()
        self._of_resource: dict[str, str] = {}
        self._beside = Beside(self, self._heard)
        self._hearing = [
            asyncio.ensure_future(self._hear(name, server)) for name, server in servers.items()
        ]

    async def send(self, raw: bytes) -> None:
        """Pass a frame on: an answer to who asked, else to all. Raises ServerGone."""
        frame = frames.read(raw)
        if isinstance(frame, Request):
            await self._beside.ask(frame)
            return
        if isinstance(frame, Answer):
            name, _, id_ = str(frame.id).partition(BETWEEN)
            if name in self._servers:
                await self._servers[name].send(frame.under(_own_id(id_)).raw)
            return
        told = await self._all(lambda server: server.send(raw))
        lost = [each for each in told.values() if isinstance(each, ServerGone)]
        if len(lost) == len(told):
            raise lost[0]

    async def ask(self, id_: Id, raw: bytes) -> Answer:
        """A request's answer, by whose it is, or by all. Raises ServerGone, NotDone."""
        del id_  # the frame has it
        frame = frames.read(raw)
        if not isinstance(frame, Request):
            raise NotDone("this is no request")
        if frame.method in LISTS:
            return await self._listed(frame, LISTS[frame.method])
        if frame.method in {INITIALIZE, DISCOVER}:
            return await self._greeted(frame)
        if frame.method in NAMED:
            return await self._named(frame, frame.params)
        reference = frame.params.get("ref")
        if frame.method == COMPLETE and isinstance(reference, dict):
            return await self._completed(frame, reference)
        if frame.method in BY_ADDRESS:
            return await self._addressed(frame, str(frame.params.get("uri")))
        answers = await self._answers(frame)
        return next(iter(answers.values()))

    async def next(self) -> Frame | None:
        """What a server says that answers nothing; None once all have ended."""
        return await self._heard.next()

    async def flushed(self) -> None:
        """Wait until `next` has given all that was said before."""
        await asyncio.gather(*(each.flushed() for each in self._servers.values()))
        await self._heard.flushed()

    async def close(self) -> None:
        """Leave them all."""
        self._beside.close()
        for task in self._hearing:
            task.cancel()
        await asyncio.wait(self._hearing)
        await self._all(lambda server: server.close())

    async def _hear(self, name: str, server: Server) -> None:
        while (frame := await server.next()) is not None:
            if isinstance(frame, Request):
                id_ = f"{name}{BETWEEN}{_tagged(frame.id)}"
                raw = frames.request(id_, frame.method, frame.params)
                frame = Request(raw, id_, frame.method, frame.params)
            await self._heard.put(frame)
        if all(each.done() or each is asyncio.current_task() for each in self._hearing):
            self._heard.end()

    async def _all(self, do: Any, among: Sequence[str] | None = None) -> dict[str, Any]:
        """What each comes to, or its error."""
        names = list(self._servers) if among is None else list(among)
        found = await asyncio.gather(
            *(do(self._servers[name]) for name in names), return_exceptions=True
        )
        for each in found:
            if isinstance(each, BaseException) and not isinstance(each, NotDone | ServerGone):
                raise each
        return dict(zip(names, found, strict=True))

    async def _answers(
        self, frame: Request, among: Sequence[str] | None = None
    ) -> dict[str, Answer]:
        """What each answered that answered. Raises the first one's error where none did."""
        told = await self._all(lambda server: server.ask(frame.id, frame.raw), among)
        answers = {name: each for name, each in told.items() if isinstance(each, Answer)}
        for name, error in told.items():
            if not isinstance(error, Answer):
                if not answers:
                    raise error
                _log.warning("a server did not answer", server=name, why=str(error))
        return answers

    # The server that a request is of

    async def _named(self, frame: Request, holder: dict[str, Any]) -> Answer:
        server, name = self._split(str(holder.get("name")))
        raw = frames.request(frame.id, frame.method, frame.params | {"name": name})
        return await server.ask(frame.id, raw)

    async def _completed(self, frame: Request, reference: dict[str, Any]) -> Answer:
        if "name" not in reference:
            return await self._addressed(frame, str(reference.get("uri")))
        server, name = self._split(str(reference["name"]))
        told = frame.params | {"ref": reference | {"name": name}}
        return await server.ask(frame.id, frames.request(frame.id, frame.method, told))

    def _split(self, name: str) -> tuple[Server, str]:
        prefix, _, own = name.partition(BETWEEN)
        if prefix not in self._servers or not own:
            names = ", ".join(f"{each}{BETWEEN}" for each in self._servers)
            near = nearest(prefix, list(self._servers))
            raise NotDone(f"{name!r:.80} is of no server: {near}names begin with one of {names}")
        return self._servers[prefix], own

    async def _addressed(self, frame: Request, uri: str) -> Answer:
        """By the server that lists the address, else by the first that knows it."""
        known = self._of_resource.get(uri)
        among = [known] if known is not None else list(self._servers)
        answers = await self._answers(frame, among)
        good = [each for each in answers.values() if each.error is None]
        return good[0] if good else next(iter(answers.values()))

    # What all of them are asked

    async def _greeted(self, frame: Request) -> Answer:
        """One greeting of all: what any of them can do, in a version that they all speak."""
        answers = await self._answers(frame)
        for answer in answers.values():
            if answer.error is not None:
                return answer
        results = {name: answer.result for name, answer in answers.items()}
        told = dict(next(iter(results.values())))
        told["capabilities"] = {}
        for each in results.values():
            _merge(told["capabilities"], each.get("capabilities", {}))
        said = [
            f"{name}: {each['instructions']}"
            for name, each in results.items()
            if each.get("instructions")
        ]
        if said:
            told["instructions"] = "\n\n".join(said)
        if "serverInfo" in told:
            told["serverInfo"] = {"name": "+".join(results), "version": "1"}
        if frame.method == INITIALIZE:
            told["protocolVersion"] = _common_version(results)
        elif "supportedVersions" in told:
            shared = [
                version
                for version in told["supportedVersions"]
                if all(version in each.get("supportedVersions", []) for each in results.values())
            ]
            told["supportedVersions"] = shared
        return Answer(frames.result(frame.id, told), frame.id, told)

    async def _listed(self, frame: Request, field: str) -> Answer:
        """All pages of all of them, one after the other."""
        found = await self._all(lambda server: _pages(server, frame, field))
        told: dict[str, Any] = {}
        listed: list[Any] = []
        errors: list[Answer] = []
        for name, each in found.items():
            if isinstance(each, Answer):
                errors.append(each)  # it has no such things
                continue
            if isinstance(each, BaseException):
                _log.warning("a server did not list what it has", server=name, why=str(each))
                continue
            first, items = each
            told = told or {k: v for k, v in first.items() if k not in (field, "nextCursor")}
            listed += [self._as_of(name, field, item) for item in items]
        if len(errors) == len(found):
            return errors[0]
        if all(isinstance(each, BaseException) for each in found.values()):
            raise next(iter(found.values()))
        told[field] = listed
        return Answer(frames.result(frame.id, told), frame.id, told)

    def _as_of(self, name: str, field: str, item: Any) -> Any:
        if not isinstance(item, dict):
            return item
        if field in {"tools", "prompts"}:
            return item | {"name": f"{name}{BETWEEN}{item.get('name')}"}
        if isinstance(item.get("uri"), str):
            self._of_resource.setdefault(item["uri"], name)
        return item


async def _pages(
    server: Server, frame: Request, field: str
) -> Answer | tuple[dict[str, Any], list[Any]]:
    """The first page without its list, and the items of all; an answer that is an error. Each page
    has an id of its own, so that no answer is taken for that of another page.
    """
    params = {name: value for name, value in frame.params.items() if name != "cursor"}
    first: dict[str, Any] | None = None
    items: list[Any] = []
    for number in range(PAGES_MAX):
        id_ = f"hansard-page-{number}-{_tagged(frame.id)}" if number else frame.id
        answer = await server.ask(id_, frames.request(id_, frame.method, params))
        if answer.error is not None or not isinstance(answer.result, dict):
            return answer.under(frame.id)
        first = answer.result if first is None else first
        items += answer.result.get(field) or []
        cursor = answer.result.get("nextCursor")
        if not cursor:
            return first, items
        params["cursor"] = cursor
    raise ServerGone(f"a list of more than {PAGES_MAX} pages")


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into.setdefault(name, value)


def _common_version(results: Mapping[str, Mapping[str, Any]]) -> Any:
    versions = {name: each.get("protocolVersion") for name, each in results.items()}
    if len(set(versions.values())) > 1:
        _log.warning("the servers speak different versions: the oldest is told", **versions)
    return min(versions.values(), key=str)


def _tagged(id_: Id) -> str:
    """An id as a text that says whether it was one."""
    return f"s{id_}" if isinstance(id_, str) else f"n{id_}"


def _own_id(tagged: str) -> Id:
    return int(tagged[1:]) if tagged.startswith("n") else tagged[1:]
