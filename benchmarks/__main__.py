"""`python -m benchmarks [--quick] [name ...]`: run each `bench_*.py`, print its JSON line.

Each runs in a process of its own. `--quick` makes everything small: to see that it works, not how
fast. A benchmark that fails, prints anything else on stdout or takes longer than its bound is
reported, the others still run, and the exit code is 1. `peers` runs only where it is named: it
needs an environment of its own (`make bench-peers`).
"""

import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import _report

_HERE = Path(__file__).parent
_APART = {"bench_peers": "peers"}
"""Benchmarks that only run by name, each with its package."""

_BOUND_S = 900
"""Longest time for one benchmark, in seconds; a kill is the end of it."""


def _run(name: str, flags: list[str]) -> bool:
    """Run one benchmark; true if it printed exactly one JSON line and ended well."""
    _report.say(f"== {name}")
    start = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", f"benchmarks.{_APART.get(name, name)}", *flags],
            cwd=_HERE.parent,
            stdout=subprocess.PIPE,
            text=True,
            timeout=_BOUND_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        _report.say(f"== {name}: stopped, it took longer than {_BOUND_S} s")
        return False
    lines = done.stdout.splitlines()
    if done.returncode != 0 or len(lines) != 1 or not _is_object(lines[0]):
        shown = done.stdout[:500]
        _report.say(f"== {name}: exit code {done.returncode}, wanted one JSON line, got {shown!r}")
        return False
    print(lines[0], flush=True)
    _report.say(f"== {name}: {time.monotonic() - start:.0f} s")
    return True


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def main(arguments: list[str]) -> int:
    """Run the benchmarks named, or all of them."""
    flags = [word for word in arguments if word == _report.QUICK_FLAG]
    asked = [word for word in arguments if word != _report.QUICK_FLAG]
    known = sorted(path.stem for path in _HERE.glob("bench_*.py"))
    names = [name if name.startswith("bench_") else f"bench_{name}" for name in asked] or known
    unknown = sorted(set(names) - {*known, *_APART})
    if unknown:
        _report.say(
            f"no such benchmark: {', '.join(unknown)}; there are: {', '.join([*known, *_APART])}"
        )
        return 2
    outcomes = {name: _run(name, flags) for name in names}
    failed = [name for name, good in outcomes.items() if not good]
    _report.say(f"{len(names) - len(failed)} of {len(names)} benchmarks reported")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
