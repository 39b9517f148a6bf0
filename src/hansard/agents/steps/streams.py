"""Tools that yield their result item by item: each item is recorded before it is delivered.

Items of a tool declared `ahead` are delivered while their recording is under way.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Generator
from typing import Any, NoReturn

import msgspec

from hansard.agents.errors import Diverged, Miss, SessionEnded
from hansard.agents.flow import END, AsyncDrive, Drive, Flow, close, done, following, in_place
from hansard.agents.steps import payloads
from hansard.agents.steps.engine import StepEngine
from hansard.agents.steps.gating import STOPPED, Reservation
from hansard.agents.steps.recorder import Call
from hansard.agents.steps.scope import Scope, enter, leave
from hansard.domain import payload, values
from hansard.domain.agent import Tell
from hansard.domain.choices import counted
from hansard.domain.errors import BadValue
from hansard.domain.fingerprint import canonical, digest
from hansard.domain.steps import Effects, Step, StepCompleted, StepStatus, StepYielded, Verdict

AHEAD_BYTES_MAX = 1024 * 1024
"""Most bytes of a stream's items that are delivered ahead of their acknowledgement."""


class StreamCall:
    """One streamed call, with its items so far and their record."""

    def __init__(self, engine: StepEngine, call: Call) -> None:
        self.engine = engine
        self.call = call
        self.count = 0
        self.inexact = ""
        self._ahead = 0
        self._had: tuple[msgspec.Raw, ...] = ()
        self.digests: list[str] = []
        self.scope: Scope | None = None
        self._arguments: dict[str, Any] = {}
        self._entered = False
        self._began_s = 0.0
        self._held = Reservation()

    def open(self) -> Flow[Step | None]:
        """Return the recorded step that answers the call, or None if the tool must run."""
        self.engine.ledger.enter_call(self.call.place.scope)
        self._entered = True
        step = yield from self.engine.plan(self.call)
        if step is None:
            yield from self._begin()
        return step

    def _begin(self) -> Flow[None]:
        """Pass the gate and record that the tool starts, for the first time or again."""
        call = self.call
        self._held = yield from self.engine.gate(call)
        self._arguments = yield from self.engine.revealed(call, self._held)
        if call.spec.opens is not None:
            call.spec.opens()
        try:
            if call.is_recorded:
                yield from self.engine.outcomes.again(call)
            else:
                yield from self.engine.outcomes.intend(call)
        except STOPPED as error:
            yield from self.engine.called_off(call, self._held, error)
            raise
        yield from self.engine.start(call, self._held)
        self.scope = self.engine.body_scope(call)

    def leave(self) -> None:
        """Mark the call as ended, if it was open."""
        if self._entered:
            self.engine.ledger.stop(self.call.number)
            self.engine.ledger.leave_call(self.call.place.scope)
            scope = self.call.place.scope
            if scope.forgets:
                self.engine.ledger.forget(self.call.number)
            elif self.call.spec.ahead and scope.step is None:
                self.engine.ledger.keep(self.call.number)

    def start(self) -> Any:
        """Return the tool's own iterator, not started."""
        self._began_s = time.perf_counter()
        spec, arguments = self.call.spec, self._arguments
        if spec.key_argument:
            arguments = {**arguments, spec.key_argument: self.call.key}
        args, kwargs = spec.passed(arguments)
        inner = spec.function(*args, **kwargs)
        return inner if self.call.masker is None else self.call.masker.items(inner)

    def item(self, value: Any) -> Flow[None]:
        """Record an item; it is delivered afterwards."""
        spec = self.call.spec
        result = payloads.plain_result(value, spec.returns, self.engine.settings.scrub)
        try:
            packed = payloads.pack(result.plain, "item")
        except BadValue as error:
            result = payloads.too_large_result(spec.name, error)
            packed = payloads.pack(result.plain, "item")
        if result.inexact and not self.inexact:
            self.inexact = f"item {self.count + 1}: {result.inexact}"
            self.engine.outcomes.warn_inexact(self.call.number, spec.name, self.inexact)
        yield from self.engine.outcomes.put(packed.blobs)
        event = StepYielded(step=self.call.number, index=self.count, items=(packed.raw,))
        self.count += 1
        self.digests.append(digest(canonical(result.plain)))
        try:
            self._ahead += len(bytes(packed.raw))
            if spec.ahead and self._ahead <= AHEAD_BYTES_MAX:
                self.engine.ledger.record([Tell(event)], wait=False)
            else:  # it is acknowledged after all items before it
                yield from self.engine.outcomes.record(Tell(event))
                self._ahead = 0
        except SessionEnded:  # neither recorded nor delivered
            self.count -= 1
            self.digests.pop()
            raise
        had = bytes(self._had[self.count - 1]) if self.is_old else bytes(packed.raw)
        if bytes(packed.raw) != had:
            now = f"item {self.count} differs from the recorded one"
            raise self._diverged(now, (digest(had), digest(bytes(packed.raw))))

    @property
    def is_old(self) -> bool:
        """True if the reader already received the last item from the record."""
        return self.count <= len(self._had)

    def _diverged(self, now: str, digests: tuple[str, str]) -> Diverged:
        step = self.engine.ledger.state.steps[self.call.number]
        why = "delivered other items to its reader than it would now"
        address = self.engine.outcomes.address
        return Diverged(address, step, now, why, field="items", digests=digests)

    def end(self, *, closed: bool) -> Flow[None]:
        """Record that the items are complete, or that their reader stopped."""
        event = StepCompleted(
            step=self.call.number,
            result=values.dump(None),
            digest=payload.rolling(self.digests),
            duration_ms=round((time.perf_counter() - self._began_s) * 1_000, 3),
            usage=self.scope.usage if self.scope is not None else {},
            items=self.count,
            closed=closed,
            inexact=self.inexact,
        )
        yield from self.engine.outcomes.record(Tell(event))
        self._advance()
        yield from self._spend()

    def refused(self, error: BaseException) -> Flow[NoReturn]:
        """Record that an item could not be recorded, or that its recording was interrupted; the
        item is not delivered.
        """
        yield from self.failed(error)
        raise error

    def _spend(self) -> Flow[None]:
        if self.scope is not None:
            yield from self.engine.spend(self._held, self.scope.usage)

    def failed(self, error: BaseException) -> Flow[NoReturn]:
        """Record an error and raise it."""
        if isinstance(error, SessionEnded) and self.engine.ledger.ended:  # the end, for its reader
            yield from self.end(closed=True)
            raise error
        self.call.attempt = self.call.spec.attempts
        try:
            yield from self.engine.outcomes.raised(
                self.call, error, self.scope or self.call.place.scope
            )
        finally:
            self._advance()
            yield from self._spend()
        raise error

    def _advance(self) -> None:
        step = self.engine.ledger.state.steps[self.call.number]
        if step.status in (StepStatus.COMPLETED, StepStatus.FAILED):
            self.engine.ledger.advance(self.call.place.scope, step)

    def replayed(self, step: Step) -> Flow[list[Any]]:
        """Return the recorded items, or those of a list that a person or a shadow supplied."""
        items: list[Any] = []
        whole = step.status is StepStatus.COMPLETED and not step.streamed
        if whole or step.verdict is Verdict.HAPPENED:
            settled = yield from self.engine.outcomes.fetch(
                self.engine.outcomes.reader.result(step)
            )
            items = self._listed(step, settled)
        else:
            for raw in step.items:
                plain = yield from self.engine.outcomes.fetch(payload.unpack(raw))
                items.append(self.engine.result_of(self.call.spec, step, plain))
        self.engine.outcomes.warn_inexact(step.number, step.tool, step.inexact)
        self.engine.ledger.advance(self.call.place.scope, step)
        return items

    def _listed(self, step: Step, settled: values.Plain) -> list[Any]:
        """Return the items of a result that was supplied as one value."""
        listed = settled.get("$tuple", settled) if isinstance(settled, dict) else settled
        items = listed if isinstance(listed, list) else [listed]
        return [self.engine.result_of(self.call.spec, step, item) for item in items]

    def beyond(self, step: Step) -> Flow[bool]:
        """Return whether the tool runs again, for a reader that continues past a recorded stop.

        It does if that is harmless, or was decided by a person or policy; items that the reader
        received from the record are then not delivered again.
        """
        if not step.closed or step.verdict is Verdict.REUSE:
            return False
        now = f"its reader, who stopped after {counted(len(step.items), 'item')}, continues"
        if self.engine.settings.mode.reads_only:
            mode = self.engine.settings.mode.value
            self.engine.ledger.missed.append(f"{step.tool}: {now}")
            raise Miss(mode, now, f"{counted(len(step.items), 'item')} of {step.tool}")
        call = self.call
        call.number, call.key, call.attempt = step.number, step.key, step.attempt
        call.is_recorded = True
        may = call.effects in (Effects.PURE, Effects.IDEMPOTENT)
        if not may and step.verdict is not Verdict.RUN_AGAIN:
            raise self._diverged(now, (step.digest, ""))
        self._had = step.items
        yield from self._begin()
        return True


def iterate(engine: StepEngine, call: Call, drive: Drive) -> Generator[Any, None, None]:
    """Run a streamed call for the sync client: the async one, which never waits here."""
    items = iterate_async(engine, call, in_place(drive))
    while True:
        try:
            item = done(items.__anext__())
        except StopAsyncIteration:
            return
        try:
            yield item
        except BaseException as error:
            done(items.athrow(error))
            raise


async def iterate_async(
    engine: StepEngine, call: Call, drive: AsyncDrive
) -> AsyncGenerator[Any, None]:
    """Run a streamed call for the async client."""
    stream = StreamCall(engine, call)
    try:
        step = await drive(stream.open())
        if step is not None:
            for item in await drive(stream.replayed(step)):
                yield item
            engine.reraise(call, step)
            if not await drive(stream.beyond(step)):
                return
        inner = stream.start()
        while True:
            token = enter(stream.scope or call.place.scope)
            try:
                engine.ledger.demand_open()
                value = await following(inner)
            except BaseException as error:
                await close(inner)
                await drive(stream.failed(error))
                raise
            finally:
                leave(token)
            if value is END:
                break
            try:
                await drive(stream.item(value))
            except BaseException as error:  # noqa: BLE001 -- `refused` raises it
                try:
                    await drive(stream.refused(error))
                finally:
                    await close(inner)
            if stream.is_old:
                continue
            try:
                yield value
            except GeneratorExit:
                try:
                    await close(inner)
                except Exception as error:
                    await drive(stream.failed(error))
                    raise
                await drive(stream.end(closed=True))
                raise
        await drive(stream.end(closed=False))
    finally:
        stream.leave()
