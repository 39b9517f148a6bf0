"""`given(...).when(...).then(...)`: a decider's rules as examples that can be read.

    agent().given(began(), requested(1)).when(tell(completed(1))).then(completed(1))
    agent().given(began()).when(tell(completed(1))).then_refused("never requested")

Pure: the events given are folded from nothing, the command is decided once.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import pytest

from hansard.domain.errors import Refused
from hansard.domain.events import Event


class Specification:
    """One decider's example: what was, what is asked, what comes of it."""

    def __init__(
        self,
        initial: Callable[[], Any],
        fold: Callable[[Any, Iterable[Event]], Any],
        decide: Callable[[Any, Any], Sequence[Event]],
    ) -> None:
        self._fold = fold
        self._decide = decide
        self._state = initial()
        self._command: Any = None

    def given(self, *events: Event) -> Self:
        """What has happened so far."""
        self._state = self._fold(self._state, events)
        return self

    def when(self, command: Any) -> Self:
        """What is asked."""
        self._command = command
        return self

    def then(self, *events: Event) -> None:
        """What comes of it: exactly these events; none means that it is so already."""
        assert tuple(self._decide(self._state, self._command)) == events

    def then_refused(self, why: str) -> None:
        """It is refused, and the message holds `why`."""
        with pytest.raises(Refused) as refusal:
            self._decide(self._state, self._command)
        assert why in str(refusal.value)

    def then_state(self, **fields: Any) -> None:
        """What the state says once the command's events are folded."""
        state = self._fold(self._state, self._decide(self._state, self._command))
        assert {name: getattr(state, name) for name in fields} == fields
