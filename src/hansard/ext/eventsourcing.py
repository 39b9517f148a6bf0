"""Persistence module of the eventsourcing library; set PERSISTENCE_MODULE to this module's name.

For programs that do not open a record themselves. Each application's factory opens one by the
application's environment, which the library fills from the process's: HANSARD_WORKSPACE,
HANSARD_DATA_DIR, HANSARD_NATS_URL and the other settings; closing the application closes the
record.

The features of applications on a record, and UNDECLARED=store: `hansard.state.native`.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from hansard import settings
from hansard.client.connect import opened
from hansard.state import native


class Factory(native.NativeFactory):
    """Factory of recorders over the log of a record of its own."""

    def __init__(self, env: MutableMapping[str, str]) -> None:
        self._record = opened(settings.load(env))
        try:
            env.update(self._record.application_env())
            super().__init__(env)
        except BaseException:
            self._record.close()
            raise

    def close(self) -> None:
        """Close the record; its recorders then raise InterfaceError."""
        self._record.close()
