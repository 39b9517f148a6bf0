"""Findings of `hansard up` in the logs that it watches, in a file that any command can read.

    <data dir>/watch.json    a Watch: written every few seconds by the one `hansard up` that watches
    <data dir>/watch.lock    flock, held by it

Findings are those since that process started: restarting it clears them, and damage that still
exists is found again.
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
"""Most messages read at once; also at most 8 MB of them."""

READ_PAUSE = 50
"""Pause after a page, as a multiple of the time that the page took.

Each log is read from its first to its last message again and again, to verify that every message
exists unchanged. After the last page the pause is as long as the whole reading took. This takes a
hundredth of the time.
"""

STALE_S = 30.0
"""Age in seconds at which a watch that was not written counts as ended."""

FINDINGS_MAX = 20
"""Most findings stored per workspace; further ones are counted."""


class WatchFinding(msgspec.Struct, frozen=True):
    """Finding: its time and its text."""

    at: datetime
    fact: str


def _now() -> datetime:
    return datetime.now(UTC)


class Watched(msgspec.Struct):
    """Watched workspace.

    `compared` is the time of the last comparison of its log with its mark, at `position`, or
    the start of the watch; `read` is the position reached by reading all messages, `read_whole`
    the time at which such a reading last ended.
    """

    position: int = 0
    compared: datetime = msgspec.field(default_factory=_now)
    read: int = 0
    read_whole: datetime | None = None
    findings: list[WatchFinding] = []
    more: int = 0

    def find(self, fact: str) -> bool:
        """Add a finding; return whether it is new."""
        if any(each.fact == fact for each in self.findings):
            return False
        if len(self.findings) >= FINDINGS_MAX:
            self.more += 1
        else:
            self.findings.append(WatchFinding(_now(), fact))
        return True


class Watch(msgspec.Struct):
    """State of the `hansard up` that watches, and the time of its last check."""

    pid: int
    looked: datetime
    workspaces: dict[str, Watched] = {}

    def stale(self) -> str | None:
        """Return why it does not watch at this moment; None if it does."""
        age_s = (_now() - self.looked).total_seconds()
        if age_s > STALE_S:
            who = f"'hansard up' (pid {self.pid})"
            return f"{who} has not reported for {age_s:,.0f} s: it has ended, or hangs"
        for name, one in self.workspaces.items():
            age_s = (_now() - one.compared).total_seconds()
            if age_s > STALE_S:
                return (
                    f"the log of workspace {name!r} was last compared {age_s:,.0f} s ago: 'hansard "
                    "up' cannot reach the broker"
                )
        return None


class Health(Answer):
    """Health of the watched logs: whether `hansard up` watches, else `fact` says why not; and its
    findings.
    """

    healthy: bool
    fact: str | None = None
    watch: Watch | None = None

    def lines(self) -> Iterator[object]:
        """Return one object: the health of all workspaces."""
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
    """Return the path of a data directory's watch file."""
    return data_dir / "watch.json"


def write(data_dir: Path, watch: Watch) -> None:
    """Replace the watch file; it is not synced, since it is stale after a crash. Raises OSError."""
    path = path_of(data_dir)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE)
    with os.fdopen(fd, "wb") as file:
        file.write(msgspec.json.encode(watch))
    part.replace(path)


def read(data_dir: Path) -> Watch | None:
    """Read the watch file; None if there is none or it is unreadable."""
    try:
        return msgspec.json.decode(path_of(data_dir).read_bytes(), type=Watch)
    except (OSError, msgspec.DecodeError):
        return None


def health(data_dir: Path) -> Health:
    """Return the health of a data directory's logs."""
    watch = read(data_dir)
    if watch is None:
        return Health(healthy=False, fact=f"no 'hansard up' watches the logs of '{data_dir}'")
    fact = watch.stale()
    has_findings = any(one.findings for one in watch.workspaces.values())
    return Health(healthy=fact is None and not has_findings, fact=fact, watch=watch)
