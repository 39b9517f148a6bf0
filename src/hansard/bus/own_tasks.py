"""Tasks that belong to the bus: the end of a program's event loop does not cancel them.

`asyncio.run` cancels all tasks of its loop at once, and so does a usual handler of SIGTERM. If the
tasks of the connection were among them, a program that is being cancelled could not record how its
run ends. They end when the broker is closed: by the record, or else as the loop shuts down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def own_task(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task of the bus on the running loop."""
    task = asyncio.get_running_loop().create_task(work)
    disown(task)
    return task


def disown(task: asyncio.Task[Any] | None) -> None:
    """Remove a task from those that `asyncio.all_tasks` lists, by which a loop's end finds them."""
    if task is not None:
        asyncio._unregister_task(task)  # noqa: SLF001 -- documented for those who extend asyncio
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 -- as `asyncio.gather` does
