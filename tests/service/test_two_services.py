"""Two services for one workspace carry out a repeated request once."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest

from hansard.bus.portal import portal
from hansard.client.restricted import link as client
from hansard.operations.protocol import wire
from hansard.operations.protocol.faults import ServiceGone
from hansard.operations.protocol.wire import Failed, Opened
from hansard.service.server import Service
from tests.service._nursery import Nursery
from tests.service.support import House

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
TRIES_MAX = 200
"""So often at most the broker chooses the other one of two."""

BEGIN = {"run.started.v1": 1, "run.agent_joined.v1": 1}


@pytest.fixture
def second(house: House) -> Iterator[House]:
    """Another service of the same workspace."""
    made = House(house.data_dir, house.workspace, house.folder)
    made.files = house.files
    made.begin()
    yield made
    made.end()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a client retry soon."""
    monkeypatch.setattr(client, "AGAIN_S", 0.3)


def silent(house: House, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Drop a service's answers to openings; return the sessions that it opened."""
    assert house.service is not None
    requests, lost = house.service._requests, []
    send = requests.answer

    async def answer(reply: str, payload: bytes) -> None:
        if b'"type":"opened"' in payload:
            lost.append(msgspec.json.decode(payload, type=Opened).run)
        else:
            await send(reply, payload)

    monkeypatch.setattr(requests, "answer", answer)
    return lost


def lives(house: House, run: str) -> Counter[str]:
    """Return the number of events of each kind in a run's lifecycle."""
    with house.trusted() as record:
        commits = portal().run(record.workspace.log.read_run(run))
    tags = [event.type for each in commits for event in each.commit.events]
    return Counter(tag for tag in tags if tag.startswith("run."))


def test_an_opening_is_done_once_though_another_answers(house, second, impatient, monkeypatch):
    """An opening answered by two services is done once, in one epoch."""
    lost = silent(house, monkeypatch)
    with house.connect() as record:
        tries, run = 0, ""
        while not lost:  # the broker chooses the service
            tries += 1
            with record.run("w", run=None) as session:
                run = session.run
                session.message("user", "hi")
        assert set(lost) == {run}
        assert len(runs_of(house)) == tries
        once = lives(house, run)
        assert {tag: once[tag] for tag in BEGIN} == BEGIN
        assert not once["run.resumed.v1"]
        lost.clear()
        taken = 0
        while not lost:
            taken += 1
            with record.run(run=run) as session:
                session.message("user", "hi")
                session.message("user", f"again {taken}")
        assert set(lost) == {run}
    assert lives(house, run)["run.resumed.v1"] == taken


def runs_of(house: House) -> list[str]:
    """Return the runs of the workspace."""
    with house.trusted() as record:
        return [run for run, _ in record.runs()]


def test_an_old_opening_takes_over_no_session(house, second, monkeypatch):
    """A repeated old opening is refused and fences no session."""
    sent: list[bytes] = []
    answers: list[bytes] = []
    with house.connect() as record:
        link = record._link
        ask = link.requests.ask

        async def asking(subject: str, payload: bytes, timeout_s: float) -> bytes:
            if subject.endswith(".open"):
                sent.append(payload)
            return await ask(subject, payload, timeout_s)

        async def answer(reply: str, payload: bytes) -> None:
            del reply
            answers.append(payload)

        monkeypatch.setattr(link.requests, "ask", asking)
        with record.run("w", run="r1") as session:
            session.message("user", "one")
            services = [each.service for each in (house, second) if each.service is not None]
            [other] = [each for each in services if not each.sessions]
            monkeypatch.setattr(other._requests, "answer", answer)
            mine = link.credentials
            subject = wire.opening(mine.workspace, mine.role, mine.principal, "open")
            portal().run(again(other, subject, f"{mine.inbox}.1", sent[0], answers))
            refusal = wire.answer(answers[0])
            assert isinstance(refusal, Failed)
            assert refusal.fault.type == "ServiceGone"
            assert "already opened by this request" in refusal.fault.message
            session.message("user", "two")
    assert not lives(house, "r1")["run.resumed.v1"]


async def again(
    service: Service, subject: str, reply: str, body: bytes, answers: list[bytes]
) -> None:
    """Have a service take an opening, and return its answer."""
    service._take(subject, reply, body)
    async with asyncio.timeout(PATIENCE_S):
        while not answers:  # noqa: ASYNC110 -- nothing signals its change
            await asyncio.sleep(0.01)


@pytest.mark.slow
@pytest.mark.long
def test_one_is_killed_between_doing_and_answering(house, impatient, tmp_path, rounds):
    """After a kill at each point of an opening, the other service does it once."""
    del impatient
    nursery = Nursery(house, tmp_path)
    try:
        for dies in range(rounds(4, 4)):
            with nursery.service(dies) as child, house.connect() as record:
                before = len(runs_of(house))
                opened: list[str] = []
                for number in range(1, TRIES_MAX):
                    with contextlib.suppress(ServiceGone), record.run("w") as session:
                        opened.append(session.run)
                        session.message("user", "hi")  # fails if its service is gone
                    assert len(opened) == number, dies
                    once = lives(house, opened[-1])
                    assert {tag: once[tag] for tag in BEGIN} == BEGIN, dies
                    assert not once["run.resumed.v1"], dies
                    assert len(runs_of(house)) == before + number, dies
                    if len(child.reached()) > dies:
                        break
                else:
                    pytest.fail("the broker never chose the one that is to be killed")
    finally:
        nursery.close()
