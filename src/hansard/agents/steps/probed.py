"""Calls in a probe's fork: answered from the record with one value swapped, answered as recorded,
or not answered.

The value is swapped in the answer of the call that returned it, whenever the program makes that
call again with the same arguments. A model call that the parent recorded is answered from the
record: the same call with the same arguments, or, in a run with the full chain, with the same
fingerprint. All other such calls run only if the probe may run them; otherwise a failure is
recorded, so that a program that continues without the answer is distinct from one that had it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from hansard.agents.errors import NotAnswered, ReplayDiffers
from hansard.agents.flow import Flow
from hansard.agents.steps import payloads
from hansard.agents.steps.doubt import DoubtSettler
from hansard.agents.steps.failures import failure, failure_digest, raised
from hansard.agents.steps.ledger import Ledger, describe
from hansard.agents.steps.recorder import Call
from hansard.domain.agent import initial
from hansard.domain.fingerprint import canonical, digest
from hansard.domain.paths import replaced
from hansard.domain.payload.parts import WholeSteps
from hansard.domain.run import Swap, with_bodies
from hansard.domain.steps import Step, StepFailed, StepStatus

# Comparison of a replay with its record, step by step: equal, missing and additional calls.

EQUAL_LINES_MAX = 2
"""Matching calls that are shown before and after each difference."""

LINES_MAX = 40
"""Largest number of lines of the comparison; the rest is only counted."""

EQUAL, ON_RECORD, BESIDES = "  = ", "  - ", "  + "


def before(ledger: Ledger) -> str:
    """Return the last calls of a replay, as recorded; empty if there are none."""
    with ledger.lock:
        steps = WholeSteps(ledger.state.steps)
        received = list(ledger.received)
        last = [EQUAL + describe(steps[number]) for number in received[-EQUAL_LINES_MAX:]]
    more = len(received) - len(last)
    return "\n".join([f"  ... {more:,} as recorded", *last] if more else last)


def difference(ledger: Ledger) -> ReplayDiffers | None:
    """Return the difference of a finished strict replay from its record, or None."""
    with ledger.lock:
        path, steps = ledger.path, ledger.state.steps
        if path is None:
            return None
        request = ledger.met.union(ledger.received)
        made = with_bodies(request, steps)
        tops = set(path.steps)
        tops = {number for number in tops if steps[number].parent not in tops}
        lacking = tops - made
        known = with_bodies(path.steps, steps)
        besides = sorted(request - known) if path.exact else []
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
    """Return lines with runs of equal ones, away from differences, replaced by counts."""
    differ = [index for index, line in enumerate(lines) if not line.startswith(EQUAL)]
    near = {
        index for at in differ for index in range(at - EQUAL_LINES_MAX, at + EQUAL_LINES_MAX + 1)
    }
    shown_lines: list[str] = []
    left_out = 0
    for index, line in enumerate(lines):
        if index not in near:
            left_out += 1
            continue
        if left_out:
            shown_lines.append(f"  ... {left_out:,} as recorded")
            left_out = 0
        shown_lines.append(line)
    if left_out:
        shown_lines.append(f"  ... {left_out:,} as recorded")
    if len(shown_lines) > LINES_MAX:
        shown_lines[LINES_MAX:] = [f"  ... {len(shown_lines) - LINES_MAX:,} more lines"]
    return "\n".join(shown_lines)


MODEL = "model"


class Probed:
    """Answers the calls that a probe's swap concerns; none in any other session."""

    def __init__(self, doubts: DoubtSettler, parent_calls: Mapping[str, Step]) -> None:
        self._doubts = doubts
        self._outcomes = doubts.outcomes
        self._ledger = doubts.ledger
        self._parent_calls = parent_calls
        self._swap = doubts.settings.swap
        self._parent = payloads.Reader(lambda: doubts.settings.parent or initial())

    def concerns(self, call: Call) -> bool:
        """Return whether the swap concerns the call, and the fork's own record does not answer
        it.
        """
        swap, step = self._swap, call.step
        if swap is None or not (call.spec.kind == MODEL or _is_swapped(call, swap)):
            return False
        return step is None or _is_refusal(step)

    def plan(self, call: Call) -> Flow[Step | None]:
        """Return the step that answers the call, or None to run it. Raises NotAnswered."""
        if call.step is not None:  # an earlier refusal, recorded in the fork
            self._ledger.advance(call.place.scope, call.step)
            raise raised(call.step, call.spec)
        if self._swap is not None and _is_swapped(call, self._swap):
            return (yield from self._swapped(call, self._swap))
        old = self._parent_calls.get(call.place.call)
        if (
            old is not None
            and old.status in (StepStatus.COMPLETED, StepStatus.FAILED)
            and not (self._ledger.full and old.fingerprint != call.place.fingerprint)
        ):
            yield from self._doubts.adopt(call, old)
            return self._ledger.state.steps[call.number]
        if self._swap is not None and self._swap.live:
            return None
        why = "the run's record has no such call, and --live was not given"
        return (yield from self._refuse(call, why))

    def _swapped(self, call: Call, swap: Swap) -> Flow[Step | None]:
        old = yield from self._recorded(call, swap)
        if old is None:
            agent = self._outcomes.stream.agent
            why = f"it returns {swap.path}, and the run's record has no such call by {agent!r}"
            return (yield from self._refuse(call, why))
        plain = yield from self._outcomes.fetch(self._parent.result(old))
        try:
            plain = replaced(plain, swap.within, msgspec.json.decode(swap.after))
        except KeyError:
            why = f"its recorded result at step {old.number} has no {swap.path}"
            return (yield from self._refuse(call, why))
        yield from self._outcomes.completed_as(call, payloads.Result(plain), 0.0, {})
        return self._ledger.state.steps[call.number]

    def _recorded(self, call: Call, swap: Swap) -> Flow[Step | None]:
        """Return the parent's recorded call: the same one, else the newest with its arguments."""
        same = self._parent_calls.get(call.place.call)
        if same is not None and same.status is StepStatus.COMPLETED:
            return same
        newest: Step | None = None
        parent = self._doubts.settings.parent or initial()
        for step in parent.steps.values():
            if step.tool == swap.tool and step.status is StepStatus.COMPLETED:
                arguments = yield from self._outcomes.fetch(self._parent.arguments(step))
                if digest(canonical(arguments)) == swap.arguments:
                    newest = step
        return newest

    def _refuse(self, call: Call, why: str) -> Flow[Step | None]:
        """Record that a call is not answered, and raise the error."""
        error = NotAnswered(call.spec.name, why)
        failure_record = failure(error, self._doubts.settings.scrub)
        yield from self._outcomes.ended_as(
            call,
            lambda number: StepFailed(
                step=number, error=failure_record, digest=failure_digest(failure_record), safe=True
            ),
        )
        raise error


def _is_swapped(call: Call, swap: Swap) -> bool:
    return call.spec.name == swap.tool and digest(call.canonical) == swap.arguments


def _is_refusal(step: Step) -> bool:
    error = step.error
    return (
        step.status is StepStatus.FAILED
        and error is not None
        and error.type == NotAnswered.__name__
    )
