"""Waiting for something to claim, and how long a wait may be.

Everything here runs on the bus's loop, and may be cancelled at any time.
"""

from __future__ import annotations

import time

from hansard.agents.team.store import TeamStore
from hansard.bus.waiting import OVER, READY, TIMEOUT, until
from hansard.domain.errors import BadValue
from hansard.domain.team.task_rules import Claim, claimable, meant_for, still_to_come

LOOK_S_MIN = 0.25
"""Shortest wait for a lease to run out, in seconds: this process's clock, by which that moment is
guessed, may be ahead of the log's, by which it is decided.
"""

WAIT_S_MAX = 365 * 24 * 3_600.0


async def for_claim(store: TeamStore, wanted: Claim, timeout_s: float | None) -> str:
    """Wait until an agent may have something to claim; without an end to the wait, OVER says that
    nothing is left that could be its.
    """
    log = store.states.log

    async def look() -> str | None:
        state = await store.team()
        if claimable(state, wanted, await store.log_time()) is not None:
            return READY
        over = timeout_s is None and not still_to_come(state, wanted)
        return OVER if over else None

    lease_s = await _next_lease(store, wanted)
    bounds = [each for each in (lease_s, timeout_s) if each is not None]
    said = await until(log, look, lambda _: True, min(bounds) if bounds else None, of=store.tasks)
    looked_at_lease = lease_s is not None and (timeout_s is None or lease_s < timeout_s)
    return READY if said == TIMEOUT and looked_at_lease else said


async def _next_lease(store: TeamStore, wanted: Claim) -> float | None:
    """Seconds until the first lease of a task for an agent seems to run out; None: there is none.

    The log's time goes on only with its commits: at that moment the claim's own commit tells.
    """
    state = await store.team()
    ends = [
        task.expires
        for task in state.tasks.values()
        if task.holder and not task.is_over and meant_for(task, wanted)
    ]
    if not ends:
        return None
    return max(LOOK_S_MIN, (min(ends) - time.time_ns()) / 1e9)


def seconds(what: str, given: float | None) -> float | None:
    """A number of seconds, checked; None is for ever. Raises BadValue."""
    if given is None:
        return None
    if type(given) not in (int, float) or not 0 <= given <= WAIT_S_MAX:
        raise BadValue(what, f"{given!r:.40}", "give seconds, 0 or more, or None for no end")
    return float(given)
