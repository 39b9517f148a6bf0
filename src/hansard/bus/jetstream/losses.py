"""Whether a server still has what was on its disk: asked before anything is made or written."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from hansard.bus import subjects
from hansard.bus.errors import BrokerError
from hansard.bus.jetstream.calls import api
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.streams import STREAM_NOT_FOUND
from hansard.bus.marks import Witness

MADE_S_MAX = 2.0
MADE_POLL_S = 0.02
"""From the first file of a stream until the server offers it: milliseconds on an idle machine."""


async def refuse_loss(broker: Broker, workspace: str, witness: Witness) -> None:
    """Raise Corrupt where the server does not offer a stream whose messages are there, or one that
    ends before its mark. Nothing may be made in the place of the one or written to the other.
    """
    kept = witness.kept(workspace)
    last: dict[str, int] = {}
    names = subjects.log_stream(workspace), subjects.blob_stream(workspace)
    states = await asyncio.gather(*(_state(broker, name, witness) for name in names))
    for name, state in zip(names, states, strict=True):
        if state is not None:
            last[name] = state["last_seq"]
            continue
        folder = witness.files(name)
        if folder is not None:
            raise witness.hidden(workspace, name, folder)
    wrong = witness.wrong(workspace, kept, *(last.get(name, 0) for name in names))
    if wrong is not None:
        raise wrong


async def _state(broker: Broker, name: str, witness: Witness) -> dict[str, Any] | None:
    """How a stream stands; None if there is none.

    The files of one that another process makes right now are there before the server offers it.
    """
    until_s = time.monotonic() + MADE_S_MAX
    while True:
        try:
            info = await api(broker, f"STREAM.INFO.{name}")
        except BrokerError as error:
            if error.code != STREAM_NOT_FOUND:
                raise
        else:
            state: dict[str, Any] = info["state"]
            return state
        if witness.files(name) is None or time.monotonic() >= until_s:
            return None
        await asyncio.sleep(MADE_POLL_S)
