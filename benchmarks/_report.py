"""Measuring and reporting of a benchmark: one JSON line on stdout, words on stderr."""

import asyncio
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from importlib import metadata
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import msgspec

_LIBRARIES = ("nats-py", "msgspec", "duckdb", "eventsourcing", "langgraph-checkpoint-sqlite")
_SERVER_TIMEOUT_S = 10

_LOAD_AT_START = os.getloadavg()[0]
"""Load of the machine before the start: processes that were runnable in the last minute."""


def _processor_ticks() -> tuple[int, int]:
    """Return the ticks of all cores since the machine started: those stolen by its host, and
    all.
    """
    try:
        with Path("/proc/stat").open(encoding="ascii") as file:
            ticks = [int(field) for field in file.readline().split()[1:9]]
    except OSError:  # not Linux
        return 0, 0
    return ticks[7], sum(ticks)


_TICKS_AT_START = _processor_ticks()

QUICK_FLAG = "--quick"
"""Asks for small sizes: to see that a benchmark works, not how fast the thing is."""


SIZE_FLAG = "--size"
"""Asks for so many times the full sizes and rounds, as `--size 0.3`."""


def quick() -> bool:
    """Return whether small sizes were requested of this process."""
    return QUICK_FLAG in sys.argv[1:]


def sized(full: int, small: int) -> int:
    """Return the full size, or the requested share of it, at least the small one."""
    if quick():
        return small
    arguments = sys.argv[1:]
    times = arguments[arguments.index(SIZE_FLAG) + 1] if SIZE_FLAG in arguments else "1"
    return max(small, int(full * float(times)))


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Times of one measured thing, in milliseconds.

    `p99_ms` is interpolated; with fewer than a hundred rounds it lies close to `max_ms`.
    """

    rounds: int
    median_ms: float
    min_ms: float
    max_ms: float
    p99_ms: float


def summary(times_ms: list[float]) -> Measured:
    """Median and spread of times that were taken elsewhere."""
    if not times_ms:
        msg = "no times to summarise: measure at least one round"
        raise ValueError(msg)
    p99 = quantiles(times_ms, n=100, method="inclusive")[-1] if len(times_ms) > 1 else times_ms[0]
    return Measured(
        rounds=len(times_ms),
        median_ms=_short(median(times_ms)),
        min_ms=_short(min(times_ms)),
        max_ms=_short(max(times_ms)),
        p99_ms=_short(p99),
    )


def measure(fn: Callable[[], object], rounds: int, *, warm_up: int = 1) -> Measured:
    """Call `fn` `rounds` times, after `warm_up` calls that do not count."""
    for _ in range(warm_up):
        fn()
    times_ms: list[float] = []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        fn()
        times_ms.append((time.perf_counter_ns() - start) / 1e6)
    return summary(times_ms)


class Findings(msgspec.Struct):
    """Findings of a benchmark so far; `emit` takes the same three."""

    results: dict[str, Any] = msgspec.field(default_factory=dict)
    ratios: dict[str, float] = msgspec.field(default_factory=dict)
    goals: dict[str, bool] = msgspec.field(default_factory=dict)

    def emit(self, docstring: str | None) -> None:
        """Report, under the question that the benchmark's docstring begins with."""
        question = (docstring or "").split("\n\n", 1)[0].replace("\n", " ")
        emit(question=question, results=self.results, ratios=self.ratios, goals=self.goals)


def benchmark(
    measure: Callable[[Findings], Coroutine[Any, Any, None]], docstring: str | None
) -> None:
    """Run a whole benchmark, and report its findings."""
    found = Findings()
    asyncio.run(measure(found))
    found.emit(docstring)


def machine() -> dict[str, str | int]:
    """Return the machine's processor, cores, memory and kernel; nothing that names it."""
    return {
        "cpu": _from_proc("/proc/cpuinfo", "model name") or platform.processor() or "unknown",
        "cores": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 0,
        "memory_gib": _memory_gib(),
        "kernel": f"{platform.system()} {platform.release()}",
    }


def versions() -> dict[str, str]:
    """Return the versions that a figure depends on."""
    found = {"python": platform.python_version(), "nats-server": _server_version()}
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def stolen() -> float:
    """Return the share of this machine's processor that others on its host took since the start."""
    (steal, ticks), (steal_before, ticks_before) = _processor_ticks(), _TICKS_AT_START
    return (steal - steal_before) / max(1, ticks - ticks_before)


def say(words: str) -> None:
    """Print progress for people; stdout is for the result alone."""
    print(words, file=sys.stderr, flush=True)


def emit(
    *,
    question: str,
    results: Mapping[str, Any],
    ratios: Mapping[str, float] | None = None,
    goals: Mapping[str, bool] | None = None,
) -> None:
    """Print the benchmark's one JSON line on stdout, and the same for people on stderr.

    `results` holds figures or `Measured`, `ratios` what carries over to other machines, `goals`
    whether each promise (written out, with its bound) was kept.
    """
    body = {
        "question": question,
        "quick": quick(),
        "results": msgspec.to_builtins(dict(results)),
        "ratios": {name: _short(ratio) for name, ratio in (ratios or {}).items()},
        "goals": dict(goals or {}),
        "machine": machine(),
        "load_1min": {"start": _short(_LOAD_AT_START), "end": _short(os.getloadavg()[0])},
        "stolen": _short(stolen()),
        "versions": versions(),
    }
    say(f"\n{question}")
    say(f"  others on the host took {body['stolen']:.1%} of the processor meanwhile")
    for name, result in body["results"].items():
        say(f"  {name}: {_for_people(result)}")
    for name, ratio in body["ratios"].items():
        say(f"  {name}: {ratio:g} times")
    for name, kept in body["goals"].items():
        say(f"  {'kept  ' if kept else 'MISSED'} {name}")
    print(json.dumps(body, ensure_ascii=False), flush=True)


def _for_people(result: object) -> str:
    match result:
        case {"median_ms": middle, "min_ms": low, "max_ms": high, "p99_ms": p99, "rounds": rounds}:
            return f"{middle:g} ms ({low:g} to {high:g}, p99 {p99:g}, {rounds} rounds)"
        case _:
            return f"{result}"


def _short(value: float) -> float:
    """Four significant digits: more would claim more than was measured."""
    return float(f"{value:.4g}")


def _from_proc(path: str, key: str) -> str:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key)), "")


def _memory_gib() -> int:
    kib = _from_proc("/proc/meminfo", "MemTotal").removesuffix("kB").strip()
    return round(int(kib) / 2**20) if kib else 0


def _server_version() -> str:
    beside = Path(sys.executable).parent / "nats-server"
    program = str(beside) if beside.exists() else "nats-server"
    try:
        told = subprocess.run(
            [program, "--version"],
            capture_output=True,
            text=True,
            check=True,
            timeout=_SERVER_TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError):
        return "not found"
    return told.stdout.strip().rpartition(" ")[2]
