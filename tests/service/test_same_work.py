"""That a run is not shown and that there is none cannot be told apart, by no clock either: the
same work is done for both.
"""

import inspect
import re
import statistics
import sys
import threading
import time
from collections import Counter
from types import FrameType
from typing import Any, Self

import msgspec
import pytest

from hansard.bus.portal import portal
from hansard.client.operations import (
    RecordCancel,
    RecordFinish,
    RecordReopen,
    RecordSettle,
    RecordView,
)
from hansard.client.protocol import wire
from hansard.client.protocol.wire import Failed
from hansard.client.restricted import link
from hansard.client.restricted.link import Link
from hansard.domain.steps import Verdict
from hansard.service import server as service_server
from tests.evidence import Evidence
from tests.service.support import House

ROLES = """
[roles.clerk]
[[roles.clerk.sees]]
name = "own work"
roles = ["clerk"]
[roles.clerk.may]
tools = ["**"]
kinds = ["**"]
settle = true
approve = true
[roles.boss]
[[roles.boss.sees]]
name = "all"
kinds = ["**"]
[roles.boss.may]
tools = ["**"]
kinds = ["**"]
keys = ["**"]
"""
MESSAGES = 60
PATIENCE_S = 60.0
"""Within this time an answer comes on a machine that is busy."""

ASKED = {
    "view": RecordView(""),
    "settle": RecordSettle("", "eve#1", Verdict.DID_NOT_HAPPEN),
    "reopen": RecordReopen("", "t"),
    "finish": RecordFinish(""),
    "cancel": RecordCancel(""),
}


@pytest.fixture
def hidden(house: House) -> House:
    """A workspace with a run of which ada's role is shown nothing, and one of her own."""
    house.apply(ROLES)
    with house.trusted() as record:
        with record.run("w", run="hidden", agent="eve", role="boss") as eve:
            for number in range(MESSAGES):
                eve.message("user", f"message {number}")
        with record.run("w", run="own", agent="zoe", role="clerk") as zoe:
            zoe.message("user", "shown")
    house.login("ada", "clerk")
    return house


class Work:
    """Counts the functions of ours that are entered on the bus's loop, those that send requests to
    the broker among them; the service's own parts that look after time are left out.
    """

    COUNTED = re.compile(
        r"/hansard/(agents|domain|projections)/|/hansard/client/(record|session)\.py"
        r"|/hansard/bus/((server|states|validation)/)?(?!slices|portal)[a-z_]+\.py"
        r"|/hansard/bus/jetstream/(direct|_read)\.py"
    )
    RESUMED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._profile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self._profile(None)

    @staticmethod
    def _profile(note: Any) -> None:
        done = threading.Event()

        def put() -> None:
            sys.setprofile(note)
            done.set()

        portal().loop.call_soon_threadsafe(put)
        assert done.wait(30)

    def _note(self, frame: FrameType, event: str, arg: object) -> None:
        del arg
        if event != "call":
            return
        where = frame.f_code.co_filename
        if self.COUNTED.search(where):
            name = f"{where}:{frame.f_code.co_qualname}"
            resumed = frame.f_code.co_flags & self.RESUMED  # entered as often as it had to wait
            self.calls[name] = 1 if resumed else self.calls[name] + 1


def ask(linked: Link, verb: str, run: str) -> bytes:
    """What is answered, without the name that was asked for."""
    answer = portal().run(linked.outside(verb, msgspec.structs.replace(ASKED[verb], run=run)))
    assert isinstance(answer, Failed)
    return answer.fault.message.replace(run, "RUN").encode()


@pytest.fixture
def undisturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked because time has passed: neither "are you there" nor "is it done"."""
    monkeypatch.setattr(service_server, "PROBE_SWEEPS", sys.maxsize)
    monkeypatch.setattr(service_server, "PENDING_S", PATIENCE_S)
    monkeypatch.setattr(link, "FIRST_S_MAX", PATIENCE_S)
    monkeypatch.setattr(wire, "BEAT_S", PATIENCE_S)


@pytest.mark.fast(cases=2)
@pytest.mark.slow(cases=0)
@pytest.mark.parametrize("verb", sorted(ASKED))
def test_hidden_and_absent_take_the_same_work(hidden: House, undisturbed: None, verb: str) -> None:
    """The same functions are entered equally often, and the same is said."""
    del undisturbed
    with hidden.link("ada", "clerk") as ada:
        for run in ("absent", "hidden"):
            ask(ada, verb, run)  # which runs are shown is found once
        found: dict[str, Counter[str]] = {}
        for run in ("hidden", "absent"):
            with Work() as work:
                said = ask(ada, verb, run)
            found[run] = work.calls
            found[f"{run} says"] = Counter([said.decode()])
    assert found["hidden says"] == found["absent says"]
    assert found["hidden"].total() > MESSAGES
    assert requests(found["hidden"])
    assert found["absent"] == found["hidden"]


def requests(calls: Counter[str]) -> int:
    """How many of the calls read from the broker."""
    return sum(count for name, count in calls.items() if "/jetstream/direct.py" in name)


@pytest.mark.slow
@pytest.mark.long
def test_times_of_hidden_and_absent(hidden: House, rounds: Any, evidence: Evidence) -> None:
    """Measured and kept as evidence, not judged here: a clock says what the machine does, too."""
    times: dict[str, list[float]] = {"hidden": [], "absent": []}
    with hidden.link("ada", "clerk") as ada:
        for _ in range(rounds(5, 100)):
            for run, taken in times.items():
                began = time.perf_counter()
                ask(ada, "view", run)
                taken.append((time.perf_counter() - began) * 1_000)
    middle = {run: statistics.median(taken) for run, taken in times.items()}
    evidence.record(
        "service.hidden_and_absent", **{f"{k}_ms": round(v, 2) for k, v in middle.items()}
    )
    assert len(times["hidden"]) == len(times["absent"])
