"""How long does a pattern take in 10,000 files of memory, and how long does ripgrep take?

The files are in memory, as a session has them; ripgrep reads the same files from a folder (in the
page cache), as a process of its own. Both give the same lines. Without `rg` only our own times are
reported, with a note.
"""

import asyncio
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks import _report
from hansard.agents.memory.search import LINES_LIMIT_MAX, grep

FILES = _report.sized(10_000, 300)
LINES = 40
ROUNDS = _report.sized(9, 2)
PATTERNS = {
    "rare": r"needle-\d+",
    "words": r"(?i)\bvendor\b.*\bignore",
    "none": r"\bnowhere\d{9}\b",
}


def tree() -> dict[str, str]:
    """Files of sentences, the same each time: one in a hundred has a needle."""
    draw = random.Random(7)
    words = [f"word{number}" for number in range(2_000)] + ["vendor", "ignore", "Paris", "bullets"]
    made: dict[str, str] = {}
    for number in range(FILES):
        lines = [" ".join(draw.choices(words, k=10)) for _ in range(LINES)]
        if number % 100 == 0:
            lines[draw.randrange(LINES)] += f" needle-{number}"
        made[f"notes/{number % 100:02}/{number:05}.md"] = "\n".join(lines) + "\n"
    return made


def timed(work: Callable[[], int]) -> tuple[float, int]:
    """Milliseconds, and the lines found."""
    began = time.perf_counter()
    found = work()
    return (time.perf_counter() - began) * 1_000, found


def ours_of(files: dict[str, str], pattern: str) -> int:
    """Return the number of lines that Hansard finds."""
    return len(grep(files, pattern, limit=LINES_LIMIT_MAX).lines)


def ripgrep(folder: Path, pattern: str) -> int:
    """Return the number of lines that ripgrep finds on one thread, as ours."""
    command = ["rg", "--no-config", "-j1", "-n", "--no-heading", "--", pattern, str(folder)]
    return subprocess.run(command, capture_output=True, check=False).stdout.count(b"\n")


async def measure() -> None:
    """Both in turn, pattern by pattern."""
    files = tree()
    installed = shutil.which("rg")
    results: dict[str, object] = {"files": FILES, "ripgrep": installed or "absent: no ratio"}
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        for name, pattern in PATTERNS.items():
            ours: list[float] = []
            theirs: list[float] = []
            for _ in range(ROUNDS):
                took, found = timed(partial(ours_of, files, pattern))
                ours.append(took)
                if installed:
                    took, other = timed(partial(ripgrep, folder, pattern))
                    theirs.append(took)
                    if other != found:
                        message = f"{name}: {found} lines here, {other} by ripgrep"
                        raise AssertionError(message)
            results[f"{name} (ours)"] = _report.summary(ours)
            if theirs:
                results[f"{name} (ripgrep)"] = _report.summary(theirs)
                ratios[f"{name}: ours to ripgrep"] = median(ours) / median(theirs)
    _report.emit(
        question=f"How long does a pattern take in {FILES:,} files, beside ripgrep?",
        results=results,
        ratios=ratios,
        goals={},
    )


if __name__ == "__main__":
    asyncio.run(measure())
