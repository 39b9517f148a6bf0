"""Blobs that no commit names are deleted, and only while no program can still name one."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

import hansard
from benchmarks import capacity
from hansard.broker import lease
from hansard.broker.files import ServerFiles
from hansard.bus.errors import BrokerError
from hansard.bus.jetstream import open_log
from hansard.bus.jetstream.client import Broker
from hansard.client.opening import find_broker
from hansard.settings import Settings
from tests.archive.test_rolled import roll
from tests.cli.planting import options
from tests.cli.support import ran

NAMED, LATE, ORPHAN, NEXT = (b'"%s"' % (letter * 600_000) for letter in (b"n", b"l", b"o", b"x"))
BOUND_S = 60.0

WRITER = """
import asyncio, sys
import msgspec
from hansard.bus.jetstream import open_log
from hansard.bus.log import Append
from hansard.client.opening import find_broker
from hansard.domain.events import Recorded
from hansard.domain.ids import KeyStream
from hansard.settings import Settings
from tests.bus.brokers import CLOCK, commit

async def main(home):
    broker = await find_broker(Settings(workspace="rolled", data_dir=home))
    log = await open_log(broker.runtime, "rolled", broker.durability, admin=broker.admin)
    size = len(data := b'"%s"' % (b"l" * 600_000))
    print(sha256 := await log.blobs.put(data), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    raw = msgspec.Raw(msgspec.json.encode({"v": {"$blob": {"sha256": sha256, "size": size}}}))
    events = (Recorded("test.said.v1", CLOCK.new_id(), raw),)
    await log.append(Append(KeyStream("r", "k"), msgspec.structs.replace(commit(), events=events)))

asyncio.run(main(sys.argv[1]))
"""
"""Stores LATE, waits for a line, and commits an event that names it."""

KILLED = """
import os, signal, sys
from hansard.bus.jetstream.log import RawWorkspace
from hansard.cli import run_line

delete, left = RawWorkspace.delete_blob, [2]

async def killed(self, sha256):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    await delete(self, sha256)

RawWorkspace.delete_blob = killed
run_line()
"""
"""Is killed before it deletes the second blob."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A record with a large value in the archive, and two blobs that no commit names."""
    folder = tmp_path / "data"
    with hansard.connect(workspace="rolled", data_dir=folder) as record:
        with record.run("w", agent="a", role="r") as session:
            session.message("assistant", NAMED.decode())
        roll(folder, str(tmp_path / "archive"))
    put(folder, ORPHAN, NEXT)
    return folder


def put(home: Path, *blobs: bytes) -> None:
    """Store blobs, and no commit that names them, as a writer does that is killed."""

    async def work() -> None:
        broker = await find_broker(Settings(workspace="rolled", data_dir=home))
        log = await open_log(broker.runtime, "rolled", broker.durability, admin=broker.admin)
        for each in blobs:
            await log.blobs.put(each)
        await log.close()
        await broker.release()

    asyncio.run(work())


def clean(
    home: Path, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch, *more: str
) -> str:
    """Run 'hansard tiers clean', and return what it reports."""
    line = ("--data-dir", home, "-w", "rolled")
    answer = ran(capsys, patch, [*line, "tiers", "clean", *more])
    assert answer.code == 0, answer.err
    return answer.err


def name(blob: bytes) -> str:
    """Return how a blob is listed."""
    return f"blob {hashlib.sha256(blob).hexdigest()}"


@pytest.mark.slow
def test_a_blob_is_deleted_only_when_no_program_can_name_it(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """A suspended program that stored one keeps all, also if its broker was killed meanwhile. What
    a commit names stays, in an archived generation or a live one; what was deleted can be stored
    again. A program with the former logins of the broker is refused.
    """
    with hansard.connect(workspace="rolled", data_dir=home):
        former = options(home)
    listed = clean(home, capsys, monkeypatch)
    assert "3 blobs, 2 of them in no commit" in listed
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, home],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline()
        writer.send_signal(signal.SIGSTOP)
        with monkeypatch.context() as patch:
            patch.setattr(lease, "ENDING_S", 0.5)
            refused = clean(home, capsys, patch, "--yes")
        assert "3 blobs kept: the data directory" in refused
        assert f"would delete {name(LATE)}" in refused
        server = lease.peek(home)
        assert server is not None
        os.kill(server.supervisor_pid, signal.SIGKILL)
        os.kill(server.server_pid, signal.SIGKILL)
        place = ServerFiles(home)
        assert lease.is_freed(place, time.monotonic() + BOUND_S)
        with pytest.raises(lease.InUse), lease.unused(place):
            pass
        writer.send_signal(signal.SIGCONT)
        writer.communicate("\n", BOUND_S)
        assert writer.returncode == 0
    finally:
        writer.kill()
    done = clean(home, capsys, monkeypatch, "--yes")
    assert f"deleted {name(ORPHAN)} (585.9 KiB)" in done
    assert f"deleted {name(NEXT)}" in done
    assert name(LATE) not in done
    assert name(NAMED) not in done
    assert "0 of them in no commit" in clean(home, capsys, monkeypatch)
    with hansard.connect(workspace="rolled", data_dir=home):
        by_address = msgspec.structs.replace(former, urls=options(home).urls)
        with pytest.raises(BrokerError, match=r"(?i)authorization"):
            asyncio.run(Broker.open(by_address))
    put(home, ORPHAN)
    assert name(ORPHAN) in clean(home, capsys, monkeypatch)
    checked = ran(capsys, monkeypatch, ["--data-dir", home, "-w", "rolled", "check"])
    assert checked.code == 0, checked.out


@pytest.mark.thorough(quick="test_a_blob_is_deleted_only_when_no_program_can_name_it")
def test_a_killed_clean_up_is_finished_by_the_next(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Programs can join at once, and the rest is deleted later."""
    line = ["--data-dir", str(home), "-w", "rolled", "tiers", "clean", "--yes"]
    killed = subprocess.run([sys.executable, "-c", KILLED, *line], timeout=BOUND_S, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert "1 of them in no commit" in clean(home, capsys, monkeypatch)
    done = clean(home, capsys, monkeypatch, "--yes")
    assert done.count("deleted blob") == 1


# ------------------------------------------------------------ capacity


PAGE = Path(__file__).parents[2] / "docs/scale.md"


def test_the_page_has_the_computed_table() -> None:
    """Each row of the page follows from the constants; what was not run says so."""
    assert capacity.table() in PAGE.read_text(encoding="utf-8")
    on_paper = [not capacity.row(rate, capacity.Constants()).was_run for rate in capacity.RATES]
    assert capacity.table().count("*on paper*") == sum(on_paper) == len(capacity.RATES) - 1


def test_a_rate_beyond_one_server_takes_several() -> None:
    """Servers follow from the commits a second, cores and puts from the rate."""
    few, many = (capacity.row(rate, capacity.Constants()) for rate in (10**8, 10**9))
    assert few.servers == 1.0 < many.servers
    assert 9 < many.project_cores / few.project_cores < 11
    assert 9 < many.puts_a_day / few.puts_a_day < 11
