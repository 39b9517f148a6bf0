"""What `hansard up` found in the logs that it watches, in a file that any command may read.

    <data dir>/watch.json    a Watch: written every few seconds by the one `hansard up` that watches
    <data dir>/watch.lock    flock, held by it

Findings are those since that process began: to restart it is to say that they were seen. What is
still wrong then is found again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from hansard.bus.file_lock import PRIVATE_FILE
from hansard.inspect.answer import Answer

COMPARE_S = 5.0
"""Pause between two comparisons of a log with its mark: three small requests a workspace."""

PAGE_MESSAGES = 256
"""Messages that are read at once, at most, and at most 8 MB of them."""

READ_PAUSE = 50
"""Each log is read from its first to its last message again and again, to see that every one is
there and is the one that was written. After each page the reading pauses this many times as long
as the page took, and after the last one as long as all of it took: a hundredth of the time."""

STALE_S = 30.0
"""A watch that was not written for so long does not watch any more."""

FINDINGS_MAX = 20
"""Findings that are kept a workspace; what follows is counted."""


class WatchFinding(msgspec.Struct, frozen=True):
    """One finding: when, and what is wrong."""

    at: datetime
    fact: str


def _now() -> datetime:
    return datetime.now(UTC)


class Watched(msgspec.Struct):
    """One workspace. `compared` is when its log was last compared with its mark, at `position`, or
    when that was begun; `read` is the position that the reading of all messages reached,
    `read_whole` when one last ended.
    """

    position: int = 0
    compared: datetime = msgspec.field(default_factory=_now)
    read: int = 0
    read_whole: datetime | None = None
    findings: list[WatchFinding] = []
    more: int = 0

    def find(self, fact: str) -> bool:
        """Take in a finding; whether it is a new one."""
        if any(each.fact == fact for each in self.findings):
            return False
        if len(self.findings) >= FINDINGS_MAX:
            self.more += 1
        else:
            self.findings.append(WatchFinding(_now(), fact))
        return True


class Watch(msgspec.Struct):
    """What one `hansard up` watches, and when it last looked."""

    pid: int
    looked: datetime
    workspaces: dict[str, Watched] = {}

    def stale(self) -> str | None:
        """Why it does not watch at this moment, if it does not."""
        age_s = (_now() - self.looked).total_seconds()
        if age_s > STALE_S:
            who = f"'hansard up' (pid {self.pid})"
            return f"{who} gave no sign of life for {age_s:,.0f} s: it has ended, or hangs"
        for name, one in self.workspaces.items():
            age_s = (_now() - one.compared).total_seconds()
            if age_s > STALE_S:
                return (
                    f"the log of workspace {name!r} was last compared {age_s:,.0f} s ago: 'hansard "
                    "up' cannot reach the broker"
                )
        return None


class Health(Answer):
    """Whether `hansard up` watches, and what it found; `fact` says why it does not watch."""

    healthy: bool
    fact: str | None = None
    watch: Watch | None = None

    def lines(self) -> Iterator[object]:
        """One object: the health of all workspaces."""
        workspaces = self.watch.workspaces if self.watch is not None else {}
        yield {
            "kind": "health",
            "healthy": self.healthy,
            "fact": self.fact,
            "looked": self.watch.looked if self.watch is not None else None,
            "workspaces": {
                name: {"findings": [each.fact for each in one.findings], "more": one.more}
                for name, one in sorted(workspaces.items())
            },
        }


def path_of(data_dir: Path) -> Path:
    """Where the watch of a data directory is kept."""
    return data_dir / "watch.json"


def write(data_dir: Path, watch: Watch) -> None:
    """Replace what is kept; it is not synced: after a crash it is stale. Raises OSError."""
    path = path_of(data_dir)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE)
    with os.fdopen(fd, "wb") as file:
        file.write(msgspec.json.encode(watch))
    part.replace(path)


def read(data_dir: Path) -> Watch | None:
    """What is kept; None where nothing is, or nothing that can be read."""
    try:
        return msgspec.json.decode(path_of(data_dir).read_bytes(), type=Watch)
    except (OSError, msgspec.DecodeError):
        return None


def health(data_dir: Path) -> Health:
    """Judge the watch of a data directory."""
    watch = read(data_dir)
    if watch is None:
        return Health(healthy=False, fact=f"no 'hansard up' watches the logs of '{data_dir}'")
    fact = watch.stale()
    found = any(one.findings for one in watch.workspaces.values())
    return Health(healthy=fact is None and not found, fact=fact, watch=watch)
