"""Ask a person at a terminal whether the effect of a step in doubt happened."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hansard.agents.steps.recorder import Settled, UnsettledStep
from hansard.agents.steps.tools import DID_NOT_HAPPEN, Happened
from hansard.bus.clock import OS_USER
from hansard.bus.portal import in_loop
from hansard.domain import values
from hansard.domain.errors import BadValue
from hansard.domain.steps import StepStatus, Verdict
from hansard.inspect.answer import masked, plain_text

if TYPE_CHECKING:  # slow to import, and most programs never ask
    from rich.console import Console

SHOWN_MAX = 300
"""Most characters of a value that are shown."""

ANSWERS = {
    "n": "nothing: run it again",
    "h": "it happened: say what it returned",
    "u": "use what is on record",
    "r": "run it again, effect and all",
    "s": "stop here",
}
"""The meaning of each key."""

_one_at_a_time = threading.Lock()


def ask_person(step: UnsettledStep) -> Settled | Awaitable[Settled]:
    """Ask the person at the terminal; a policy for `settle=`.

    It shows the call, its error and whether the tool's source changed, and asks *did it do
    anything?*: nothing, run it again; it happened, with its result; or stop. If stdin or stderr is
    not a terminal the step is left to a person, as without a policy: the error shows the command to
    type. HANSARD_SETTLE=ask applies it to programs without a policy, and `hansard run resume` sets
    that.

    Args:
        step: The step, as every policy gets it.
    """
    if not is_terminal():
        return None
    return asyncio.to_thread(_read_answer, step) if in_loop() else _read_answer(step)


ask_person.__dict__["answered_by"] = OS_USER  # on record as who settled the step


def is_terminal() -> bool:
    """Return whether stdin and stderr are terminals, so that a person can answer."""
    return all(
        stream is not None and not stream.closed and stream.isatty()
        for stream in (sys.stdin, sys.stderr)
    )


def result_from(text: str) -> Any:
    """Parse a typed result: JSON, with values as `hansard run trace` shows them; else the text."""
    try:
        plain = msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text
    try:
        return values.revive(plain)
    except BadValue:  # an object with a key of the user's own that begins with "$"
        return plain


def _read_answer(step: UnsettledStep) -> Settled:
    """Ask for an answer and return it; None for stop."""
    from rich.console import Console  # noqa: PLC0415 -- see above

    with _one_at_a_time:
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        for line in question_lines(step):
            console.print(line, markup=False)
        try:
            return _answered(console, step)
        except (EOFError, OSError):  # the terminal is gone
            return None


def _answered(console: Console, step: UnsettledStep) -> Settled:
    match _key(console, _keys(step)):
        case "n":
            return DID_NOT_HAPPEN
        case "h":
            return Happened(result_from(console.input("it returned (JSON, or text): ")))
        case "u":
            return Verdict.REUSE
        case "r":
            return Verdict.RUN_AGAIN
        case _:
            return None


def _keys(step: UnsettledStep) -> str:
    """Return the keys that apply to the step."""
    if step.diverged:
        return "urs"
    return "hs" if step.happened else "nhs"  # of one that happened only the result is not known


def _key(console: Console, keys: str) -> str:
    """Wait for one of the keys and return it. Discard input typed before the question.

    Raises EOFError, OSError.
    """
    import typer  # noqa: PLC0415 -- see above

    question = "Which is it?" if "u" in keys else "Did it do anything?"
    console.print(question, style="bold")
    for key in keys:
        console.print(f"  {key}  {ANSWERS[key]}", markup=False)
    while (pressed := typer.getchar()) not in tuple(keys):
        if not pressed:
            raise EOFError
    console.print(f"{pressed}: {ANSWERS[pressed]}", markup=False)
    return pressed


def question_lines(step: UnsettledStep) -> list[str]:
    """Return the lines that describe the step to the person."""
    call = f"{step.tool} {bytes(step.arguments).decode()}"
    lines = [
        f"step {step.agent}#{step.number} of run {step.run} {_situation(step)}",
        f"  call    {call:.{SHOWN_MAX}}",
    ]
    if step.now:
        lines.append(f"  now     {step.now:.{SHOWN_MAX}}")
    if step.error is not None:
        lines.append(f"  error   {step.error.text:.{SHOWN_MAX}}")
    if step.items:
        lines.append(f"  items   {len(step.items):,} arrived before that")
    lines.append(f"  source  {_source(step)}")
    return [plain_text(masked(line)) for line in lines]


def _situation(step: UnsettledStep) -> str:
    if step.diverged:
        return f"is {step.status.value} on record, and the call made now may repeat its effect"
    match step.status:
        case StepStatus.FAILED:
            return "failed, and whether it did something before that is not known"
        case StepStatus.IN_DOUBT if step.happened:
            return "ran, but its result could not be recorded"
        case StepStatus.IN_DOUBT:
            return "was cut off: whether its effect happened is not known"
        case _:
            return "was under way when its process ended: no outcome is on record"


def _source(step: UnsettledStep) -> str:
    """Describe a change of the source; only digests are on record, and only those of tools."""
    before, now = step.source_before, step.source_now
    path, _, line = step.defined.rpartition(":")
    with contextlib.suppress(ValueError):
        path = os.fspath(Path(path).relative_to(Path.cwd()))
    where = f" ({path}:{line})" if step.defined else ""
    if not before or not now:
        return f"not known: no digest of it is {'on record' if not before else 'to be had'}{where}"
    if before == now:
        return f"of {step.tool} as recorded{where}; what else changed is not on record"
    return (
        f"of {step.tool} changed since{where}: digest {before[:8]} on record, {now[:8]} now; the "
        "text of then is not on record"
    )
