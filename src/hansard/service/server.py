"""The service's entry: receives requests, authenticates them, and passes them to hosted sessions.

Requests are processed in turn, principal by principal (`hansard.service.fair_queue`). The checks
are, in order: its subject (the broker let its sender publish there), its token, the reply subject,
its number. Failing one of the first two gets the same few bytes, whatever the reason; the reason is
on record.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import msgspec
from cachetools import FIFOCache

from hansard.agents.access.principals import AccessDenied, Authenticator, Denials, Principal
from hansard.agents.errors import RoleRefused
from hansard.agents.workspace import Workspace
from hansard.broker import access
from hansard.bus import clock, subjects
from hansard.bus.errors import BusError, TooLarge
from hansard.bus.jetstream.client import BrokerOptions, Requests
from hansard.bus.loggers import logger, unexpected
from hansard.domain.errors import BadValue, HansardError
from hansard.domain.value_types import reading_context
from hansard.operations.protocol import faults, wire
from hansard.operations.protocol.faults import ServiceBusy, ServiceGone
from hansard.operations.protocol.remote_call import RemoteCall
from hansard.operations.protocol.wire import (
    AGAIN,
    PING,
    Address,
    BlockExit,
    BodyResult,
    Failed,
    Request,
    Value,
)
from hansard.service import workspace_requests
from hansard.service.fair_queue import PACED_FROM, Arrivals, Questions
from hansard.service.hosted import ENDS, Hosted

if TYPE_CHECKING:
    from structlog.stdlib import BoundLogger

NONCES_MAX = 4_096
"""Last requests outside of sessions that are recognized, per principal."""

NONCE_LETTERS_MAX = 64

OPENED_MAX = 256
"""Answers to openings that are kept, for a retry with the same nonce."""


class Nonces:
    """Requests that were made, by the principal's name and nonce."""

    def __init__(self) -> None:
        self._known: dict[str, FIFOCache[str, None]] = {}
        self._opened: FIFOCache[tuple[str, str], bytes] = FIFOCache(OPENED_MAX)

    def news(self, name: str, nonce: str) -> bool:
        """Return whether a request is new."""
        known = self._known.setdefault(name, FIFOCache(NONCES_MAX))
        if not nonce or len(nonce) > NONCE_LETTERS_MAX or nonce in known:
            return False
        known[nonce] = None
        return True

    def opened(self, name: str, nonce: str, answer: bytes) -> None:
        """Keep the answer of an opening."""
        self._opened[name, nonce] = answer

    def answer(self, name: str, nonce: str) -> bytes | None:
        """Return the answer of an opening; None while it is under way, and for other requests."""
        return self._opened.get((name, nonce))


T = TypeVar("T")

Arrived = tuple[Address, str, bytes]
"""A request: its subject, its reply subject, its body."""

SESSIONS_MAX = 64
"""Most open sessions of one principal."""

TURNS_MAX = 256
"""Most requests of one principal under way."""

FREES = ENDS | {"cancel", "close"}
"""Requests that end operations or sessions: allowed also at a principal's limit."""

RETRY_AFTER_S = 1.0
"""Seconds after which a principal with too many requests may retry."""

PENDING_S = 3.0
"""Seconds within which a request outside of a session is answered, at least with "not yet"."""

SWEEP_S = 0.5
"""Seconds between two checks for clients that are gone."""

DRAIN_S = 10.0
"""Seconds that requests under way may take when the service ends."""

PROBE = "probe"
PROBE_SWEEPS = 10
"""Sweeps between two checks that requests still arrive."""

NOBODY = "0" * 32
"""The id of no token: the answer to a ping goes to its inbox."""

_log = logger(__name__)


class Service:
    """A workspace's service. Open it with `open`; `close` leaves every session as a kill would."""

    def __init__(
        self,
        workspace: Workspace,
        requests: Requests,
        authenticator: Authenticator,
        denials: Denials,
        asker: workspace_requests.RoleTables | None,
        quiet_s: float,
    ) -> None:
        self.instance = uuid4().hex
        self.sessions: dict[str, tuple[Principal, Hosted]] = {}
        self._workspace = workspace
        self._log = _log.bind(workspace=workspace.log.workspace)
        self._requests = requests
        self._authenticator = authenticator
        self._denials = denials
        self._workspace_requests = workspace_requests.WorkspaceRequests(asker)
        self._quiet_s = quiet_s
        self.questions = Questions(self.instance)
        self._nonces = Nonces()
        self._arrivals = Arrivals(self._process)
        self._opening: Counter[str] = Counter()
        self._under_way: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stops: list[Callable[[], Any]] = []
        self._probed = True
        self._sweep: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        workspace: Workspace,
        options: BrokerOptions,
        authenticator: Authenticator,
        denials: Denials,
        asker: workspace_requests.RoleTables | None = None,
        quiet_s: float = wire.QUIET_S_MAX,
    ) -> Service:
        """Serve a workspace's restricted agents. Raises Unreachable, BrokerError.

        Args:
            workspace: The workspace.
            options: The broker's connection options.
            authenticator: Checks tokens.
            denials: Records refusals.
            asker: Answers SQL; None if that is not offered here.
            quiet_s: Seconds without a heartbeat after which a client counts as gone.
        """
        requests = await Requests.open(options)
        service = cls(workspace, requests, authenticator, denials, asker, quiet_s)
        try:
            await service._listen()
        except BaseException:
            await requests.close()
            raise
        service._sweep = asyncio.get_running_loop().create_task(service._sweeping())
        return service

    async def close(self) -> None:
        """Accept no more requests, and leave every session: clients resume them elsewhere."""
        for stop in self._stops:
            with contextlib.suppress(BusError):
                await stop()
        self._arrivals.close()
        if self._sweep is not None:
            self._sweep.cancel()
        self.questions.close()
        for name in list(self.sessions):
            await self._abandon(name)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=DRAIN_S)
        await self._requests.close()

    # ------------------------------------------------------------ requests

    def _take(self, subject: str, reply: str, data: bytes) -> None:
        """Receive one message. Must not block."""
        where = wire.address(subject)
        if where is not None and where.instance and where.verb == PROBE:
            self._probed = True
        if where is None or not reply:
            return
        inbox, _, _ = reply.partition(".")
        if where.verb == PING:
            if inbox == subjects.restricted_inbox(NOBODY):
                self._say_no(inbox, reply)
            return
        self._arrivals.put(
            where.principal, (where, reply, data)
        )  # the broker lets only the principal publish there

    def _process(self, arrived: Arrived) -> None:
        """Process one request, in the principal's order of arrival. Must not block."""
        where, reply, data = arrived
        request = wire.request(data)
        try:
            who = self._who(where, request)
        except AccessDenied as error:
            self._deny(where, error, reply)
            return
        if request is None or not access.may_answer(who.inbox, reply):
            reason = "its reply subject is not in its own inbox"
            self._note_refusal(where.verb, AccessDenied(reason, who.name, who.role, known=True))
            return
        log = self._log.bind(principal=who.name, role=who.role, request=where.verb)
        try:
            work = self._begin(where, who, request)
        except Exception as error:  # noqa: BLE001 -- every error is sent to the client
            self._spawn(self._answer(reply, _failed(error, log)))
            return
        if work is not None and where.instance and where.verb != AGAIN:
            # Now, not when it first runs: requests of the same turn count, too.
            self._under_way[who.name] += 1
            self._spawn(self._counted(who, reply, work, log))
        elif work is not None:
            self._spawn(self._respond(reply, work, log))

    def _who(self, where: Address, request: Request | None) -> Principal:
        token = request.token if request is not None else ""
        return self._authenticator.check(token, where.principal, where.role)

    def _deny(self, where: Address, error: AccessDenied, reply: str) -> None:
        inbox, _, _ = reply.partition(".")
        if self._authenticator.is_inbox_of(where.principal, inbox):
            self._say_no(inbox, reply)
        self._note_refusal(where.verb, error)

    def _say_no(self, inbox: str, reply: str) -> None:
        if access.may_answer(inbox, reply):
            self._spawn(self._answer_raw(reply, wire.DENIED))

    def _note_refusal(self, verb: str, denied: AccessDenied) -> None:
        async def note() -> None:
            try:
                await self._denials.note(denied, verb)
            except BusError as error:
                self._log.warning("a refused access could not be recorded", error=str(error))

        if len(self._tasks) < TURNS_MAX * 4:
            self._spawn(note())

    def _begin(
        self, where: Address, who: Principal, request: Request
    ) -> Coroutine[Any, Any, bytes | None] | None:
        """Return the work for an authenticated request; None for nothing."""
        if request.v != wire.VERSION:
            fact = f"it uses version {request.v}, this service version {wire.VERSION}"
            raise BadValue("the client", fact, "use the same version of hansard as the service")
        if where.verb == "done":
            return self._continue(who, request)
        if where.verb == "beat":
            return self._beat(who, request)
        if where.verb == AGAIN or self.questions.knows(who.name, request.nonce):
            return self.questions.answer(who.name, request.nonce, PENDING_S)
        if where.instance:
            return self._begin_within(where.verb, who, request)
        self._check_room(who)
        if not self._nonces.news(who.name, request.nonce):
            return self._repeat_opening(who, request.nonce)
        task = self._spawn(self._outside(where.verb, who, request))
        self.questions.begin(who.name, request.nonce, task)
        return self.questions.answer(who.name, request.nonce, PENDING_S)

    def _begin_within(
        self, verb: str, who: Principal, request: Request
    ) -> Coroutine[Any, Any, bytes | None] | None:
        """Return the work for a session's request; None for nothing.

        Its number and its scope changes count even if it is refused as one too many: later requests
        depend on them. A request that frees places is never refused so; each can be under way once
        per operation, block, stream or session that it ends.
        """
        hosted = self._hosted(who, request)
        if hosted.is_early(request):
            return self._when_due(verb, who, request, hosted)
        if not hosted.accepts(request.n):
            return None
        hosted.note(request.scopes)
        if verb not in FREES:
            self._check_room(who)
        match verb:
            case "cancel":
                return self._cancel(hosted, request.turn)
            case "close":
                left = wire.read(request.data, BlockExit)
                hosted.begin_close()
                return self._close(request.session, hosted, left)
            case _:
                turn = hosted.begin(verb, request)
                return self._word(request.session, hosted, turn)

    async def _when_due(
        self, verb: str, who: Principal, request: Request, hosted: Hosted
    ) -> bytes | None:
        """Begin a request that overtook earlier ones, as over HTTP; return its answer."""
        await hosted.until_due(request)
        work = self._begin_within(verb, who, request)
        return await work if work is not None else None

    def _check_room(self, who: Principal) -> None:
        """Raise ServiceBusy if a principal has as many requests under way as it may."""
        if self._under_way[who.name] + self.questions.under_way(who.name) >= TURNS_MAX:
            raise ServiceBusy("requests under way", TURNS_MAX, RETRY_AFTER_S)

    def _repeat_opening(self, who: Principal, nonce: str) -> Coroutine[Any, Any, bytes] | None:
        """Return the earlier answer of an opening."""
        payload = self._nonces.answer(who.name, nonce)
        if payload is None:
            return None

        async def repeat() -> bytes:
            return payload

        return repeat()

    def _hosted(self, who: Principal, request: Request, *, taken: bool = False) -> Hosted:
        """Return the session that a request names, if it is the principal's own.

        `taken` is true for a request that continues an operation. Raises ServiceGone.
        """
        entry = self.sessions.get(request.session)
        if entry is None or (entry[0].actor_chain, entry[0].role) != (who.actor_chain, who.role):
            why = "it has no such session"
            raise ServiceGone(why, taken=taken)
        if entry[1].rules_version != self._authenticator.rules_version(who.role):
            self._spawn(self._abandon(request.session))  # opened under other rules
            why = "the rules of the role have changed since the session was opened"
            raise ServiceGone(why, taken=taken)
        if entry[1].lowered < self._authenticator.lowered(who.name):
            self._spawn(self._abandon(request.session))  # it may hold data above the new label
            why = "the label that this principal carries was lowered since the session was opened"
            raise ServiceGone(why, taken=taken)
        entry[1].heard = time.monotonic()
        return entry[1]

    # ------------------------------------------------------------ results

    async def _word(self, name: str, hosted: Hosted, turn: RemoteCall) -> bytes:
        """Return a turn's next answer, once the label of its data is on record.

        If it cannot be recorded, the session ends.
        """
        word = await turn.next_answer()
        if not isinstance(word, wire.Run):
            hosted.turns.pop(turn.number, None)
        try:
            await hosted.record_shown()
        except HansardError:
            self._spawn(self._abandon(name))
            raise
        return wire.encode(word)

    async def _continue(self, who: Principal, request: Request) -> bytes:
        hosted = self._hosted(who, request, taken=True)
        await hosted.until_due(request)
        if not hosted.accepts(request.n):
            fact = f"request {request.n} was received before"
            raise BadValue("request", fact, "use the client")
        hosted.note(request.scopes)
        turn = hosted.turns.get(request.turn)
        if turn is None or not hosted.set_result(turn, wire.read(request.data, BodyResult)):
            raise BadValue("request", f"turn {request.turn} waits for nothing", "use the client")
        return await self._word(request.session, hosted, turn)

    async def _beat(self, who: Principal, request: Request) -> bytes:
        self._hosted(who, request)
        return wire.encode(Value())

    async def _cancel(self, hosted: Hosted, number: int) -> bytes:
        """Cancel a turn, and wait for its end.

        Raises BadValue if it is already being cancelled: otherwise a client could make any number
        of requests wait for one turn.
        """
        turn = hosted.turns.get(number)
        if turn is None or turn.task is None:
            return wire.encode(Value())
        if number in hosted.cancelled:
            raise BadValue("request", f"turn {number} is being ended already", "use the client")
        hosted.cancelled.add(number)
        try:
            turn.task.cancel()
            await asyncio.wait({turn.task})
        finally:
            hosted.cancelled.discard(number)
            hosted.turns.pop(number, None)
        return wire.encode(Value())

    async def _close(self, name: str, hosted: Hosted, left: BlockExit) -> bytes:
        error = hosted.error(left)
        try:
            try:
                await hosted.close(error)
            finally:  # an error may reveal recorded data, too
                await hosted.record_shown()
        finally:
            self.sessions.pop(name, None)
        return wire.encode(Value(wire.dump(list(faults.notes_of(error)))))

    async def _outside(self, verb: str, who: Principal, request: Request) -> bytes:
        many = self.questions.under_way(who.name) > PACED_FROM
        clock.rests.set(many and self._arrivals.crowded)
        try:
            if verb == "open":
                return await self._open(who, request)
            return await self._workspace_requests.ask(verb, await self._asker(who), request)
        except RoleRefused as error:  # in a session the agent's stream records it
            denied = AccessDenied(error.reason, who.name, who.role, known=True)
            self._note_refusal(verb, denied)
            raise

    async def _asker(self, who: Principal) -> workspace_requests.Asker:
        return await workspace_requests.Asker.of(self._authenticator, self._workspace, who)

    async def _open(self, who: Principal, request: Request) -> bytes:
        mine = sum(each.name == who.name for each, _ in self.sessions.values())
        if mine + self._opening[who.name] >= SESSIONS_MAX:
            raise ServiceBusy("sessions open", SESSIONS_MAX)
        self._opening[who.name] += 1  # before the first await
        try:
            return await self._opened(who, request)
        finally:
            self._opening[who.name] -= 1
            if not self._opening[who.name]:
                del self._opening[who.name]

    async def _opened(self, who: Principal, request: Request) -> bytes:
        opening = wire.read(request.data, wire.Open)
        for name, (each, hosted) in list(self.sessions.items()):
            stream = hosted.opened.engine.stream
            if each.name == who.name and (stream.run, stream.agent) == (opening.run, opening.agent):
                await self._abandon(name)  # its client is gone, or opens it again
        rules_version = self._authenticator.rules_version(who.role)
        hosted = await self._workspace_requests.open_session(
            await self._asker(who), opening, request.nonce
        )
        hosted.rules_version = rules_version
        try:
            await hosted.record_shown()
        except BaseException:
            await hosted.abandon()
            raise
        name = uuid4().hex
        self.sessions[name] = (who, hosted)
        answer = wire.encode(workspace_requests.opened(hosted, name, self.instance))
        self._nonces.opened(who.name, request.nonce, answer)
        return answer

    # ------------------------------------------------------------ answering

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task in a context of its own, so that requests do not share scopes.

        No code runs in this process for the types of recorded values.
        """
        task = asyncio.get_running_loop().create_task(work, context=reading_context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _counted(
        self, who: Principal, reply: str, work: Coroutine[Any, Any, bytes | None], log: BoundLogger
    ) -> None:
        try:
            payload = await self._payload(work, log)
        finally:
            self._under_way[who.name] -= 1
            if not self._under_way[who.name]:
                del self._under_way[who.name]
        if payload is not None:
            await self._answer_raw(reply, payload)

    async def _respond(
        self, reply: str, work: Coroutine[Any, Any, bytes | None], log: BoundLogger
    ) -> None:
        payload = await self._payload(work, log)
        if payload is not None:
            await self._answer_raw(reply, payload)

    async def _payload(
        self, work: Coroutine[Any, Any, bytes | None], log: BoundLogger
    ) -> bytes | None:
        try:
            return await work
        except Exception as error:  # noqa: BLE001 -- every error is sent to the client
            return wire.encode(_failed(error, log))

    async def _answer(self, reply: str, answer: wire.Answer) -> None:
        await self._answer_raw(reply, wire.encode(answer))

    async def _answer_raw(self, reply: str, payload: bytes) -> None:
        with contextlib.suppress(BusError):  # the client notices by its own connection
            try:
                await self._requests.answer(reply, payload)
            except TooLarge as error:
                what = TooLarge("the answer", error.size, error.limit)
                await self._requests.answer(reply, wire.encode(_failed(what, self._log)))

    # ------------------------------------------------------------ clients that are gone or refused

    async def _sweeping(self) -> None:
        looks = 0
        while True:
            await asyncio.sleep(SWEEP_S)
            looks += 1
            if looks % PROBE_SWEEPS == 0:
                await self._probe()
            late = time.monotonic() - self._quiet_s
            self.questions.sweep(late)
            for name, (who, hosted) in list(self.sessions.items()):
                if hosted.heard < late or not self._authenticator.admits(who):
                    await self._abandon(name)

    async def _probe(self) -> None:
        """Check that requests still arrive here.

        A connection that the client library gave up is replaced by a new one, without the
        subscriptions.
        """
        prefix = subjects.all_requests(self._workspace.log.workspace)
        try:
            if not self._probed:
                await self._listen()
            self._probed = False
            await self._requests.answer(f"{prefix}.-.-.{self.instance}.{PROBE}", b"")
        except BusError as error:
            self._probed = True  # without a connection there is nothing to repair
            self._log.warning("the service is not reachable", error=str(error))

    async def _listen(self) -> None:
        """Subscribe to requests; end the earlier subscriptions."""
        stops, self._stops = self._stops, []
        for stop in stops:
            with contextlib.suppress(BusError):
                await stop()
        prefix = subjects.all_requests(self._workspace.log.workspace)
        for subject, queue in (
            (f"{prefix}.*.*.*", "hansard"),
            (f"{prefix}.*.*.{self.instance}.*", ""),
        ):
            self._stops.append(await self._requests.serve(subject, self._take, queue))

    async def _abandon(self, name: str) -> None:
        entry = self.sessions.pop(name, None)
        if entry is not None:
            try:
                await entry[1].abandon()
            except Exception as error:  # noqa: BLE001 -- the next session begins in any case
                entry[1].log.warning("a session could not be ended", **unexpected(error))


def _failed(error: BaseException, log: BoundLogger) -> Failed:
    fault = faults.of_service(error, {})
    if fault.type == "ServiceFailed":
        log.warning("a request failed", **unexpected(error))
    return Failed(msgspec.structs.replace(fault))
