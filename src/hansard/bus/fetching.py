"""What a recorded payload refers to, fetched by whoever has the blobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from hansard.domain.payload.references import Fetch


async def drive_fetch(fetch: Fetch, get: Callable[[str, int], Awaitable[bytes]]) -> Any:
    """As the domain's `run_fetch`, where a blob has to be waited for. Raises as `get`."""
    try:
        request = next(fetch)
        while True:
            request = fetch.send(await get(*request))
    except StopIteration as stop:
        return stop.value
