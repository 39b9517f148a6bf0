"""`decider(...).given(...).when(...).then(...)`: rules as examples that can be read.

Pure: the events given are folded from nothing, the command is decided once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from hansard.testing.comparison import brief, check

UNSAID = msgspec.UNSET


def decider(
    initial: Callable[[], Any],
    fold: Callable[[Any, Iterable[Any]], Any],
    decide: Callable[[Any, Any], Sequence[Any]],
) -> Decider:
    """Examples of rules that are three functions: `decider(...).given(events).when(command)`.

    Args:
        initial: The state before the first event.
        fold: The state after more events: a function of the state and the events.
        decide: What comes of a command in a state: events, or an error.
    """
    return Decider(initial, fold, decide, ())


class Decider:
    """Rules, and what has happened so far. Made by `testing.decider`."""

    def __init__(
        self,
        initial: Callable[[], Any],
        fold: Callable[[Any, Iterable[Any]], Any],
        decide: Callable[[Any, Any], Sequence[Any]],
        events: tuple[Any, ...],
    ) -> None:
        self._initial = initial
        self._fold = fold
        self._decide = decide
        self._events = events

    def given(self, *events: Any) -> Decider:
        """What has happened so far, after what was given before."""
        return Decider(self._initial, self._fold, self._decide, self._events + events)

    def when(self, command: Any) -> Decided:
        """What is asked."""
        state = self._fold(self._initial(), self._events)
        try:
            made = tuple(self._decide(state, command))
        except Exception as error:  # noqa: BLE001 -- what is refused is told by `then_raises`, or is raised by the others
            return Decided((), error, state)
        return Decided(made, None, self._fold(state, made))


class Decided:
    """What came of a command.

    Attributes:
        events: What was decided.
        error: What was raised in place of that.
        state: The state after it.
    """

    def __init__(self, events: tuple[Any, ...], error: Exception | None, state: Any) -> None:
        self.events = events
        self.error = error
        self.state = state

    def then(self, *events: Any) -> Decided:
        """Exactly these events come of it, in this order; none means that it is so already."""
        __tracebackhide__ = True
        self._not_refused()
        check("the events", events, self.events, fits=lambda a, b: a == b, text=repr)
        return self

    def then_raises(self, kind: type[Exception], *, saying: str = "") -> Decided:
        """It is refused by an error of a class, whose text holds what is said here."""
        __tracebackhide__ = True
        raised(self.error, kind, saying, f"decided {list(self.events)}")
        return self

    def then_state(self, **fields: Any) -> Decided:
        """What the state says once the command's events are folded."""
        __tracebackhide__ = True
        self._not_refused()
        found = {name: getattr(self.state, name, UNSAID) for name in fields}
        check(
            "the state's fields",
            list(fields.items()),
            list(found.items()),
            fits=lambda a, b: a == b,
            text=lambda field: f"{field[0]} = {brief(field[1])}",
        )
        return self

    def _not_refused(self) -> None:
        __tracebackhide__ = True
        if self.error is not None:
            message = f"it was refused: {type(self.error).__name__}: {self.error}"
            raise AssertionError(message) from self.error


def raised(
    error: BaseException | None, kind: type[BaseException], saying: str, instead: str
) -> None:
    """Raise AssertionError, with both sides, unless there is such an error."""
    __tracebackhide__ = True
    if isinstance(error, kind) and saying in str(error):
        return
    wanted = kind.__name__ + (f": ... {saying} ..." if saying else "")
    found = f"{type(error).__name__}: {error}" if error is not None else f"no error: {instead}"
    message = f"the error is not as expected (- expected, + found):\n  - {wanted}\n  + {found}"
    raise AssertionError(message) from error
