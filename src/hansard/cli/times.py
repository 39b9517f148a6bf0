"""Times and numbers for people."""

from __future__ import annotations

from hansard.bus.times import Clock, EventTime, Time
from hansard.cli import output
from hansard.domain.values import SAFE_INT

CLOCKS = {
    Clock.LOG: "the log's time",
    Clock.ORIGIN: "the time of the log that the run was copied from",
    Clock.OCCURRED_AT: "as the source says",
    Clock.IMPORT: "the moment of the import: the source says no times",
}
"""Each clock in words."""


def text(time: EventTime) -> str:
    """A time to the second."""
    moment = time.moment
    if moment is None:
        return output.cut(time.at)
    return output.moment(moment) if moment.tzinfo else f"{moment:%Y-%m-%d %H:%M:%S}"


def shown(time: EventTime | Time) -> str:
    """The same with the clock's name where it is not the log's; empty where nobody knows."""
    if time.at is None or time.clock is Clock.IMPORT:
        return ""
    said = text(EventTime(time.at, time.clock))
    return said if time.clock is Clock.LOG else f"{said} ({time.clock.value})"


def imported(time: EventTime | None) -> list[str]:
    """What is to be said once where times are not known."""
    if time is None:
        return []
    return [f"imported {text(time)}: where no time stands, its source gives none"]


def offset(ms: float) -> str:
    """How long after a beginning."""
    sign, whole = ("-" if ms < 0 else "+"), abs(ms) / 1_000
    minutes, seconds = divmod(whole, 60)
    if not minutes:
        return f"{sign}{seconds:.3f} s"
    hours, minutes = divmod(int(minutes), 60)
    days, hours = divmod(hours, 24)
    clock = (
        f"{hours}:{minutes:02}:{int(seconds):02}" if hours or days else f"{minutes}:{seconds:04.1f}"
    )
    return f"{sign}{days} d {clock}" if days else f"{sign}{clock}"


def usage(used: dict[str, float]) -> str:
    """What was used up: `cost` is in US dollars."""
    return ", ".join(
        f"cost ${number(amount)}" if name == "cost" else f"{output.cut(name)} {number(amount)}"
        for name, amount in used.items()
    )


def number(amount: float) -> str:
    """A number: whole where it is, else to six digits."""
    whole = float(amount).is_integer() and abs(amount) <= SAFE_INT
    return f"{amount:,.0f}" if whole else f"{amount:,.6g}"
