"""Comparison of two ways to word a search, on a task with a known answer.

    python search.py               register the experiment, try each task under both arms
    hansard compare search         which is better, and whether the data can show it

The task is real: given the first sentence of a function's documentation, without its name, find the
module of the standard library that defines it. Tasks of one package are correlated, so they are one
cluster. Run it again: recorded trials are not repeated.
"""

import argparse
import ast
import math
import re
import sysconfig
from collections import Counter
from functools import cache
from pathlib import Path

import hansard

EXPERIMENT = "search"
TASKS = 60
MODULES = (
    "argparse",
    "ast",
    "asyncio/events",
    "asyncio/queues",
    "asyncio/tasks",
    "base64",
    "bisect",
    "calendar",
    "configparser",
    "csv",
    "difflib",
    "email/header",
    "email/message",
    "email/utils",
    "fractions",
    "functools",
    "gzip",
    "heapq",
    "http/client",
    "http/cookies",
    "inspect",
    "json/decoder",
    "json/encoder",
    "logging/config",
    "logging/handlers",
    "mailbox",
    "os",
    "pathlib",
    "pickle",
    "random",
    "shutil",
    "statistics",
    "string",
    "tarfile",
    "tempfile",
    "textwrap",
    "threading",
    "tokenize",
    "urllib/parse",
    "urllib/request",
    "zipfile",
)

PLAN = hansard.experiments.plan(
    question="Does weighting words by their rarity find the module more often?",
    arms=[
        {"name": "count", "prompt": "query@1", "parameters": {"weighting": "count"}},
        {"name": "rarity", "prompt": "query@2", "parameters": {"weighting": "rarity"}},
    ],
    metrics=[
        {"name": "reward", "better": "higher", "smallest": 0.1},
        {"name": "rank", "better": "lower"},
    ],
    unit="trial",
    cluster="package",
    planned=TASKS,
    trials=1,
)


@hansard.tool(effects="pure")
def search(sentence: str, weighting: str) -> list[str]:
    """Modules, the likeliest first."""
    # Replace this line by a call of your model.
    return ranked(sentence, weighting)


def attempt(record: hansard.Record, task: str, arm: str, done: set[tuple[str, str]]) -> None:
    """Try a task under an arm, unless that is on record."""
    if (task, arm) in done:
        return
    module, sentence = questions()[task]
    package = module.partition("/")[0]
    with record.run(
        "find-module",
        experiment=EXPERIMENT,
        task=task,
        trial=0,
        arm=arm,
        agent="searcher",
        labels={"package": package},
    ) as session:
        assert session.arm is not None
        found = search(sentence, session.arm.parameters["weighting"])
        session.decide(
            "Which module is it?",
            selected=found[0],
            alternatives=[
                {"id": name, "score": 1 / place} for place, name in enumerate(found[:3], 1)
            ],
        )
    place = found.index(module) + 1
    record.experiments.score(
        session.run, {"reward": float(place == 1), "rank": float(place)}, by="answer key"
    )


def main() -> None:
    """Register, then try every task under both arms."""
    with hansard.connect() as record:
        for weighting in ("count", "rarity"):
            record.prompts.add("query", f"Words, weighted by their {weighting}: {{sentence}}")
        record.experiments.register(EXPERIMENT, PLAN)
        done = {
            (life.assigned.task, life.assigned.arm)
            for _, life in record.runs()
            if life.assigned is not None and life.judged
        }
        for task in questions():
            for arm in PLAN.arms:
                attempt(record, task, arm.name, done)
    print(f"{len(questions())} tasks under {len(PLAN.arms)} arms: hansard compare {EXPERIMENT}")


# ---------------------------------------------------------------- replacement of a model


@cache
def documents() -> dict[str, dict[str, str]]:
    """Each module's functions and the texts of their documentation."""
    library = Path(sysconfig.get_path("stdlib"))
    return {name: documented(library / f"{name}.py") for name in MODULES}


def documented(file: Path) -> dict[str, str]:
    """Return a module's documented functions by name."""
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            told = ast.get_docstring(node)
            if told and not node.name.startswith("_") and len(told.split()) >= 6:
                found.setdefault(node.name, told)
    return found


@cache
def questions() -> dict[str, tuple[str, str]]:
    """Return the tasks: a module, and the first sentence of one of its functions without its
    name.
    """
    every = [
        (f"{module}.{name}", (module, first_sentence(name, told)))
        for module, functions in documents().items()
        for name, told in sorted(functions.items())[:3]
    ]
    step = max(1, len(every) // TASKS)
    return dict(every[::step][:TASKS])


def first_sentence(name: str, told: str) -> str:
    """Without the function's own name."""
    sentence = re.split(r"(?<=[.!?])\s", told.strip(), maxsplit=1)[0]
    return re.sub(rf"\b{re.escape(name)}\b", "it", sentence)


def words(text: str) -> Counter[str]:
    """Return a text's words with their counts."""
    return Counter(re.findall(r"[a-z]{3,}", text.lower()))


@cache
def spread() -> Counter[str]:
    """Return in how many modules' documentation each word occurs."""
    return Counter(word for module in MODULES for word in about(module))


@cache
def about(module: str) -> Counter[str]:
    """Return the words of a module's documentation of its functions."""
    return words(" ".join(documents()[module].values()))


def ranked(sentence: str, weighting: str) -> list[str]:
    """Modules by how much of the sentence their documentation shares."""
    asked = words(sentence)

    def score(module: str) -> float:
        told = about(module)
        if weighting == "count":
            return float(sum(told[word] for word in asked))
        length = math.sqrt(sum(told.values()) or 1)
        rare = (math.log(len(MODULES) / spread()[word]) for word in asked if told[word])
        return sum(rare) / length

    return sorted(MODULES, key=lambda module: (-score(module), module))


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    main()
