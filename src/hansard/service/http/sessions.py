"""Sessions of agents over HTTP: their requests, passed to the service over the broker.

The body of a request is that of one over NATS (`hansard.operations.protocol.wire`), and so is its
answer. One that is not there in time is answered 202; the client requests it again under the same
key. A service that was restarted answers such a repetition 410: it cannot know what was done.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncGenerator
from functools import partial
from http import HTTPStatus

import msgspec
from starlette.responses import Response

from hansard.agents.access.principals import Principal
from hansard.bus.errors import BusError, TooLarge
from hansard.bus.jetstream.client import BrokerOptions, Requests
from hansard.bus.jetstream.wire import NoResponders
from hansard.domain.errors import BadValue
from hansard.operations.protocol import wire
from hansard.operations.protocol.faults import NotOffered, ServiceBusy
from hansard.service.http.problems import CallerRefused, problem
from hansard.service.http.records import OpenWorkspace, Pool
from hansard.service.http.routes import SMALL_BODY_BYTES, Context, read

CLIENTS_MAX = 200
"""Most principals of a workspace that are connected through here."""

EXCHANGES_MAX = 300
"""Most requests of one principal under way, and answers that are kept for it."""

KEPT_BYTES_MAX = 32 * 1024 * 1024
"""Most bytes of such answers; the oldest are dropped first."""

LEFT_S, IDLE_S = 60.0, 60.0
"""Seconds after which a request is given up whose client no longer waits, and after which an unused
connection is closed.
"""

_LETTERS_MAX = 100


class _Exchange:
    """A request, and its answer once it is there."""

    def __init__(self, answer: asyncio.Task[bytes]) -> None:
        self.answer = answer
        self.awaited_s = time.monotonic()

    @property
    def size(self) -> int:
        """The bytes of the answer, as far as there is one."""
        done = self.answer.done() and not self.answer.cancelled()
        return len(self.answer.result()) if done and self.answer.exception() is None else 0


class _Client:
    """A principal's connection to the service, and its requests by key."""

    def __init__(self, requests: Requests) -> None:
        self.requests = requests
        self.exchanges: dict[str, _Exchange] = {}

    def begin(self, key: str, subject: str, payload: bytes, timeout_s: float) -> _Exchange:
        """Send a request. Raises ServiceBusy."""
        self.drop(time.monotonic() - LEFT_S)
        if sum(not each.answer.done() for each in self.exchanges.values()) >= EXCHANGES_MAX:
            raise ServiceBusy("requests under way over HTTP", EXCHANGES_MAX, 1.0)
        asking = asyncio.create_task(self.requests.ask(subject, payload, timeout_s))
        exchange = self.exchanges[key] = _Exchange(asking)
        kept = [name for name, each in self.exchanges.items() if each.answer.done()]
        size = sum(self.exchanges[name].size for name in kept)
        for name in kept:
            if size > KEPT_BYTES_MAX or len(self.exchanges) > EXCHANGES_MAX:
                size -= self.exchanges.pop(name).size
        return exchange

    def drop(self, late_s: float) -> None:
        """Give up the requests that no client has waited for since `late_s`."""
        for key, each in list(self.exchanges.items()):
            if each.awaited_s < late_s:
                each.answer.cancel()
                del self.exchanges[key]


@contextlib.asynccontextmanager
async def _client(broker: BrokerOptions, who: Principal) -> AsyncGenerator[_Client]:
    """Connect a principal with the service's own login, and the principal's inbox."""
    name = f"hansard http {who.name}"[:80]
    options = msgspec.structs.replace(broker, inbox_prefix=who.inbox, name=name)
    client = _Client(await Requests.open(options))
    try:
        yield client
    finally:
        client.drop(math.inf)
        with contextlib.suppress(BusError):
            await client.requests.close()


def _clients_of(opened: OpenWorkspace) -> Pool[str, _Client]:
    """Return the connected principals of a workspace, by the ids of their tokens."""

    def begin() -> Pool[str, _Client]:
        pool = Pool[str, _Client](lambda: IDLE_S)
        opened.ends.push_async_callback(pool.aclose)
        return pool

    return opened.part(Pool, begin)


@read("/session/{verb}", method="POST", stream="application/json", waits=True)
async def outside(
    context: Context,
    verb: str,
    *,
    timeout_s: float = wire.WAIT_S,
    again: bool = False,
    body: msgspec.Raw,
) -> Response:
    """Pass a request of an agent's client to any service of the workspace, as over NATS.

    Its `Idempotency-Key` names it: after a 202 the answer is requested under the same key.

    Args:
        verb: The kind of request, such as `open`.
        timeout_s: Seconds to wait for the answer, at most 20.
        again: True to request the answer again, with `null` as the body.
        body: The message.
    """
    return await within(context, "", verb, timeout_s=timeout_s, again=again, body=body)


@read("/session/{instance}/{verb}", method="POST", stream="application/json", waits=True)
async def within(
    context: Context,
    instance: str,
    verb: str,
    *,
    timeout_s: float = wire.WAIT_S,
    again: bool = False,
    body: msgspec.Raw,
) -> Response:
    """Pass a request of an open session to the service that hosts it; see `/session/{verb}`.

    Args:
        instance: The service, as named by the answer to `open`.
        verb: The kind of request, such as `call`.
        timeout_s: Seconds to wait for the answer, at most 20.
        again: True to request the answer again, with `null` as the body.
        body: The message.
    """
    who = context.caller.principal
    if who is None or context.caller.way != "token":
        remedy = "send the token of a principal's credentials; trusted programs use the broker"
        raise NotOffered("a session over HTTP", remedy)
    key = context.request.headers.get("idempotency-key", "")
    if not 0 < len(key) <= _LETTERS_MAX:
        raise BadValue("Idempotency-Key", f"it has {len(key)} letters", "send a new UUID with each")
    for name, text in (("verb", verb), ("instance", instance)):
        if not text.isalnum() and (text or name == "verb"):
            raise BadValue(name, f"{text!r:.40}", "give what the protocol names")
    clients = _clients_of(context.workspace)
    if who.token_id not in clients.kept and len(clients.kept) >= CLIENTS_MAX:
        raise ServiceBusy("principals connected over HTTP", CLIENTS_MAX, IDLE_S)
    where = context.workspace.name, who.role, who.name
    subject = wire.within(*where, instance, verb) if instance else wire.opening(*where, verb)
    opening = partial(_client, context.workspace.runtime, who)
    async with clients.use(who.token_id, opening) as client:
        exchange = client.exchanges.get(key)
        if exchange is None:
            if again:
                fact = "the service does not know this request: it was restarted, or nobody waited"
                return _gone(fact)
            ask_s = timeout_s if timeout_s < wire.WAIT_S else wire.FOR_EVER_S
            exchange = client.begin(key, subject, bytes(body), ask_s)
        wait_s = (
            0.0 if len(bytes(body)) > SMALL_BODY_BYTES else min(max(timeout_s, 0.0), wire.WAIT_S)
        )
        await asyncio.wait({exchange.answer}, timeout=wait_s)
        exchange.awaited_s = time.monotonic()
    if not context.caller.valid():
        raise CallerRefused(HTTPStatus.UNAUTHORIZED, "the access of this token has ended")
    if not exchange.answer.done():
        return Response(status_code=HTTPStatus.ACCEPTED)
    if exchange.answer.cancelled():
        return _gone("the service ends")
    try:
        return Response(await exchange.answer, media_type="application/json")
    except NoResponders as error:
        return _gone(str(error))
    except TooLarge as error:
        large, remedy = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "pass large values by reference"
        return problem(large, str(error), value=f"{error.limit}", remedy=remedy)
    except BusError as error:
        return problem(HTTPStatus.GATEWAY_TIMEOUT, str(error), remedy="send it again later")


def _gone(fact: str) -> Response:
    return problem(HTTPStatus.GONE, fact, remedy="resume the run in a new session")
