"""How much does an installation take on the disk?

The files of Hansard and of all that it brings, as their own lists in this environment say,
compiled modules left out; then with each extra that is here; beside it LangGraph with its SQLite
checkpoints, and eventsourcing. MB are 10^6 bytes. Goal: at most 150 MB for the main job.
"""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import hansard
from benchmarks._report import Findings

GOAL_MB = 150
MAIN = "hansard"
PEERS = ("langgraph-checkpoint-sqlite", "eventsourcing")


def brought(name: str, extra: str = "") -> set[str]:
    """Return the names of a distribution and of all its requirements.

    Raises:
        PackageNotFoundError: One of them is not installed.
    """
    found: set[str] = set()
    wanted = [(name, frozenset({extra} - {""}))]
    while wanted:
        each, extras = wanted.pop()
        key = canonicalize_name(each)
        if key in found and not extras:
            continue
        found.add(key)
        for text in metadata.requires(each) or []:
            asked = Requirement(text)
            marker = asked.marker
            if marker is None or any(marker.evaluate({"extra": one}) for one in ("", *extras)):
                wanted.append((asked.name, frozenset(asked.extras)))
    return found


def size_mb(names: set[str]) -> float:
    """Return the size of their files, each counted once."""
    paths = {Path(str(listed.locate())) for name in names for listed in metadata.files(name) or []}
    if MAIN in names:  # an editable installation does not list them
        paths |= set(Path(hansard.__file__).parent.rglob("*"))
    size = sum(path.stat().st_size for path in paths if path.suffix != ".pyc" and path.is_file())
    return round(size / 1e6, 1)


def main() -> int:
    """Measure and report."""
    found = Findings()
    ours = brought(MAIN)
    main_mb = size_mb(ours)
    found.results["the main job, MB"] = main_mb
    found.results["packages of the main job"] = len(ours)
    for extra in metadata.metadata(MAIN).get_all("Provides-Extra") or []:
        try:
            more = brought(MAIN, extra)
            found.results[f"with [{extra}], MB"] = size_mb(more)
        except metadata.PackageNotFoundError:
            continue
    for peer in PEERS:
        try:
            found.results[f"{peer}, MB"] = size_mb(brought(peer))
        except metadata.PackageNotFoundError:
            continue
    found.goals[f"at most {GOAL_MB} MB"] = main_mb <= GOAL_MB
    found.emit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
