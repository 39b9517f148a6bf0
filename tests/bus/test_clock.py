"""The writer's clock where a test mocks time, as freezegun does: by other names in the modules."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest

import hansard
from hansard.bus import clock
from hansard.bus.portal import portal


class FakeMeta(type):
    """Metaclass, as freezegun's classes have one."""


class FakeDatetime(datetime, metaclass=FakeMeta):
    @classmethod
    def now(cls, tz: Any = None) -> FakeDatetime:
        """Return the same time on each call."""
        return cls(2020, 1, 1, tzinfo=tz)


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the time for code that uses the names of these modules."""
    monkeypatch.setattr(clock, "datetime", FakeDatetime)
    monkeypatch.setattr(time, "time_ns", lambda: 1_577_836_800_000_000_000)
    monkeypatch.setattr(time, "time", lambda: 1_577_836_800.0)


def test_what_is_recorded_under_a_frozen_clock_has_the_real_time(record, frozen):
    """A session accepts calls, and its commits have the actual times."""
    with record.run("w", run="r") as session:

        @session.tool
        def send(word: str) -> str:
            return word

        assert send("letter") == "letter"
    assert clock.Clock().now().year > 2020
    assert type(clock._real()) is type
    commits = portal().run(record.workspace.log.read_run("r"))
    assert all(stored.commit.at > datetime(2024, 1, 1, tzinfo=UTC) for stored in commits)


def test_a_monotonic_clock_that_is_mocked_is_refused_by_name(data_dir, monkeypatch):
    """Waits for a broker would never end, or end at once: the error names the remedy."""
    monkeypatch.setattr(time, "monotonic", lambda: 1_577_836_800.0)
    with pytest.raises(
        hansard.errors.MockedClock, match="open the record before the clock is frozen"
    ):
        hansard.connect(data_dir=data_dir)
