"""Commits that may be stored: never reported as not stored, and never stored twice."""

import asyncio
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.bus.errors import AppendUnknown, BrokerError, BusError, Conflict, Unreachable
from hansard.bus.jetstream import JetStreamLog, _append
from hansard.bus.jetstream.direct import Direct, publish, publish_all
from hansard.bus.jetstream.wire import NoAnswer, Rejected
from hansard.bus.log import Append, Stored
from hansard.bus.writer import StreamWriter
from hansard.domain.ids import AgentStream, KeyStream
from tests.bus.brokers import Nats, append, running

ALICE = AgentStream("r1", "researcher", "alice")
KEYS = [KeyStream("r1", f"k{number}") for number in range(3)]


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[Nats]:
    """Yield a server of the test's own."""
    with running(tmp_path / "nats") as server:
        yield server


class Refusing:
    """A broker that stores messages or not, loses its answers, and refuses all else."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stores = True
        self.refusal: BusError = Rejected(10023, "insufficient resources")
        self.answers: list[str] = []
        monkeypatch.setattr(_append, "publish", self.single)
        monkeypatch.setattr(_append, "publish_all", self.batch)

    def lose(self, count: int = 1) -> None:
        """Lose the answers to the next attempts, and refuse later ones."""
        self.answers = ["lost"] * count + ["refused"]

    async def single(self, *message: Any) -> Any:
        """Publish one message."""
        return await self._answer(publish, message)

    async def batch(self, *messages: Any) -> Any:
        """Publish several."""
        return await self._answer(publish_all, messages)

    async def _answer(self, send: Any, sent: Sequence[Any]) -> Any:
        if not self.answers:
            return await send(*sent)
        if self.answers.pop(0) == "refused":
            raise self.refusal
        if self.stores:
            await send(*sent)
        raise NoAnswer("the answer was lost")


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Refusing:
    """Return a broker that refuses."""
    return Refusing(monkeypatch)


REFUSALS = pytest.mark.parametrize(
    "refusal",
    [Rejected(10023, "insufficient resources"), BrokerError("sending", 403, "not permitted")],
    ids=["full", "denied"],
)


@REFUSALS
async def test_a_refusal_after_a_lost_answer_is_no_proof(nats, broker, refusal):
    """A refusal after a lost answer may be an own commit or a lost race, or stay unknown."""
    broker.refusal = refusal
    log = await nats.log()
    first = append(ALICE, 1)
    broker.lose()
    assert (await log.append(first)).commit == first.commit

    broker.stores = False
    broker.lose()
    with pytest.raises(Conflict):
        await log.append(append(ALICE, 1))

    broker.lose()
    second = append(ALICE, 2)
    with pytest.raises(AppendUnknown, match=str(getattr(refusal, "code", ""))) as unknown:
        await log.append(second)
    assert unknown.value.commit_id == second.commit.id

    broker.answers = ["refused"]
    with pytest.raises(BrokerError):
        await log.append(second)
    assert [each.commit for each in await log.read(ALICE)] == [first.commit]
    await log.close()


@REFUSALS
async def test_a_refusal_after_a_thread_sent_it_is_no_proof(nats, broker, refusal):
    """A commit sent by a thread may be stored, though the loop has sent nothing yet."""
    broker.refusal = refusal
    log = await nats.log()
    first = append(ALICE, 1)
    await log.append(first)
    for sent, position in ((first, 1), (append(ALICE, 2), None)):
        broker.answers = ["refused"]
        again = log.append_again(sent, time.monotonic())
        if position is not None:
            assert (await again).position == position
        else:
            with pytest.raises(AppendUnknown):
                await again
    await log.close()


@REFUSALS
@pytest.mark.parametrize("way", ["append_all", "append_bulk"])
async def test_a_refused_batch_after_a_lost_answer_is_no_proof(nats, broker, refusal, way):
    """All of a batch or copy is stored, or one commit is another's, or it is unknown."""
    broker.refusal = refusal
    log = await nats.log()
    send = getattr(log, way)
    broker.lose()
    both = await send([append(key, 1) for key in KEYS[:2]])
    assert (both if way == "append_bulk" else both[-1].position) == await log.head() == 2

    broker.stores = False
    broker.lose()
    several = [append(KEYS[1], 1), append(KEYS[2], 1)]
    with pytest.raises(Conflict) as lost:
        await send(several if way == "append_bulk" else several[::-1])
    assert lost.value.stream == KEYS[1]

    broker.lose()
    with pytest.raises(AppendUnknown):
        await send([append(key, 2) for key in KEYS])

    broker.answers = ["refused"]
    with pytest.raises(BrokerError):
        await send([append(key, 2) for key in KEYS])
    assert await log.head() == 2
    await log.close()


async def test_where_the_log_cannot_be_read_the_outcome_is_unknown(nats, broker, monkeypatch):
    """A failed query proves nothing about the stored commits."""
    log = await nats.log()

    async def unreachable(*_: object) -> None:
        raise Unreachable("nats://away", "no answer")

    for name in ("last", "named"):
        monkeypatch.setattr(Direct, name, unreachable)
    broker.lose()
    with pytest.raises(AppendUnknown, match="no answer"):
        await log.append(append(ALICE, 1))
    broker.lose()
    with pytest.raises(AppendUnknown, match="no answer"):
        await log.append_all([append(key, 1) for key in KEYS])
    broker.refusal = Rejected(10071, "wrong last sequence: 1")
    broker.answers = ["refused"]
    with pytest.raises(Unreachable):
        await log.append(append(ALICE, 2))
    await log.close()


@pytest.mark.parametrize("when", ["making", "made", "sending", "sent"])
def test_what_a_signal_handler_records_while_a_thread_sends(nats, monkeypatch, when):
    """A handler's record follows the thread's commit, which is stored once, sent or not."""
    armed: list[str] = []

    def interrupt(at: str) -> None:
        if armed == [at]:
            armed.clear()
            signal.raise_signal(signal.SIGUSR1)

    make = StreamWriter._next

    def making(writer: StreamWriter, *of: Any) -> Append:
        interrupt("making")
        made = make(writer, *of)
        interrupt("made")
        return made

    here = 0

    class Interrupted(JetStreamLog):
        def append_here(self, append: Append) -> Stored | None:
            nonlocal here
            interrupt("sending")
            stored = super().append_here(append)
            here += stored is not None
            interrupt("sent")
            return stored

    monkeypatch.setattr(StreamWriter, "_next", making)
    login: dict[str, Any] = {"nats": f"nats://127.0.0.1:{nats.port}", "nats_user": "admin"}
    with hansard.connect(workspace="lab", nats_password="admin", **login) as record:
        log = record.workspace.log
        assert isinstance(log, JetStreamLog)
        log.__class__ = Interrupted
        with record.run("cut", run="r1", agent="ada", role="worker") as session:
            while not here:
                session.checkpoint("before")
            before = signal.signal(signal.SIGUSR1, lambda *_: session.checkpoint("handler"))
            armed.append(when)
            try:
                session.checkpoint("mine")
            finally:
                signal.signal(signal.SIGUSR1, before)
            assert not armed
            session.checkpoint("after")
    labels = asyncio.run(_checkpoints(nats))
    assert [each for each in labels if each != "before"] == ["mine", "handler", "after"]


async def _checkpoints(nats: Nats) -> list[str]:
    """Return the checkpoints of the interrupted session, in order."""
    log = await nats.log()
    commits = await log.read(AgentStream("r1", "worker", "ada"))
    await log.close()
    names = ("before", "mine", "handler", "after")
    texts = [bytes(event.data).decode() for each in commits for event in each.commit.events]
    return [name for text in texts for name in names if f'"{name}"' in text]
