"""A replay beside its record, step by step: what is equal, what is missing, what came besides."""

from __future__ import annotations

from hansard.agents.errors import ReplayDiffers
from hansard.agents.steps.ledger import Ledger, describe
from hansard.domain.payload.parts import WholeSteps
from hansard.domain.session_path import with_bodies

EQUAL_LINES_MAX = 2
"""Calls made as recorded that are shown before and after each that was not."""

LINES_MAX = 40
"""Lines of the two sides: what is more is counted."""

EQUAL, ON_RECORD, BESIDES = "  = ", "  - ", "  + "


def before(ledger: Ledger) -> str:
    """The calls that a replay made last, as they are on record; empty for none."""
    with ledger.lock:
        steps = WholeSteps(ledger.state.steps)
        handed = list(ledger.handed)
        last = [EQUAL + describe(steps[number]) for number in handed[-EQUAL_LINES_MAX:]]
    more = len(handed) - len(last)
    return "\n".join([f"  ... {more:,} as recorded", *last] if more else last)


def difference(ledger: Ledger) -> ReplayDiffers | None:
    """What of a strict replay that has ended is not as on record; None where it is equal."""
    with ledger.lock:
        path, steps = ledger.path, ledger.state.steps
        if path is None:
            return None
        asked = ledger.met.union(ledger.handed)
        made = with_bodies(asked, steps)
        tops = set(path.steps)
        tops = {number for number in tops if steps[number].parent not in tops}
        lacking = tops - made
        known = with_bodies(path.steps, steps)
        besides = sorted(asked - known) if path.exact else []
        if not (lacking or besides or ledger.missed):
            return None
        whole = WholeSteps(steps)
        lines = [
            (ON_RECORD if number in lacking else EQUAL) + describe(whole[number])
            for number in sorted(tops)
        ]
        absent = [line.removeprefix(ON_RECORD) for line in lines if line.startswith(ON_RECORD)]
        extra = [*(describe(whole[number]) for number in besides), *ledger.missed]
        lines += [BESIDES + each for each in extra]
    return ReplayDiffers(ledger.stream.agent, absent, extra, _shortened(lines))


def _shortened(lines: list[str]) -> str:
    """Lines with those that are equal counted, where they stand far from any that is not."""
    differ = [index for index, line in enumerate(lines) if not line.startswith(EQUAL)]
    near = {
        index for at in differ for index in range(at - EQUAL_LINES_MAX, at + EQUAL_LINES_MAX + 1)
    }
    found: list[str] = []
    left_out = 0
    for index, line in enumerate(lines):
        if index not in near:
            left_out += 1
            continue
        if left_out:
            found.append(f"  ... {left_out:,} as recorded")
            left_out = 0
        found.append(line)
    if left_out:
        found.append(f"  ... {left_out:,} as recorded")
    if len(found) > LINES_MAX:
        found[LINES_MAX:] = [f"  ... {len(found) - LINES_MAX:,} more lines"]
    return "\n".join(found)
