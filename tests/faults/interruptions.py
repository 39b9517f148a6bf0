"""Raise an exception, as a signal handler does, at a chosen point of a program.

CPython runs signal handlers in the main thread where it checks for them: at the start of a function
or the resumption of a generator (`RESUME` with an argument below 2), after a call, and at a jump
back (Python/ceval.c of 3.11, `CHECK_EVAL_BREAKER`). A trace function raises at the n-th such point.
"""

from __future__ import annotations

import dis
import functools
import sys
from types import CodeType, FrameType
from typing import Any

RESUME = dis.opmap["RESUME"]
CALLS = {dis.opmap["CALL"], dis.opmap["CALL_FUNCTION_EX"]}
JUMPS = {
    code
    for name, code in dis.opmap.items()
    if "JUMP_BACKWARD" in name and "NO_INTERRUPT" not in name
}


class Interruption(BaseException):
    """The exception of the signal handler."""


class Interrupter:
    """A trace function that raises `Interruption` at point number `at`, counted from 1."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.points = 0
        self.where = ""
        """File, line and function of the point; empty until it is reached."""
        self._last: dict[int, int] = {}
        """Offset of the last instruction of each frame that is traced."""

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        """Trace each instruction."""
        code, at = frame.f_code, frame.f_lasti
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            if at < 0 or (code.co_code[at] == RESUME and code.co_code[at + 1] < 2):
                self._point(frame)
        elif event == "opcode":
            last = self._last.get(id(frame))
            self._last[id(frame)] = at
            if last is not None and _checks(code, last, at):
                self._point(frame)
        elif event == "return":
            self._last.pop(id(frame), None)
        return self

    def _point(self, frame: FrameType) -> None:
        self.points += 1
        if self.points == self.at:
            self.where = f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
            sys.settrace(None)
            raise Interruption


@functools.cache
def _checks(code: CodeType, last: int, at: int) -> bool:
    """Return whether CPython looks for signals between two instructions of a function.

    Where another exception handler holds at the second one, this function cannot raise as the
    interpreter would, which raises at the first: such points are left out.
    """
    operation = code.co_code[last]
    if operation in JUMPS or operation in CALLS:
        return _handlers(code, last) == _handlers(code, at)
    return False


def _handlers(code: CodeType, at: int) -> list[tuple[int, int]]:
    table: Any = dis._parse_exception_table(code)  # type: ignore[attr-defined]  # private in dis
    return [(each.target, each.depth) for each in table if each.start <= at < each.end]
