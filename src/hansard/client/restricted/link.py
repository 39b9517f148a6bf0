"""A restricted agent's connection to the service, and the part of it for one session."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Coroutine
from typing import Any

import msgspec

from hansard.agents.errors import SessionEnded
from hansard.broker.access import Credentials
from hansard.bus.clock import Clock
from hansard.bus.errors import BrokerError, BusError, Closed, TooLarge
from hansard.bus.jetstream.client import Requests
from hansard.bus.jetstream.wire import NoAnswer, NoResponders
from hansard.bus.loggers import logger, unexpected
from hansard.client.restricted.http import HttpRequests
from hansard.domain.errors import BadValue, HansardError
from hansard.domain.redaction import Redaction, holds_secret
from hansard.operations.protocol import faults, wire
from hansard.operations.protocol.faults import AccessRefused, ServiceBusy, ServiceGone
from hansard.operations.protocol.wire import (
    Answer,
    Began,
    Denied,
    Failed,
    Joined,
    Opened,
    Pending,
    Request,
    Value,
)

_log = logger(__name__)

FIRST_S_MAX = wire.QUIET_S_MAX
"""Seconds a request outside of a session waits; slow ones are first answered "not yet"."""

OPENING_S_MAX = 60.0
"""The same for an opening, which any service that starts may answer."""

AGAIN_S = 10.0
"""Seconds after which an opening is sent again, under the same nonce: it is done once."""

BUSY_S_MAX = 30.0
"""Seconds for which a request refused as one too many is retried; it had no effect."""

LOOK_S_MAX = 1.0
"""Seconds to check whether the broker still accepts a login that it disconnected."""

BEAT_ANSWER_S_MAX = 2.0
"""Seconds a heartbeat's answer may take; a lost one delays noticing the service's end."""

NO_SERVICE = "no service runs for this workspace"
ENDED = "it has ended"


class Link:
    """One login: its connection and its identity. On the bus's loop."""

    def __init__(self, credentials: Credentials, requests: Requests | HttpRequests) -> None:
        self.credentials = credentials
        self.requests = requests
        self.closed = False
        self.redaction: Redaction | None = None
        """The secrets that must not leave this process."""

    @property
    def where(self) -> str:
        """The workspace and the broker, in one text."""
        return f"{self.credentials.workspace} at {self.credentials.options().urls}"

    @classmethod
    async def open(cls, credentials: Credentials) -> Link:
        """Connect. Raises Unreachable, AccessRefused (the login is unknown), ExtraMissing."""
        if credentials.is_http:
            return cls(credentials, await HttpRequests.open(credentials))
        try:
            return cls(credentials, await Requests.open(credentials.options()))
        except BrokerError as error:
            raise AccessRefused from error

    async def close(self) -> None:
        """Disconnect."""
        self.closed = True
        await self.requests.close()

    async def explain(self, error: BaseException) -> BaseException:
        """Convert an error of the connection to the error that the caller gets.

        If no answer arrived, the broker may have removed the login: a new connection is refused
        then.
        """
        if self.closed:
            return Closed(self.credentials.options().urls[0])
        if isinstance(error, NoAnswer) and not isinstance(error, NoResponders):
            try:
                async with asyncio.timeout(LOOK_S_MAX):
                    await (await Link.open(self.credentials)).close()
            except AccessRefused as refusal:
                return refusal
            except (BusError, TimeoutError):
                pass  # the broker is gone as well
        return refused(error)

    async def outside(self, verb: str, data: Any) -> Answer:
        """Send a request that any service of the workspace may answer.

        A principal with too many requests at once is refused; the request is sent again after the
        time that the service names, for up to `BUSY_S_MAX`; then that refusal is the answer. Raises
        AccessRefused, ServiceGone, TooLarge, and what the service raised.
        """
        until = time.monotonic() + BUSY_S_MAX
        raw = encoded(verb, data, self.redaction)
        while True:
            answer = await self._request(verb, raw)
            wait_s = _retry_after_s(answer)
            if not wait_s or time.monotonic() + wait_s > until:
                return answer
            await asyncio.sleep(wait_s)

    async def _request(self, verb: str, raw: bytes) -> Answer:
        """Send a request and return its answer; after "not yet" ask again."""
        token, nonce = self.credentials.token, Clock().new_id()  # a run that it begins gets this id
        payload = wire.encode(Request(token=token, nonce=nonce, data=msgspec.Raw(raw)))
        again = wire.encode(Request(token=token, nonce=nonce))
        opens = verb == "open"
        try:
            answer = decoded_answer(await self._first(verb, payload))
            while isinstance(answer, Pending):
                try:
                    answer = decoded_answer(await self._ask_again(answer.instance, again))
                except NoAnswer:
                    if not opens:
                        raise
                    answer = decoded_answer(
                        await self._first(verb, payload)
                    )  # another service answers
        except (NoAnswer, NoResponders, BrokerError, TooLarge) as error:
            raise await self.explain(error) from error
        return answer

    async def _first(self, verb: str, payload: bytes) -> bytes:
        mine = self.credentials
        where = mine.workspace, mine.role, mine.principal
        subject, ping = wire.opening(*where, verb), wire.opening(*where, wire.PING)
        if verb == "open":
            return await self._ask_while_served(subject, ping, payload, OPENING_S_MAX, AGAIN_S)
        return await self._ask_while_served(subject, ping, payload, FIRST_S_MAX)

    async def _ask_again(self, instance: str, payload: bytes) -> bytes:
        """Return the answer of one service to a request that it had not answered yet."""
        mine = self.credentials
        where = mine.workspace, mine.role, mine.principal, instance
        subject, ping = wire.within(*where, wire.AGAIN), wire.within(*where, wire.PING)
        return await self._ask_while_served(subject, ping, payload, FIRST_S_MAX)

    async def _ask_while_served(
        self, subject: str, ping: str, payload: bytes, most_s: float, again_s: float | None = None
    ) -> bytes:
        """Return the answer while any service is there, as `ping` shows. Raises NoAnswer else.

        After `again_s` seconds, if given, the request is sent again: a broker that reloads its
        logins may silently lose a message.
        """
        loop = asyncio.get_running_loop()
        watching = loop.create_task(self._until_unserved(ping))
        request: list[asyncio.Task[bytes]] = []
        try:
            while not watching.done():
                request.append(loop.create_task(self.requests.ask(subject, payload, most_s)))
                waited = {watching, *request}
                await asyncio.wait(waited, timeout=again_s, return_when=asyncio.FIRST_COMPLETED)
                for asking in request:
                    if asking.done():
                        return asking.result()
            raise NoAnswer(ENDED)
        finally:
            for task in (watching, *request):
                task.cancel()

    async def _until_unserved(self, ping: str) -> None:
        """Return once no service answers `ping`.

        Only its answer tells which service took a request that any may take: one that ended while
        another serves is waited for.
        """
        while True:
            await asyncio.sleep(wire.BEAT_S)
            try:
                await self.requests.ask(ping, b"", wire.BEAT_S)
            except NoResponders:
                return
            except BusError:  # no answer proves nothing
                continue

    async def open_session(
        self, request: wire.Open, redaction: Redaction | None = None
    ) -> SessionLink:
        """Open a session whose requests hold none of these secrets. Raises as `outside`."""
        encoded("open", request, redaction)
        answer = await self.outside("open", request)
        if not isinstance(answer, Opened):
            raise _unexpected(answer)
        session = SessionLink(self, answer, redaction if redaction is not None else self.redaction)
        session.begin_beating()
        return session


class SessionLink:
    """One session's requests. All but `note` on the bus's loop."""

    def __init__(self, link: Link, opened: Opened, redaction: Redaction | None = None) -> None:
        self.opened = opened
        self._redaction = redaction
        self.lost: BaseException | None = None
        self._link = link
        self._numbers = 0
        self._notes: deque[Began | Joined] = deque()
        self._lock = threading.Lock()
        self._waiting: set[asyncio.Task[bytes]] = set()
        self._beating: asyncio.Task[None] | None = None

    def note(self, what: Began | Joined) -> None:
        """Send a change of a scope with the next request. From any thread."""
        with self._lock:
            self._notes.append(what)

    async def ask(
        self,
        verb: str,
        data: Any,
        *,
        scope: str = "",
        busy: bool = False,
        turn: int = 0,
        began: list[int] | None = None,
    ) -> Answer:
        """Send a request, and wait for its answer for as long as the session lives.

        The request's number is appended to `began` before it is sent. Raises AccessRefused,
        ServiceGone, TooLarge (nothing was sent).
        """
        if self.lost is not None:
            raise self.lost
        request = Request(
            token=self._link.credentials.token,
            session=self.opened.session,
            turn=turn,
            scope=scope,
            busy=busy,
            data=msgspec.Raw(encoded(verb, data, self._redaction)),
        )
        try:
            return decoded_answer(await self._waited(self._numbered(verb, request, began)))
        except (NoAnswer, NoResponders, BrokerError, AccessRefused) as error:
            self.lose(await self._link.explain(error))
            raise self.lost from error  # type: ignore[misc] # `lose` has set it

    async def _numbered(self, verb: str, request: Request, began: list[int] | None) -> bytes:
        """Send a request with its number and the notes.

        The notes are taken when it is sent: one cancelled before that leaves them to the next.
        """
        with self._lock:  # numbers and notes in the order of sending
            self._numbers += 1
            notes = tuple(self._notes)
            self._notes.clear()
            number = self._numbers
        if began is not None:
            began.append(number)
        numbered = msgspec.structs.replace(request, n=number, scopes=notes)
        try:
            return await self._sent(verb, wire.encode(numbered), wire.FOR_EVER_S)
        except TooLarge:
            with self._lock:
                self._notes.extendleft(reversed(notes))
            raise

    async def _sent(self, verb: str, payload: bytes, timeout_s: float) -> bytes:
        mine = self._link.credentials
        subject = wire.within(mine.workspace, mine.role, mine.principal, self.opened.instance, verb)
        return await self._link.requests.ask(subject, payload, timeout_s)

    async def _waited(self, work: Coroutine[Any, Any, bytes]) -> bytes:
        """Wait for a request's answer for as long as the session lives."""
        task = asyncio.get_running_loop().create_task(work)
        self._waiting.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if self.lost is not None:
                raise _under_way(self.lost) from None
            raise
        finally:
            self._waiting.discard(task)

    def lose(self, why: BaseException) -> None:
        """End the session; every waiting caller gets the error."""
        if self.lost is None:
            self.lost = why
        for task in list(self._waiting):
            task.cancel()
        if self._beating is not None and self._beating is not asyncio.current_task():
            self._beating.cancel()

    # ------------------------------------------------------------ heartbeats

    def begin_beating(self) -> None:
        """Start heartbeats, by which each side notices the other's end."""
        self._beating = asyncio.get_running_loop().create_task(self._beat())

    async def is_known(self) -> bool:
        """Return whether the service still has the session.

        The session is over if the rules of its role have changed, or the service has ended since it
        was opened. If the service cannot be asked, the last known state holds.
        """
        if self.lost is not None:
            return False
        try:
            answer = decoded_answer(
                await self._waited(self._sent("beat", self._sign(), BEAT_ANSWER_S_MAX))
            )
        except NoResponders:
            self.lose(ServiceGone(ENDED))
        except HansardError as error:
            _log.debug("cannot check a session", **unexpected(error))
        else:
            if isinstance(answer, Failed):
                self.lose(faults.ours(answer.fault))
        return self.lost is None

    def _sign(self) -> bytes:
        return wire.encode(Request(token=self._link.credentials.token, session=self.opened.session))

    async def end(self) -> None:
        """End the session in order."""
        self.lose(SessionEnded(self.opened.run, self._link.credentials.principal))
        if self._beating is not None:
            await asyncio.wait({self._beating})

    async def _beat(self) -> None:
        heard = time.monotonic()
        payload = self._sign()
        while self.lost is None:
            await asyncio.sleep(wire.BEAT_S)
            try:
                answer = decoded_answer(
                    await self._waited(self._sent("beat", payload, BEAT_ANSWER_S_MAX))
                )
            except NoResponders:
                self.lose(ServiceGone(ENDED))
            except (NoAnswer, BrokerError) as error:
                why = await self._link.explain(error)
                late = time.monotonic() - heard > wire.QUIET_S_MAX
                if late or isinstance(why, AccessRefused):
                    self.lose(why)
            except HansardError as error:  # access was withdrawn, or the session has ended
                self.lose(error)
            else:
                heard = time.monotonic()
                if isinstance(answer, Failed):
                    self.lose(faults.ours(answer.fault))


def _under_way(lost: BaseException) -> BaseException:
    """Return the reason of the session's end for a request under way."""
    if isinstance(lost, ServiceGone) and not lost.taken:
        return ServiceGone(lost.why)
    return lost


def encoded(verb: str, data: Any, redaction: Redaction | None) -> bytes:
    """Encode a request. Raises BadValue if it holds a secret.

    Texts and values were scrubbed before, so the secret is in a name, which is never replaced.
    """
    raw = wire.encode(data)
    if redaction is not None and (place := redaction.place_in(raw)) is not None:
        raise holds_secret(f"{verb}({place})")
    return raw


def decoded_answer(payload: bytes) -> Answer:
    """Decode an answer. Raises AccessRefused, and BadValue for an invalid one."""
    answer = wire.answer(payload)
    if isinstance(answer, Denied):
        raise AccessRefused
    return answer


def _retry_after_s(answer: Answer) -> float:
    """Return the seconds after which to retry a request refused as one too many; 0 for others."""
    if not isinstance(answer, Failed) or answer.fault.type != ServiceBusy.__name__:
        return 0.0
    error = faults.ours(answer.fault)
    return (error.retry_after_s or 0.0) if isinstance(error, ServiceBusy) else 0.0


def refused(error: BaseException) -> BaseException:
    """Convert an error of the connection to the error that the caller gets."""
    if isinstance(error, NoResponders):
        return ServiceGone(NO_SERVICE)
    if isinstance(error, BrokerError):
        return AccessRefused()
    return ServiceGone(str(error)) if isinstance(error, NoAnswer) else error


def value_of(answer: Answer) -> msgspec.Raw:
    """Return an answer's value. Raises what the service raised."""
    match answer:
        case Value():
            return answer.value
        case Failed():
            raise faults.ours(answer.fault)
        case _:
            raise _unexpected(answer)


def _unexpected(answer: Answer) -> BaseException:
    if isinstance(answer, Failed):
        return faults.ours(answer.fault)
    return BadValue("the service's answer", f"a {type(answer).__name__}", wire.ONE_VERSION)
