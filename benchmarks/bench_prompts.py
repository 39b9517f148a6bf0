"""What do model calls store and take whose prompts contain earlier ones, form by form?

For 50, 200 and 800 calls of each form: bytes as JetStream counts them (bodies, subjects, headers,
frames, in log and blobs) and the files' bytes on disk with their indexes, each as a multiple of the
distinct text (each message once, as JSON, and the replies); the same less what as many calls with a
number for a prompt; and the time of a call, median of the first and of the last quarter: CPU of
this process, since other work on the machine does not count in it. Goals: at most 2 times the text.
Names of forms and numbers of calls may be given: `list 200`.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import msgspec

import hansard
from benchmarks import _world
from benchmarks._report import Findings, benchmark, sized
from benchmarks.bench_size import on_disk, stored

CALLS = (50, 200, 800)
MESSAGE_CHARACTERS = 1_500
REPLY_CHARACTERS = 60
RATIO_MAX = 2.0
NUMBERS = 40
WINDOW = 20
SYLLABLES = [
    "ka",
    "so",
    "re",
    "mi",
    "tun",
    "del",
    "ver",
    "san",
    "po",
    "li",
    "gra",
    "neth",
    "ing",
    "the",
    "to",
]
TEMPLATE_CHARACTERS = 2_000

Form = Callable[[int], Any]


def words(seed: int, characters: int) -> str:
    """Return a random text of syllables."""
    drawn = random.Random(seed)
    made = " ".join(
        "".join(drawn.choices(SYLLABLES, k=drawn.randint(1, 4))) for _ in range(characters // 2)
    )
    return made[:characters]


class Told:
    """Texts drawn once: messages, another conversation, and a text."""

    def __init__(self, calls: int) -> None:
        self.calls = calls
        roles = ("user", "assistant", "tool")
        self.messages = [
            {"role": roles[n % 3], "content": words(n, MESSAGE_CHARACTERS)} for n in range(calls)
        ]
        self.others = [
            {"role": roles[n % 3], "content": words(calls + n, MESSAGE_CHARACTERS)}
            for n in range(calls)
        ]
        self.text = "".join(f"{one['content']}\n" for one in self.messages)
        self.rows = {"rows": [{"id": n, "name": words(-n - 1, 40)} for n in range(200)]}

    def forms(self) -> dict[str, tuple[Form, Any]]:
        """Return each form: the prompt of a call, and its whole text, each part once."""
        said, other, text = self.messages, self.others, self.text
        step, head = len(text) // self.calls, words(-1_000, TEMPLATE_CHARACTERS)
        half = self.calls // 2
        return {
            "list": (lambda n: said[: n + 1], said),
            "nested": (lambda n: {"model": "m", "messages": said[: n + 1]}, said),
            "deeper": (lambda n: {"body": {"input": [{"turns": said[: n + 1]}]}}, said),
            "string": (lambda n: text[: step * (n + 1)], text),
            "template": (
                lambda n: f"{head}\n{text[: step * (n + 1)]}\n{head[::-1]}",
                [text, head, head],
            ),
            "window": (lambda n: [said[0], *said[max(1, n - WINDOW) : n + 1]], said),
            "string window": (lambda n: text[step * max(0, n - WINDOW) : step * (n + 1)], text),
            "two in turn": (
                lambda n: (said if n % 2 else other)[: n // 2 + 1],
                [said[:half], other[:half]],
            ),
            "tool results": (
                lambda n: (
                    [{"call": m, "out": self.rows} for m in range(n // 8 + 1)] + said[: n + 1]
                ),
                [said, self.rows],
            ),
        }


async def calls(place: _world.World, workspace: str, prompt: Form, count: int) -> list[float]:
    """Model calls; the CPU time of each, in ms."""
    took: list[float] = []
    async with (
        hansard.connect_async(workspace, data_dir=place.folder) as record,
        record.run("bench", agent="writer", role="worker") as session,
    ):

        @session.tool(effects="pure", kind="model")
        async def complete(prompt: Any, temperature: float = 0.5) -> str:  # noqa: ARG001 -- recorded
            return _world.text(REPLY_CHARACTERS)

        for number in range(count):
            given = prompt(number)
            begin = time.process_time()
            await complete(given)
            took.append((time.process_time() - begin) * 1_000)
    return took


async def results(place: _world.World, workspace: str, prompt: Form, count: int) -> list[float]:
    """Return the CPU time of calls of a tool that returns the whole history, in ms each."""
    took: list[float] = []
    async with (
        hansard.connect_async(workspace, data_dir=place.folder) as record,
        record.run("bench", agent="writer", role="worker") as session,
    ):

        @session.tool(effects="once")
        async def history(upto: int) -> Any:
            return prompt(upto)

        for number in range(count):
            begin = time.process_time()
            await history(number)
            took.append((time.process_time() - begin) * 1_000)
    return took


async def measure(found: Findings) -> None:
    """Every form in every size; one broker, a workspace for each."""
    wanted = {word for word in sys.argv[1:] if not word.startswith("-")}
    sizes = [int(word) for word in sorted(wanted, key=len) if word.isdigit()]
    sizes = sizes or [sized(size, max(8, size // 25)) for size in CALLS]
    forms = {word for word in wanted if not word.isdigit()}
    distinct: dict[str, int] = {}
    counts: dict[str, int] = {}
    times: dict[str, list[float]] = {}
    async with _world.world("relaxed") as place:
        for size in sizes:
            told = Told(size)
            work = {name: (calls, *form) for name, form in told.forms().items()}
            work["results"] = (results, *told.forms()["list"])
            for name, (run, prompt, whole) in work.items():
                if forms and name not in forms:
                    continue
                key = f"{name.replace(' ', '-')}-{size}"
                times[key] = await run(place, key, prompt, size)
                distinct[key] = len(msgspec.json.encode(whole)) + size * REPLY_CHARACTERS
                counts[key] = size
                print(f"{key} told", file=sys.stderr, flush=True)
        await calls(place, "numbers", lambda n: n, NUMBERS)
        counted = {key: await stored(place, key) for key in [*times, "numbers"]}
        await place.restart()
        lies = {key: on_disk(place.folder, key) for key in times}
    for key, size in counts.items():
        ratio = counted[key] / distinct[key]
        step = counted["numbers"] / NUMBERS - REPLY_CHARACTERS
        text = (counted[key] - size * step) / distinct[key]
        quarter = max(1, size // 4)
        found.results[key] = {
            "stored / text": round(ratio, 2),
            "on disk / text": round(lies[key] / distinct[key], 2),
            "stored less a step's own / text": round(text, 2),
            "bytes a call": round(counted[key] / size),
            "ms a call, first quarter": round(median(times[key][:quarter]), 2),
            "ms a call, last quarter": round(median(times[key][-quarter:]), 2),
        }
        found.goals[f"{key}: at most {RATIO_MAX:g} times its text"] = ratio <= RATIO_MAX


if __name__ == "__main__":
    benchmark(measure, __doc__)
