"""The interval of a loop's checkpoints, from their cost and from recorded failures.

Pure: times are measured, and sessions read, by the caller. No checkpoint is placed before a tool
that fails often: it would be inside an item, where no resume begins. The failed sessions of such
tools shorten the interval instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

Session = tuple[float, bool]
"""A session's time at work, in seconds, and whether it was killed or failed."""

MTBF_S = 60.0
"""Assumed mean time between failures before any is on record, in seconds: short, since checkpoints
of 2 ms at its interval take 0.4 % of the time, and an interval that is too long loses more.
"""

ASSUMED = 0.1
"""Weight of that assumption, in failures."""

FADING = 0.8
"""Weight of a session relative to the next one that failed, so that the estimate follows a drift:
the newest five failures make two thirds of it.
"""

SMOOTHING = 0.25
"""Weight of a newly measured cost against the earlier ones."""


def mtbf(sessions: Iterable[Session]) -> float:
    """Return the mean time between failures of sessions, newest first, in seconds.

    It is the time at work a failure, with older sessions fading. A session without a failure adds
    its time alone.
    """
    time_s = failures = 0.0
    weight = 1.0
    for seconds, failed in sessions:
        weight *= FADING if failed else 1.0
        time_s += weight * seconds
        failures += weight * failed
    weight *= ASSUMED
    return (time_s + weight * MTBF_S) / (failures + weight)


def interval(cost_s: float, mtbf_s: float) -> float:
    """Return the time of work between two checkpoints for the least expected time, in seconds.

    J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps",
    Future Generation Computer Systems 22 (2006), equation 37. Its first term is J. W. Young, "A
    first order approximation to the optimum checkpoint interval", CACM 17 (1974).

    Args:
        cost_s: The time of a checkpoint, in seconds.
        mtbf_s: The mean time between failures, in seconds.
    """
    half = cost_s / (2 * mtbf_s)
    if half >= 1:
        return mtbf_s
    return math.sqrt(2 * cost_s * mtbf_s) * (1 + math.sqrt(half) / 3 + half / 9) - cost_s


class Pace:
    """The choice of a loop's checkpoints, from what was measured so far.

    Until the cost of a checkpoint is measured there is one after each item. All time counts as
    repeated after a failure; calls on record are not, so that the interval is rather too short.

    Args:
        sessions: The recorded sessions that ended, newest first.
        source: Where they are from.
    """

    def __init__(self, sessions: Iterable[Session] = (), source: str = "") -> None:
        self._sessions = tuple(sessions)
        self._source = source if self._sessions else "assumed"
        self._up_s = self._since_s = self._cost_s = 0.0
        self._items = 0
        self.choice: dict[str, Any] = {"interval_s": 0.0, "source": "unmeasured"}
        """The choice in force, as recorded with the next checkpoint; times in seconds."""

    def worked(self, seconds: float) -> bool:
        """Count an item; return whether a checkpoint is due: nearer to the interval now than an
        item later.
        """
        self._items += 1
        self._up_s += seconds
        self._since_s += seconds
        return bool(self._since_s + seconds / 2 >= self.choice["interval_s"])

    def saved(self, cost_s: float) -> None:
        """Count a checkpoint that took so long, and choose the next interval."""
        self._cost_s += (cost_s - self._cost_s) * (SMOOTHING if self._cost_s else 1.0)
        self._since_s = 0.0
        mtbf_s = mtbf(((self._up_s, False), *self._sessions))
        self.choice = {
            "interval_s": round(interval(self._cost_s, mtbf_s), 6),
            "cost_s": round(self._cost_s, 6),
            "item_s": round(self._up_s / max(1, self._items), 6),
            "mtbf_s": round(mtbf_s, 3),
            "failures": sum(failed for _, failed in self._sessions),
            "sessions": len(self._sessions),
            "source": self._source,
        }
