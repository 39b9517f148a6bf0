"""Three agents at work: what a program that uses Hansard looks like.

A researcher finds and reads modules of the standard library, an analyzer measures them, a writer
reports. They choose by rule. Nothing here knows of kills, resuming or forks: the same code runs
live, from the record, or as a fork with another strategy.
"""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path

import msgspec

import hansard
from hansard.demo import measures, report
from hansard.demo.measures import Anatomy, FunctionMeasure, Measures
from hansard.demo.model import Model
from hansard.demo.report import Hot
from hansard.demo.world import REPORT, Announce, Saved, World, described

WORKFLOW = "stdlib-report"
TASK = "Report on the largest modules of the standard library: where is the code hardest to follow?"

MODULES = 36
BYTES_MIN = 20_000
BATCH = 6
"""Modules that are measured side by side, each in a thread of its own."""
SHOWN = 8
"""Rejected alternatives that a decision names."""
AHEAD = 1.2
"""How many times the second's score the first must have to lead the report."""


class Strategy(msgspec.Struct, frozen=True):
    """What makes a function worth a closer look: at least `threshold` of its `measure`."""

    measure: str
    threshold: int

    def score(self, function: FunctionMeasure) -> int:
        """A function's score."""
        return function.lines if self.measure == "lines" else function.branches


BY_BRANCHES = Strategy("branches", 30)
BY_LINES = Strategy("lines", 150)
STRATEGIES = {"branches": BY_BRANCHES, "lines": BY_LINES}


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What the team is told: where the modules are, what to look for, who may write."""

    stdlib: Path
    world: Path
    strategy: Strategy = BY_BRANCHES
    model: Model | None = None


class Findings(msgspec.Struct, frozen=True):
    """What the analyzer hands to the writer."""

    measured: list[Measures]
    hot: list[Hot]
    uses: dict[str, int]


def work(
    record: hansard.Record, job: Job, *, run: str | None = None, announce: Announce | None = None
) -> Saved:
    """Begin a run, or go on with one; three agents share it, each with a stream of its own."""
    with (
        record.run(WORKFLOW, agent="researcher", role="researcher", run=run) as researcher,
        record.run(agent="analyzer", role="analyzer", run=researcher.run) as analyzer,
        record.run(agent="writer", role="writer", run=researcher.run) as writer,
    ):
        world = World(job.world, researcher.run, announce)
        sources = research(researcher, job, world)
        findings = analyze(analyzer, sources, job.strategy, world)
        return write(writer, findings, job, world)


def research(session: hansard.Session, job: Job, world: World) -> dict[str, str]:
    """Choose modules by size and read them: their texts by name."""

    @session.tool(effects="pure")
    @world.witnessed
    def find_modules(folder: str) -> dict[str, int]:
        session.resource(Path(folder).as_uri(), "list")
        return measures.modules(Path(folder))

    @session.tool(effects="pure", kind="resource")
    @world.witnessed
    def read_module(name: str, folder: str) -> str:
        session.resource((Path(folder) / f"{name}.py").as_uri())
        return measures.source(Path(folder), name)

    session.message("user", TASK, tokens=_words(TASK))
    sizes = find_modules(str(job.stdlib))
    ranked = sorted(sizes, key=lambda name: (-sizes[name], name))
    rejected = {name: _unfit(name, sizes[name]) for name in ranked}
    fit = [name for name in ranked if not rejected[name]]
    chosen, rest = fit[:MODULES], fit[MODULES:]
    rejected |= dict.fromkeys(rest, f"not among the {MODULES} largest")
    shown = [name for name in ranked if rejected[name]][:SHOWN]
    session.decide(
        "Which modules?",
        selected=", ".join(chosen),
        alternatives=[
            {"id": name, "score": sizes[name], "rejected_because": rejected[name]}
            for name in (*chosen, *shown)
        ],
        threshold=BYTES_MIN,
        because=f"the {MODULES} largest of at least {BYTES_MIN:,} bytes hold most of the code",
    )
    sources = {name: read_module(name, str(job.stdlib)) for name in chosen}
    said = f"I read {len(sources)} of {len(sizes)} modules, {chosen[0]} to {chosen[-1]} by size."
    session.message("assistant", said, tokens=_words(said))
    session.checkpoint("read", modules=len(sources), characters=sum(map(len, sources.values())))
    session.hand_off("analyzer", {"modules": chosen}, because="the modules are read")
    return sources


def _unfit(name: str, size: int) -> str:
    """Why a module is not for the report; nothing where it is."""
    if name.startswith("_sysconfigdata"):
        return "data about this build, not code"
    return "" if size >= BYTES_MIN else f"under {BYTES_MIN:,} bytes"


def analyze(
    session: hansard.Session, sources: dict[str, str], strategy: Strategy, world: World
) -> Findings:
    """Measure every module, then look closer at the functions that the strategy picks."""

    @session.tool(effects="pure")
    @world.witnessed
    def measure(module: str, text: str) -> Measures:
        return measures.measure(module, text)

    @session.tool(effects="pure")
    @world.witnessed
    def dissect(place: str, text: str) -> Anatomy:
        return measures.dissect(place, text)

    @session.tool(effects="pure")
    @world.witnessed
    def count_uses(imports: dict[str, list[str]]) -> dict[str, int]:
        counts = Counter(name for names in imports.values() for name in names)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:SHOWN])

    session.message("user", TASK, tokens=_words(TASK))
    order = _best_order(session, sources)
    measured: list[Measures] = []
    for begin in range(0, len(order), BATCH):
        batch = order[begin : begin + BATCH]
        measured += session.gather(
            *(functools.partial(measure, name, sources[name]) for name in batch)
        )
        session.checkpoint("measured", modules=len(measured))

    hot: list[Hot] = []
    for module, function in _hot_spots(session, measured, strategy):
        place = f"{module}:{function.line} {function.name}"
        anatomy = dissect(place, measures.excerpt(sources[module], function))
        hot.append(Hot(**msgspec.structs.asdict(anatomy), score=strategy.score(function)))
    uses = count_uses({figures.module: figures.imports for figures in measured})
    said = f"{len(hot)} functions have {strategy.threshold} {strategy.measure} or more."
    session.message("assistant", said, tokens=_words(said))
    session.hand_off(
        "writer", {"modules": len(measured), "hot": len(hot)}, because="all is measured"
    )
    return Findings(measured, hot, uses)


def _best_order(session: hansard.Session, sources: dict[str, str]) -> list[str]:
    """The order in which batches wait least: a batch takes as long as its largest module."""
    orders = {
        "by size": sorted(sources, key=lambda name: (-len(sources[name]), name)),
        "by name": sorted(sources),
    }
    costs = {
        name: sum(
            max(len(sources[module]) for module in order[begin : begin + BATCH])
            for begin in range(0, len(order), BATCH)
        )
        for name, order in orders.items()
    }
    best = min(costs, key=lambda name: costs[name])
    session.decide(
        "Measure in which order?",
        selected=best,
        alternatives=[
            {
                "id": name,
                "score": cost,
                "rejected_because": "" if name == best else f"{cost - costs[best]:,} more to wait",
            }
            for name, cost in costs.items()
        ],
        because="the characters of each batch's largest module, summed, are fewest",
    )
    return orders[best]


def _hot_spots(
    session: hansard.Session, measured: list[Measures], strategy: Strategy
) -> list[tuple[str, FunctionMeasure]]:
    """The functions to look at closer, the highest score first."""
    scored = [(figures.module, found) for figures in measured for found in figures.largest]
    scored.sort(key=lambda item: (-strategy.score(item[1]), item[0], item[1].line))
    hot = [item for item in scored if strategy.score(item[1]) >= strategy.threshold]
    under = f"under {strategy.threshold} {strategy.measure}"
    session.decide(
        "Which functions need a closer look?",
        selected=", ".join(f"{module}.{function.name}" for module, function in hot),
        alternatives=[
            {
                "id": f"{module}.{function.name}",
                "score": strategy.score(function),
                "rejected_because": "" if (module, function) in hot else under,
            }
            for module, function in scored[: len(hot) + SHOWN]
        ],
        threshold=strategy.threshold,
        because=f"{strategy.measure} are what makes a function hard to follow",
    )
    return hot


def write(session: hansard.Session, findings: Findings, job: Job, world: World) -> Saved:
    """Write the report and post it: the two effects of the whole job."""

    @session.tool(effects="pure")
    @world.witnessed
    def write_section(heading: str, figures: Measures, hot: list[Hot]) -> str:
        return report.section(heading, figures, hot)

    # The same bytes under the same name: doing it again changes nothing. A fork only says what it
    # would have written.
    @session.tool(effects="idempotent", shadow=described)
    @world.witnessed
    def save_report(name: str, text: str) -> Saved:
        return world.save(name, text)

    # A second line would be one too many, so whoever finds the call in doubt has to look.
    def look(line: str) -> object:
        entries = world.entries()
        if line in entries:
            return hansard.Happened(entries.index(line) + 1)
        return hansard.DID_NOT_HAPPEN

    @session.tool(effects=hansard.reconcile(look), shadow=lambda **_: 0)
    @world.witnessed
    def post(line: str) -> int:
        return world.post(line)

    leading = _lead(session, findings.hot, job.strategy)
    sections = []
    for figures in findings.measured:
        hot = [found for found in findings.hot if found.module == figures.module]
        sections.append(write_section(figures.module, figures, hot))
    session.checkpoint("sections", written=len(sections))
    text = report.assemble(
        leading, summarize(session, findings, leading, job.model, world), findings.uses, sections
    )
    saved = save_report(REPORT, text)
    post(f"{session.run}\t{saved.sha256}\t{saved.size}")
    return saved


def _lead(session: hansard.Session, hot: list[Hot], strategy: Strategy) -> str:
    """The report's leading line: the function that stands out most, or how many there are."""
    count = f"{len(hot)} functions have {strategy.threshold} {strategy.measure} or more"
    headlines = {"the count": f"{count}." if not hot else f"{count}, {_told(hot[0])} the most."}
    ahead = round(hot[0].score / hot[1].score, 3) if len(hot) > 1 else 0.0
    if hot:
        headlines["the first"] = f"{_told(hot[0])} stands out: {ahead:.2f} times the second."
    selected = "the first" if ahead >= AHEAD else "the count"
    why = f"the first has {ahead:.2f} times what the second has, the threshold is {AHEAD}"
    session.decide(
        "What leads the report?",
        selected=selected,
        alternatives=[
            {"id": name, "reason": text, "rejected_because": "" if name == selected else why}
            for name, text in headlines.items()
        ],
        threshold=AHEAD,
        because="one function leads only where it is well ahead of the second",
    )
    return headlines[selected]


def _told(found: Hot) -> str:
    return f"{found.place} ({found.score})"


def summarize(
    session: hansard.Session, findings: Findings, leading: str, model: Model | None, world: World
) -> str:
    """A summary by a model where there is one that answers, else by a rule."""

    @session.tool(effects="pure")
    @world.witnessed
    def write_summary(measured: list[Measures], hot: list[Hot]) -> str:
        return report.summary(measured, hot)

    if model is not None:

        @session.tool(effects="pure", kind="model", raises=(OSError, ValueError))
        @world.witnessed
        def ask_model(name: str, messages: list[dict[str, str]]) -> str:
            text, usage = model.ask(name, messages)
            session.usage(**usage)
            return text

        facts = "\n".join(f"{found.place}: {found.score}" for found in findings.hot)
        prompt = f"{TASK}\nSummarize in two plain sentences:\n{leading}\n{facts}"
        session.message("user", prompt, tokens=_words(prompt))
        try:
            return ask_model(model.name, session.context())
        except (OSError, ValueError, hansard.RecordedFailure) as error:
            session.decide("Who writes the summary?", selected="a rule", because=str(error))
    return write_summary(findings.measured, findings.hot)


def _words(text: str) -> int:
    """The tokens of agents that go by rule: they read words."""
    return len(text.split())
