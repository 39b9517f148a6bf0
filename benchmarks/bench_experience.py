"""What does a hit among 10,000 experiences cost, and distilling 1,000 runs, beside a raw limit?

A hit is `record.experiences.find` from the tables that are up to date; its limit is the same
question to SQLite's FTS5 alone, over the same texts, with an existing index. Distilling makes a
procedure of runs that are in memory; its limit is reading them once from JSON.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import msgspec

import hansard
from benchmarks import _report
from hansard.domain.actions import CachedAction, ElementTargets
from hansard.domain.experience import distil
from hansard.domain.experience import experience as experiences
from hansard.domain.experience.distil import Demonstration, ShownAction
from hansard.projections.file_search import FileWords

EXPERIENCES = _report.sized(10_000, 60)
RUNS = _report.sized(1_000, 30)
ROUNDS = _report.sized(9, 2)
TOGETHER = 50
"""Experiences that are kept at once: the log's group commit."""


def _shown(name: str, method: str, *arguments: str) -> ShownAction:
    targets = ElementTargets(role="button", name=name, tag="button")
    action = CachedAction(
        step_index=0,
        instruction=None,
        element_id=None,
        method=method,
        arguments=list(arguments),
        frame_index=0,
        xpath=None,
        action_type="actElement",
        success=True,
        message="",
        targets=targets,
    )
    return ShownAction(action=action)


def doings(count: int) -> list[Demonstration]:
    """Return runs of one kind of task: a guest is invited, and every third time a notice is
    closed.
    """
    return [
        Demonstration(
            task=f'Invite "Guest {number}" to dinner.',
            actions=(
                *((_shown("Close", "click"),) if number % 3 == 0 else ()),
                _shown("Guest", "fill", f"Guest {number}"),
                _shown("Invite", "click"),
            ),
            success=True,
            source=f"run-{number}",
        )
        for number in range(count)
    ]


def took_ms(work: Callable[[], object]) -> float:
    """Milliseconds of a call."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e3


def distilling() -> tuple[list[float], list[float]]:
    """Milliseconds of distilling the runs, and of reading them from JSON."""
    told = doings(RUNS)
    raw = msgspec.json.encode(told)
    reads = partial(msgspec.json.decode, raw, type=list[Demonstration])
    ours, limit = [], []
    for _ in range(ROUNDS):
        ours.append(took_ms(partial(distil.distilled, told)))
        limit.append(took_ms(reads))
    return ours, limit


async def finding() -> tuple[list[float], list[float]]:
    """Milliseconds of a hit among the experiences, and of FTS5 alone."""
    [told] = distil.distilled(doings(6))
    base = experiences.made("base", told)
    words = [f"word{number}" for number in range(997)]
    ours, limit = [], []
    with tempfile.TemporaryDirectory() as folder:
        async with hansard.connect_async("bench", data_dir=Path(folder)) as record:
            texts: dict[str, str] = {}
            for begin in range(0, EXPERIENCES, TOGETHER):
                made = []
                for number in range(begin, min(begin + TOGETHER, EXPERIENCES)):
                    said = " ".join(words[number * step % 997] for step in (1, 3, 7, 11))
                    about = f"Sends {said} to number{number}"
                    name = f"experience-{number}"
                    texts[name] = f"{base.wording.template}\n{about}"
                    made.append(msgspec.structs.replace(base, name=name, description=about))
                await asyncio.gather(*(record.experiences.keep(each) for each in made))
            index = FileWords()
            index.ranked(texts, "word1", 10)
            asked = f"number{EXPERIENCES // 2} {words[5]}"
            await record.experiences.find(asked)
            for _ in range(ROUNDS):
                began = time.perf_counter()
                [hit, *_] = (await record.experiences.find(asked)).hits
                ours.append((time.perf_counter() - began) * 1e3)
                limit.append(took_ms(partial(index.ranked, texts, asked, 10)))
                assert hit.experience == f"experience-{EXPERIENCES // 2}"
            index.close()
    return ours, limit


async def measure() -> None:
    """Measure both, each beside its limit."""
    hit, fts = await finding()
    distilled, read = await asyncio.to_thread(distilling)
    _report.emit(
        question=f"What cost a hit among {EXPERIENCES:,} experiences, distilling {RUNS:,} runs?",
        results={
            "a hit": _report.summary(hit),
            "FTS5 alone": _report.summary(fts),
            "distilling": _report.summary(distilled),
            "reading the runs from JSON": _report.summary(read),
        },
        ratios={
            "a hit to FTS5 alone": median(hit) / median(fts),
            "distilling to reading": median(distilled) / median(read),
        },
        goals={},
    )


if __name__ == "__main__":
    asyncio.run(measure())
