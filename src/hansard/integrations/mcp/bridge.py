"""Bridge between a client and a server whose revisions of the protocol have no common version.

If both speak one version, frames pass unchanged, and the bridge only observes. A client of
2025-11-25 or earlier, refused by a server of only 2026-07-28 (`initialize`), has its handshake
answered from `server/discover`; for a client that insists on 2026-07-28 before an older server, the
bridge makes the handshake. Afterwards it rewrites the differences: versions and capabilities in
each request, the kinds of results, and the server's requests to the client, which the older era
sends as requests and the newer one as a result after which the client repeats its request.

Written from the texts of the two revisions. Not translated: subscriptions, and log levels.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any

import msgspec

from hansard.agents.errors import NotDone
from hansard.bus.loggers import logger
from hansard.integrations.mcp import frames
from hansard.integrations.mcp.frames import (
    DISCOVER,
    INITIALIZE,
    VERSION_KEY,
    Answer,
    Frame,
    Id,
    Notification,
    Request,
)
from hansard.integrations.mcp.upstream import QUESTIONS_MAX, Inbox, Replies, Server, ServerGone

_log = logger(__name__)

NEW, OLD = "2026-07-28", "2025-11-25"
"""Versions offered when the bridge has to choose one."""

META = "io.modelcontextprotocol/"
"""Prefix of the names in `_meta` that the newer era writes in each request."""

INFO, CAPABILITIES, SERVER_INFO = (
    f"{META}clientInfo",
    f"{META}clientCapabilities",
    f"{META}serverInfo",
)

ONLY_NEW = ("resultType", "ttlMs", "cacheScope")
"""Fields of a result that the older era lacks."""

PROBE_S = 10.0
"""Seconds for a server to report its era; one without an answer is of the older era."""

SUSPENDED_MAX = 100
"""Most requests suspended for an answer of their client; for another one the oldest is cancelled.
"""

ROUNDS_MAX = 20
"""Most requests of a server to its client within one request."""

CACHED = (
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
)
"""Methods whose results have a cache lifetime in the newer era."""

PING = "ping"

LOCAL = (PING, "logging/setLevel")
"""Requests of the older era that need no request to a server of the newer one."""

OWN = "hansard-bridge"
"""Prefix of the ids of the bridge's own requests."""


class _OpenRequest(msgspec.Struct, eq=False):
    """Open request at a server of the older era.

    `asks` are the server's requests to the client meanwhile, `put` those passed to the client.
    """

    answer: asyncio.Task[Answer]
    asks: asyncio.Queue[Request] = msgspec.field(
        default_factory=lambda: asyncio.Queue(QUESTIONS_MAX)
    )
    put: list[Request] = []


class Bridge:
    """Server seen by a client of either era; `ask` and `next` are as in `Upstream`."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._heard = Inbox()
        self._replies = Replies(server)
        self._hearing = asyncio.ensure_future(self._hear())
        self._translates: str | None = None  # the server's era
        self._settled = False
        self._settling = asyncio.Lock()
        self._client: dict[str, Any] = {}
        self._server_info: Any = None
        self._asked_back: dict[Id, asyncio.Future[Answer]] = {}
        self._open: list[_OpenRequest] = []
        self._suspended: dict[str, _OpenRequest] = {}
        self._number = 0
        self._ids: dict[Id, Id] = {}  # a client's request: its id at the server

    async def send(self, raw: bytes) -> None:
        """Pass on a frame without an answer. Raises ServerGone."""
        if self._is_plain:
            await self._server.send(raw)
            return
        frame = frames.read(raw)
        if isinstance(frame, Answer) and frame.id in self._asked_back:
            waiting = self._asked_back[frame.id]
            if not waiting.done():  # a second answer is dropped
                waiting.set_result(frame)
            return
        if self._translates == NEW:
            if isinstance(frame, Answer):
                return  # too late, or without a request: the newer era asks only by results
            if isinstance(frame, Request) and frame.method in LOCAL:
                result = frames.result(frame.id, {})
                await self._heard.put(Answer(result, frame.id, {}))
                return
            if isinstance(frame, Notification) and frame.method != "notifications/cancelled":
                return  # of the handshake, and of roots, which the newer era lacks
        if isinstance(frame, Notification) and frame.calls_off in self._ids:
            params = frame.params | {"requestId": self._ids.pop(frame.calls_off)}
            raw = frames.notification(frame.method, params)
        await self._server.send(raw)

    async def ask(self, id_: Id, raw: bytes) -> Answer:
        """Return a request's answer in the client's era. Raises ServerGone, NotDone."""
        if self._is_plain:
            return await self._server.ask(id_, raw)
        frame = frames.read(raw)
        if not isinstance(frame, Request):
            return await self._server.ask(id_, raw)
        if not self._settled:
            async with self._settling:
                if not self._settled:
                    return await self._first(frame)
        if self._translates == NEW:
            return await self._to_new(frame)
        if self._translates == OLD and _is_new(frame):
            return await self._to_old(frame)
        return await self._server.ask(id_, raw)

    @property
    def _is_plain(self) -> bool:
        """True if both are known to speak one era: frames then pass unread."""
        return self._settled and self._translates is None

    async def next(self) -> Frame | None:
        """Return the server's next frame that is no answer; None once it has ended."""
        return await self._heard.next()

    async def flushed(self) -> None:
        """Wait until `next` has returned everything received before."""
        await self._server.flushed()
        await self._heard.flushed()

    async def close(self) -> None:
        """Disconnect from the server."""
        self._hearing.cancel()
        await asyncio.wait([self._hearing])
        for each in self._suspended.values():
            each.answer.cancel()
        await self._replies.close()
        await self._server.close()

    async def _hear(self) -> None:
        try:
            while (frame := await self._server.next()) is not None:
                if self._translates == OLD and isinstance(frame, Request):
                    await self._assign_request(frame)
                elif isinstance(frame, Answer) and str(frame.id).startswith(OWN):
                    _log.warning("the server answered twice: the second answer is dropped")
                else:
                    await self._heard.put(frame)
        finally:
            self._heard.end()

    async def _assign_request(self, frame: Request) -> None:
        """Assign a server's request to an open request of the client: no frame names it in the
        older era.
        """
        opened = next(iter((*self._open, *self._suspended.values())), None)
        if frame.method == PING:
            await self._replies.put(frames.result(frame.id, {}))
        elif opened is None:
            why = "its client accepts requests only during a request of its own, and none is open"
            await self._replies.refuse(frame, why)
        elif opened.asks.full():
            await self._replies.refuse(frame, f"{QUESTIONS_MAX:,} requests wait for the client")
        else:
            opened.asks.put_nowait(frame)

    # Detection of the era

    async def _first(self, frame: Request) -> Answer:
        """Answer the first request, which shows whether the two share an era."""
        answer = await self._server.ask(frame.id, frame.raw)
        if frame.method == INITIALIZE:
            self._settled = answer.error is None
            return answer if self._settled else await self._handshake_for_new_server(frame, answer)
        if not _is_new(frame) or frame.method == DISCOVER:
            self._settled = answer.error is None and _is_new(frame)
            return answer
        is_old = answer.error is None and not _has_result_type(answer.result)
        if answer.error is not None:
            is_old = (await self._describe_server(frame.params["_meta"])) is None
        self._settled = True
        if not is_old:
            return answer
        await self._greet(frame.params["_meta"])
        if answer.error is None:
            return _as_new(frame, answer, self._server_info)
        return await self._to_old(frame)

    async def _handshake_for_new_server(self, frame: Request, refused: Answer) -> Answer:
        """Answer the handshake of a client whose server has none."""
        self._client = {
            INFO: frame.params.get("clientInfo", {}),
            CAPABILITIES: frame.params.get("capabilities", {}),
        }
        found = await self._describe_server({VERSION_KEY: NEW, **self._client})
        if found is None:
            return refused
        self._settled, self._translates = True, NEW
        _log.warning("client and server share no version: translated", client=OLD, server=NEW)
        meta = found.get("_meta")
        unnamed = {"name": "server", "version": "0"}
        result = {
            "protocolVersion": frame.params.get("protocolVersion", OLD),
            "capabilities": found.get("capabilities", {}),
            "serverInfo": meta.get(SERVER_INFO, unnamed) if isinstance(meta, dict) else unnamed,
        }
        if found.get("instructions"):
            result["instructions"] = found["instructions"]
        return Answer(frames.result(frame.id, result), frame.id, result)

    async def _describe_server(self, meta: dict[str, Any]) -> dict[str, Any] | None:
        """Return the self-description of a server of the newer era; None for an older one."""
        answer = await self._own(DISCOVER, {"_meta": {**meta, VERSION_KEY: NEW}})
        result = None if answer is None else answer.result
        if isinstance(result, dict) and NEW in (result.get("supportedVersions") or ()):
            return result
        return None

    async def _greet(self, meta: dict[str, Any]) -> None:
        """Make the handshake for a client that has none."""
        self._translates = OLD
        _log.warning("client and server share no version: translated", client=NEW, server=OLD)
        params = {
            "protocolVersion": OLD,
            "capabilities": meta.get(CAPABILITIES, {}),
            "clientInfo": meta.get(INFO, {"name": "client", "version": "0"}),
        }
        answer = await self._own(INITIALIZE, params)
        if answer is None or answer.error is not None:
            why = "no answer" if answer is None else str(answer.error)
            raise NotDone(f"the server shares no version with its client ({NEW}): {why}")
        self._server_info = (answer.result or {}).get("serverInfo")
        await self._server.send(frames.notification("notifications/initialized", {}))

    async def _own(self, method: str, params: dict[str, Any]) -> Answer | None:
        """Return the answer to a request of the bridge's own; None if there is none in time."""
        id_ = self._new_id()
        try:
            async with asyncio.timeout(PROBE_S):
                return await self._server.ask(id_, frames.request(id_, method, params))
        except TimeoutError:
            return None

    def _new_id(self) -> str:
        self._number += 1
        return f"{OWN}-{self._number}"

    async def _ask(self, frame: Request, params: dict[str, Any]) -> Answer:
        """Send a client's request with other parameters, under a new id.

        A late second answer to an earlier request is then not mistaken for its answer.
        """
        id_ = self._ids[frame.id] = self._new_id()
        try:
            answer = await self._server.ask(id_, frames.request(id_, frame.method, params))
        except (NotDone, ServerGone):
            self._ids.pop(frame.id, None)
            raise
        self._ids.pop(frame.id, None)  # a cancelled one stays until the server knows
        return answer.under(frame.id)

    # A client of the older era, a server of the newer

    async def _to_new(self, frame: Request) -> Answer:
        params = dict(frame.params)
        own = params.get("_meta")
        meta = own if isinstance(own, dict) else {}
        params["_meta"] = {**meta, VERSION_KEY: NEW, **self._client}
        for _ in range(ROUNDS_MAX):
            answer = await self._ask(frame, params)
            result = answer.result
            if not isinstance(result, dict) or result.get("resultType") != "input_required":
                return _as_old(frame, answer)
            question = result.get("inputRequests") or {}
            answers = [await self._put(each) for each in question.values()]
            params["inputResponses"] = dict(zip(question, answers, strict=True))
            params["requestState"] = result.get("requestState")
        raise NotDone(f"the server sent more than {ROUNDS_MAX} requests to its client")

    async def _put(self, question: dict[str, Any]) -> dict[str, Any]:
        """Pass a request of the server to the client."""
        id_ = self._new_id()
        raw = frames.request(id_, question["method"], question.get("params", {}))
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked_back[id_] = waiting
        try:
            await self._heard.put(Request(raw, id_, question["method"], question.get("params", {})))
            answer = await waiting
        finally:
            del self._asked_back[id_]
        if answer.error is not None:
            raise NotDone(f"the client did not answer the server's request: {answer.error}")
        found: dict[str, Any] = answer.result
        return found

    # A client of the newer era, a server of the older

    async def _to_old(self, frame: Request) -> Answer:
        if frame.method == DISCOVER:
            return await self._server.ask(frame.id, frame.raw)
        state = frame.params.get("requestState")
        if isinstance(state, str) and state in self._suspended:
            return await self._go_on(frame, self._suspended.pop(state))
        answer = asyncio.ensure_future(self._ask(frame, _old_params(frame.params)))
        return await self._answer_or_request(frame, _OpenRequest(answer))

    async def _answer_or_request(
        self, frame: Request, opened: _OpenRequest, answers: Sequence[bytes] = ()
    ) -> Answer:
        """Return the server's answer after these answers of the client.

        If the server makes another request first, return a result after which the client repeats
        its request.
        """
        self._open.append(opened)
        asking = asyncio.ensure_future(opened.asks.get())
        try:
            for each in answers:
                await self._server.send(each)
            either: set[asyncio.Future[Any]] = {opened.answer, asking}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            opened.answer.cancel()
            raise
        finally:
            self._open.remove(opened)
            asking.cancel()
        if opened.answer.done():
            late = [asking.result()] if asking.done() and not asking.cancelled() else []
            while not opened.asks.empty():
                late.append(opened.asks.get_nowait())
            for question in late:  # they belong to another request, or to none
                await self._assign_request(question)
            return _as_new(frame, opened.answer.result(), self._server_info)
        opened.put = [asking.result()]
        while not opened.asks.empty():
            opened.put.append(opened.asks.get_nowait())
        state = f"{OWN}-{secrets.token_hex(16)}"
        self._suspended[state] = opened
        if len(self._suspended) > SUSPENDED_MAX:
            await self._give_up(self._suspended.pop(next(iter(self._suspended))))
        result = {
            "resultType": "input_required",
            "inputRequests": {
                str(question.id): {"method": question.method, "params": question.params}
                for question in opened.put
            },
            "requestState": state,
        }
        return Answer(frames.result(frame.id, result), frame.id, result)

    async def _give_up(self, opened: _OpenRequest) -> None:
        """Cancel a request whose client did not answer its server's request."""
        opened.answer.cancel()
        while not opened.asks.empty():
            opened.put.append(opened.asks.get_nowait())
        for question in opened.put:
            await self._replies.refuse(question, "its client sent no answer")

    async def _go_on(self, frame: Request, opened: _OpenRequest) -> Answer:
        responses = frame.params.get("inputResponses")
        answers: list[bytes] = []
        for question in opened.put:
            result = responses.get(str(question.id)) if isinstance(responses, dict) else None
            if result is None:
                no = {"code": frames.INVALID_PARAMS, "message": "nothing was answered"}
                answers.append(frames.error(question.id, no))
            else:
                answers.append(frames.result(question.id, result))
        opened.put = []
        return await self._answer_or_request(frame, opened, answers)


def _is_new(frame: Request) -> bool:
    meta = frame.params.get("_meta")
    return isinstance(meta, dict) and VERSION_KEY in meta


def _has_result_type(result: Any) -> bool:
    return isinstance(result, dict) and "resultType" in result


def _old_params(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters without fields of the newer era."""
    meta = _without(params["_meta"])
    only_new = ("_meta", "inputResponses", "requestState")
    result = {name: value for name, value in params.items() if name not in only_new}
    return result | ({"_meta": meta} if meta else {})


def _as_old(frame: Request, answer: Answer) -> Answer:
    """Convert a result to the older era."""
    if answer.error is not None or not isinstance(answer.result, dict):
        return answer
    result = {name: value for name, value in answer.result.items() if name not in ONLY_NEW}
    meta = result.pop("_meta", None)
    if isinstance(meta, dict) and (kept := _without(meta)):
        result["_meta"] = kept
    return Answer(frames.result(frame.id, result), frame.id, result)


def _as_new(frame: Request, answer: Answer, server: Any) -> Answer:
    """Convert a result to the newer era, under the id of the current request."""
    if answer.error is not None:
        return answer.under(frame.id)
    result = dict(answer.result) if isinstance(answer.result, dict) else {}
    result.setdefault("resultType", "complete")
    if frame.method in CACHED:
        result.setdefault("ttlMs", 0)
        result.setdefault("cacheScope", "private")
    if server is not None:
        meta = result.get("_meta")
        result["_meta"] = {SERVER_INFO: server, **(meta if isinstance(meta, dict) else {})}
    return Answer(frames.result(frame.id, result), frame.id, result)


def _without(meta: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in meta.items() if not name.startswith(META)}
