"""Restricted agents outlive a broker that goes away: no loss, each effect once, same tokens."""

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.broker.lease import peek
from hansard.bus.errors import Unreachable
from hansard.operations.protocol.faults import ServiceGone
from tests.service.programs import small
from tests.service.support import ALL, House
from tests.service.test_kills import check_small, settle_small, up

pytestmark = pytest.mark.slow

NOTICED_S = 20.0
"""Seconds within which a client is notified; an append retries for 30 s, a request waits
forever.
"""

DEATHS = 4
"""So often the broker may die: a fifth time within a minute is held to be for good."""

BACK_S = 30.0
"""Seconds until a client gets through again."""


class Mortal(House):
    """A workspace with a broker of its own, whose supervisor restarts it after a death."""

    def pid(self) -> int:
        """Return the process id of the running server, once there is one."""
        deadline = time.monotonic() + BACK_S
        while time.monotonic() < deadline:
            broker = peek(self.data_dir)
            if broker is not None:
                return broker.server_pid
            time.sleep(0.01)
        pytest.fail("the broker did not come back")

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Kill the server, but not its supervisor."""
        os.kill(self.pid(), how)


@contextlib.contextmanager
def living(folder: Path) -> Iterator[Mortal]:
    """Yield the served workspace. Its broker may die `DEATHS` times."""
    made = Mortal(folder / "broker", "mortal", folder)
    made.begin()
    try:
        made.apply(ALL)
        made.login()
        yield made
    finally:
        made.end()


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Mortal]:
    """Yield the served workspace with a mortal broker."""
    with living(tmp_path) as made:
        yield made


class TriggeringResults(list[Any]):
    """Results of a program; at one of them an action happens."""

    def __init__(self, at: int, happens: Callable[[], None]) -> None:
        super().__init__()
        self._at = at
        self._happens = happens

    def append(self, what: Any) -> None:
        """Take note of it."""
        super().append(what)
        if len(self) == self._at:
            self._happens()


def attempt(house: House, run: str, file: Path, answers: list[Any]) -> list[Any]:
    """Try the program once over one connection; the error has the remedy."""
    try:
        with house.connect() as record:
            ended = small.attempt(record, run, file, answers)
    except Unreachable as error:
        ended = ["gone", "Unreachable", str(error)]
    if ended[0] == "gone":
        assert ended[1] in {"ServiceGone", "Unreachable"}, ended
        assert "hansard up" in ended[2] or ended[1] == "Unreachable", ended
    return ended


def go_on(house: House, run: str, file: Path, before: list[Any], ended: list[Any]) -> list[Any]:
    """Try until the end; return the results of the last attempt."""
    deadline = time.monotonic() + BACK_S
    while ended[0] != "ended":
        assert time.monotonic() < deadline, ended
        if ended[0] == "doubt":
            settle_small(house, run, ended, file)
        answers: list[Any] = []
        ended = attempt(house, run, file, answers)
        assert answers[: len(before)] == before[: len(answers)]
        before = max(answers, before, key=len)
    return before


BEFORE_EFFECT, AFTER_EFFECT, ANY_TIME = -1, -2, 0
PLACES = [*range(1, len(small.ENDED)), BEFORE_EFFECT, AFTER_EFFECT, *[ANY_TIME] * 10]
"""Points of the kill: after so many results, in a tool, or anywhere."""


@pytest.mark.long
def test_the_broker_is_killed_at_work(tmp_path, rounds, evidence):
    """The broker is killed between requests, within a tool before or after its effect, and at
    random.
    """
    number = rounds(2, len(PLACES))
    chosen = [BEFORE_EFFECT, ANY_TIME, *random.sample(PLACES, len(PLACES))][:number]
    for first in range(0, number, DEATHS):
        folder = tmp_path / f"{first}"
        folder.mkdir()
        with living(folder) as mortal:
            for index, place in enumerate(chosen[first : first + DEATHS]):
                run, file = f"k{index}", folder / f"sent-{index}"
                answers = killed_at(mortal, place, run, file)
                assert answers == small.ENDED
                check_small(mortal, run, file, answers)
    evidence.record("service.broker_killed", kills=number, lost=0, doubled=0)


def killed_at(mortal: Mortal, place: int, run: str, file: Path) -> list[Any]:
    """Kill once in a run and resume it; return the program's final results."""
    answers: list[Any] = TriggeringResults(place, mortal.kill)
    timer = threading.Timer(random.uniform(0, 0.2), mortal.kill)
    with pytest.MonkeyPatch.context() as patch:
        if place in {BEFORE_EFFECT, AFTER_EFFECT}:
            patch.setattr(small, "write", dying(mortal, first=place == BEFORE_EFFECT))
        if place == ANY_TIME:
            timer.start()
        began = time.monotonic()
        ended = attempt(mortal, run, file, answers)
        took_s = time.monotonic() - began
    if timer.ident is not None:
        timer.join()
    assert ended[0] == "gone" or place == ANY_TIME
    assert took_s < NOTICED_S
    return go_on(mortal, run, file, list(answers), ended)


def dying(house: Mortal, *, first: bool) -> Callable[[Path, str], None]:
    """Return an effect before or after which the broker is killed."""
    write = small.write

    def work(file: Path, line: str) -> None:
        if first:
            house.kill()
        write(file, line)
        if not first:
            house.kill()

    return work


@pytest.mark.long
@pytest.mark.parametrize(
    "how", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.thorough)]
)
def test_the_broker_goes_while_a_client_waits(mortal: Mortal, how: signal.Signals) -> None:
    """A client that waits for others is notified, too, and waits on after it resumed its run."""
    with mortal.connect() as record:
        times: list[float] = []

        def go() -> None:
            time.sleep(0.3)
            times.append(time.monotonic())
            mortal.kill(how)

        with (
            pytest.raises(ServiceGone, match="resume the run"),
            record.run("w", run="r1") as session,
        ):
            session.message("user", "first")
            threading.Thread(target=go).start()
            session.wait_for(key="never", timeout_s=600)
        assert time.monotonic() - times[0] < NOTICED_S
    mortal.pid()
    with mortal.trusted() as other, other.run(run="r1", agent="bob", role="writer") as bob:
        bob.board.put("soon", 1)
    with reached(mortal) as record, record.run(run="r1") as session:
        session.message("user", "first")
        assert session.wait_for(key="soon", timeout_s=10) is not None
        session.message("user", "second")
        assert [each["content"] for each in session.context()] == ["first", "second"]


def reached(house: House) -> Any:
    """Return a client that gets through again."""
    deadline = time.monotonic() + BACK_S
    while True:
        try:
            record = house.connect()
            try:
                record.roles.view("no-such-run")
            except hansard.NotFound:
                return record
            except BaseException:
                record.close()
                raise
        except (ServiceGone, Unreachable):
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.thorough(quick="test_the_broker_is_killed_at_work")
@pytest.mark.long
def test_up_outlives_its_broker(tmp_path: Path) -> None:
    """`hansard up` serves on when the broker that it holds was killed and is back."""
    house = Mortal(tmp_path / "broker", "mortal", tmp_path)
    run, file = "r1", tmp_path / "sent"
    with hansard.connect(house.workspace, data_dir=house.data_dir):  # a broker from here on
        house.apply(ALL)
        house.login()
        with up(house) as process:
            answers: list[Any] = TriggeringResults(4, house.kill)
            ended = attempt(house, run, file, answers)
            assert ended[:2] == ["gone", "ServiceGone"]
            answers = go_on(house, run, file, list(answers), ended)
            assert process.poll() is None
            check_small(house, run, file, answers)
