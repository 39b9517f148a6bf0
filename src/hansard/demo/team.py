"""Three agents at work: an example of a program that uses Hansard.

A researcher finds and reads modules of the standard library, an analyzer measures them, a writer
reports. They decide by rules. Nothing here depends on kills, resuming or forks: the same code runs
live, from the record, or as a fork with another strategy.

`World` is everything outside of the record: the report, the ledger, and a list of executed tool
bodies, which the bodies write themselves. The demo compares the record with these files.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import os
import platform
import threading
import tokenize
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import msgspec

import hansard

P = ParamSpec("P")
R = TypeVar("R")

TASK = "Report on the largest modules of the standard library: where is the code hardest to follow?"
REPORT = "report.md"

MODULES = 36
BYTES_MIN = 20_000
BATCH = 6
"""Modules measured concurrently, each in a thread of its own."""
SHOWN = 8
"""Most rejected alternatives in a decision."""
THRESHOLDS = {"branches": 30, "lines": 150}
"""Strategies: the criterion for a closer look at a function, and its threshold."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BRANCHES = (ast.If, ast.For, ast.While, ast.ExceptHandler, ast.IfExp, ast.comprehension, ast.BoolOp)

_parsing = threading.Lock()
"""CPython 3.11 counts the parser's recursion for all threads together: two that build a tree at
once may fail with "SystemError: AST constructor recursion depth mismatch".
"""


class World:
    """World outside of one run: its own folder, and a ledger shared by all runs."""

    def __init__(
        self, root: Path, run: str, announce: Callable[[str], None] = lambda _: None
    ) -> None:
        self.run = run
        self.folder = root / run
        self.folder.mkdir(parents=True, exist_ok=True)
        self.report = self.folder / REPORT
        self.ledger = root / "ledger.tsv"
        self._announce = announce

    def witnessed(self, body: Callable[P, R]) -> Callable[P, R]:
        """Wrap a tool's body so that it first adds itself to the list of executed bodies."""

        @functools.wraps(body)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            name = call_name(body.__name__, (*args, *kwargs.values()))
            _append(self.folder / "bodies.log", name)
            self._announce(name)
            return body(*args, **kwargs)

        return run

    def bodies(self) -> list[str]:
        """Return the calls whose bodies began, with repetitions, in order."""
        return _lines(self.folder / "bodies.log")

    def save(self, text: str) -> str:
        """Write the report; repeating it changes nothing. Return its digest."""
        draft = self.folder / "draft"
        draft.write_text(text, encoding="utf-8")
        draft.replace(self.report)
        return digest(text)

    def post(self, line: str) -> int:
        """Append a line to the ledger, on every call; return the number of lines."""
        _append(self.ledger, line)
        return len(self.entries())

    def entries(self, run: str = "") -> list[str]:
        """Return the ledger's lines, of one run or of all."""
        return [line for line in _lines(self.ledger) if line.startswith(run)]


def call_name(tool: str, arguments: Iterable[object]) -> str:
    """Name a call outside of the record, by its tool and its first argument if that is a text:
    names of the team's calls are unique.
    """
    first = next(iter(arguments), None)
    return f"{tool} {first}" if isinstance(first, str) else tool


def digest(text: str) -> str:
    """Return the begin of the SHA-256 of a report."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _append(path: Path, line: str) -> None:
    """Append one line, on disk when this returns; a SIGKILL leaves all of it or nothing."""
    with path.open("ab", buffering=0) as file:
        file.write(f"{line}\n".encode())
        os.fsync(file.fileno())


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


WorldOf = Callable[[str], World]
"""Returns the world of a run."""


class Function(msgspec.Struct, frozen=True):
    """A function: its module, its place there, its lines and its branches."""

    module: str
    place: str
    lines: int
    branches: int

    def score(self, strategy: str) -> int:
        """Return its score under a strategy."""
        return self.lines if strategy == "lines" else self.branches


Measured = dict[str, list[Function]]
"""Functions of each module."""


def functions_of(module: str, text: str) -> list[Function]:
    """Parse a module and measure its functions."""
    with _parsing:
        tree = ast.parse(text)
    nodes = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
    return [
        Function(
            module,
            f"{module}:{node.lineno} {node.name}",
            (node.end_lineno or node.lineno) - node.lineno + 1,
            sum(isinstance(each, BRANCHES) for each in ast.walk(node)),
        )
        for node in nodes
    ]


def work(record: hansard.Record, stdlib: Path, world_of: WorldOf, how: str, run: str | None) -> str:
    """Begin or resume a run shared by three agents, each with its own stream. Return the report's
    digest.
    """
    with (
        record.run("stdlib-report", agent="researcher", role="researcher", run=run) as researcher,
        record.run(agent="analyzer", role="analyzer", run=researcher.run) as analyzer,
        record.run(agent="writer", role="writer", run=researcher.run) as writer,
    ):
        world = world_of(researcher.run)
        sources = research(researcher, stdlib, world)
        measured, hot = analyze(analyzer, sources, how, world)
        return write(writer, measured, hot, how, world)


def research(session: hansard.Session, stdlib: Path, world: World) -> dict[str, str]:
    """Choose modules by size and read them; return their texts by name."""

    @session.tool(effects="pure")
    @world.witnessed
    def find_modules(folder: str) -> dict[str, int]:
        session.resource(Path(folder).as_uri(), "list")
        return {path.stem: path.stat().st_size for path in sorted(Path(folder).glob("*.py"))}

    @session.tool(effects="pure", kind="resource")
    @world.witnessed
    def read_module(name: str, folder: str) -> str:
        path = Path(folder) / f"{name}.py"
        session.resource(path.as_uri())
        with tokenize.open(path) as file:
            return file.read()

    session.message("user", TASK, tokens=len(TASK.split()))
    sizes = find_modules(str(stdlib))
    ranked = sorted(sizes, key=lambda name: (-sizes[name], name))
    rejected = {name: f"under {BYTES_MIN:,} bytes" for name in ranked if sizes[name] < BYTES_MIN}
    fit = [n for n in ranked if n not in rejected and not n.startswith("_sysconfigdata")]
    chosen = fit[:MODULES]
    rejected |= dict.fromkeys(fit[MODULES:], f"not among the {MODULES} largest")
    shown = [*chosen, *[name for name in ranked if name in rejected][:SHOWN]]
    session.decide(
        "Which modules?",
        selected=", ".join(chosen),
        alternatives=_alternatives({name: sizes[name] for name in shown}, rejected),
        threshold=BYTES_MIN,
        reason=f"the {MODULES} largest of at least {BYTES_MIN:,} bytes hold most of the code",
    )
    sources = {name: read_module(name, str(stdlib)) for name in chosen}
    session.hand_off("analyzer", {"modules": chosen}, reason="the modules are read")
    return sources


def _alternatives(scores: Mapping[str, float], rejected: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {"id": name, "score": score, "rejected_because": rejected.get(name, "")}
        for name, score in scores.items()
    ]


def analyze(
    session: hansard.Session, sources: dict[str, str], strategy: str, world: World
) -> tuple[Measured, list[Function]]:
    """Measure every module, then select the functions that match the strategy."""

    @session.tool(effects="pure")
    @world.witnessed
    def measure(module: str, text: str) -> list[Function]:
        return functions_of(module, text)

    session.message("user", TASK, tokens=len(TASK.split()))
    names = list(sources)
    measured: Measured = {}
    for begin in range(0, len(names), BATCH):
        batch = names[begin : begin + BATCH]
        results = session.gather(*(functools.partial(measure, n, sources[n]) for n in batch))
        measured |= dict(zip(batch, results, strict=True))
        session.checkpoint("measured", modules=len(measured))
    hot = _hot_spots(session, [each for results in measured.values() for each in results], strategy)
    session.hand_off("writer", {"hot": len(hot)}, reason="all is measured")
    return measured, hot


def _hot_spots(
    session: hansard.Session, functions_found: list[Function], strategy: str
) -> list[Function]:
    """Return the functions to inspect closely, highest score first."""
    least = THRESHOLDS[strategy]
    ranked = sorted(functions_found, key=lambda each: (-each.score(strategy), each.place))
    hot = [each for each in ranked if each.score(strategy) >= least]
    shown = ranked[: len(hot) + SHOWN]
    session.decide(
        "Which functions need a closer look?",
        selected=", ".join(each.place for each in hot),
        alternatives=_alternatives(
            {each.place: each.score(strategy) for each in shown},
            {each.place: f"under {least} {strategy}" for each in shown[len(hot) :]},
        ),
        threshold=least,
        reason=f"{strategy} are what makes a function hard to follow",
    )
    return hot


def write(
    session: hansard.Session, measured: Measured, hot: list[Function], strategy: str, world: World
) -> str:
    """Write the report and post it: the two effects of the whole job."""

    @session.tool(effects="pure")
    @world.witnessed
    def write_section(heading: str, functions: int, found: list[Function]) -> str:
        places = [f"- `{each.place}` scores {each.score(strategy)}" for each in found]
        return "\n".join([f"### {heading}", "", f"{functions} functions.", *places, ""])

    # The same bytes under the same name: a repetition changes nothing. A fork only reports what it
    # would have written.
    @session.tool(effects="idempotent", shadow=lambda text, **_: digest(text))
    @world.witnessed
    def save_report(name: str, text: str) -> str:
        del name
        return world.save(text)

    # A second line would be an error, so a call in doubt must be checked by a person.
    def look(line: str) -> object:
        entries = world.entries()
        if line in entries:
            return hansard.Happened(entries.index(line) + 1)
        return hansard.DID_NOT_HAPPEN

    @session.tool(effects=hansard.reconcile(look), shadow=lambda **_: 0)
    @world.witnessed
    def post(line: str) -> int:
        return world.post(line)

    sections = [
        write_section(name, len(functions), [each for each in hot if each.module == name])
        for name, functions in measured.items()
    ]
    leading = (
        f"{hot[0].place if hot else 'none'} leads {len(hot)} of {THRESHOLDS[strategy]}+ {strategy}."
    )
    head = f"# The standard library of Python {platform.python_version()}, measured"
    saved = save_report(REPORT, "\n".join([head, "", leading, "", *sections]))
    post(f"{session.run}\t{saved}")
    return saved
