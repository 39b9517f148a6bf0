"""Use of an embedded server: its start can be cancelled, and its metadata is on disk."""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.broker.lease import Host
from hansard.client.credentials import url_of
from hansard.settings import Settings
from tests.bus.test_server import GONE_WITHIN_S, eventually, processes_of

START_S = 30.0


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """Return a data directory; end the processes that a test left running there."""
    place = tmp_path / "data"
    yield place
    for pid in processes_of(place):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def opened(data_dir: Path) -> Coroutine[Any, Any, Host]:
    """Open a use of it."""
    return Host.open(data_dir, None)


def address(data_dir: Path) -> Coroutine[Any, Any, str]:
    """Return a coroutine for the server's address."""
    return url_of(Settings(data_dir=data_dir))


def is_over(data_dir: Path) -> bool:
    """Return whether both server and supervisor end soon."""
    return eventually(lambda: not processes_of(data_dir), GONE_WITHIN_S)


async def cancelled_once_it_starts(work: Coroutine[Any, Any, object], data_dir: Path) -> None:
    """Give it up while its thread waits for the server."""
    task = asyncio.create_task(work)
    async with asyncio.timeout(START_S):
        while not processes_of(data_dir):  # noqa: ASYNC110 -- another process has no event
            await asyncio.sleep(0.005)
    assert task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.later
@pytest.mark.parametrize("use", [opened, address])
async def test_an_abandoned_start_leaves_no_user(use, data_dir):
    """The thread cannot be cancelled, so it gets a lease that no caller waits for."""
    await cancelled_once_it_starts(use(data_dir), data_dir)
    await asyncio.get_running_loop().shutdown_default_executor()  # the thread has ended
    assert is_over(data_dir)


@pytest.mark.later
def test_nor_does_one_whose_loop_is_closed_before_the_server_is_there(data_dir: Path):
    """Only the thread itself is left then, without a loop to call back."""
    others = set(threading.enumerate())  # the idle ones of other loops do not end
    loop = asyncio.new_event_loop()
    loop.run_until_complete(cancelled_once_it_starts(opened(data_dir), data_dir))
    loop.close()
    for thread in set(threading.enumerate()) - others:
        if thread.name.startswith("asyncio_"):
            thread.join(START_S)
            assert not thread.is_alive()
    assert is_over(data_dir)


@pytest.mark.later
async def test_a_broker_that_is_closed_while_it_heals_leaves_no_user(data_dir: Path):
    """The server that it starts again is ended with its host."""
    host = await opened(data_dir)
    try:
        os.kill(host.info.supervisor_pid, signal.SIGKILL)
        assert is_over(data_dir)
        await cancelled_once_it_starts(host.heal(), data_dir)
    finally:
        host.close()
    await asyncio.get_running_loop().shutdown_default_executor()  # the thread has ended
    assert is_over(data_dir)


def test_new_metadata_is_synced_before_the_first_commit(data_dir, monkeypatch):
    """The server syncs messages alone, so opening a new workspace syncs its files and folders."""
    synced: list[Path] = []
    real = os.fsync

    def noted(fd: int) -> None:
        real(fd)
        synced.append(Path(os.path.realpath(f"/dev/fd/{fd}")))

    monkeypatch.setattr(os, "fsync", noted)
    streams = data_dir / "nats/jetstream/HANSARD/streams"
    with hansard.connect("lab", data_dir=data_dir, durability="relaxed"):
        log, blobs = streams / "hansard_log-lab", streams / "hansard_blob-lab"
        files = {each / name for each in (log, blobs) for name in ("meta.inf", "meta.sum", "msgs")}
        folders = {log, blobs, *(each for each in log.parents if each.is_relative_to(data_dir))}
        assert set(synced) >= files | folders | {data_dir.parent}
        for each in files:
            os.utime(each, (0, 0))
        synced.clear()
        hansard.connect("lab", data_dir=data_dir).close()
        assert not [each for each in synced if each.is_relative_to(streams)]
