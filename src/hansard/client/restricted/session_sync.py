"""The session of a restricted agent, for the sync client.

Made by `python -m tests.structure.twins`: do not edit it, but
`hansard.client.restricted.session`, from which it is made.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from hansard.client.restricted.calls import Begun, RemoteEngine
from hansard.client.restricted.session import Restricted
from hansard.client.session_sync import CommonSession, Session


class RestrictedSession(Restricted, CommonSession):
    """A restricted agent's session, for the sync client."""

    _trusted = Session

    def _items(self, call: Begun) -> Generator[Any, None, None]:
        engine: RemoteEngine = self.engine
        busy = engine.ledger.enter_call(call.scope)
        number = 0
        try:
            while True:
                found = self._drive(engine.item(call, number, busy=busy))
                if found.end:
                    return
                number = number or found.context
                try:
                    yield call.value(found)
                except GeneratorExit:
                    self._drive(engine.shut(call, number))
                    raise
        finally:
            engine.ledger.leave_call(call.scope)
