"""`hansard probe`: whether runs decide otherwise where a value they decided from is another."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hansard.agents import run_index
from hansard.agents.errors import NotAnswered, ShadowedEffect
from hansard.agents.run_index import RunLife
from hansard.agents.runs import fork_swapped
from hansard.agents.workspace import Workspace
from hansard.bus.clock import OS_USER
from hansard.cli import output, processes
from hansard.cli.common import By, Command, Json, noun, work
from hansard.cli.opening import answering, reading
from hansard.cli.output import Column, Hint, Part
from hansard.domain.choices import counted, listed
from hansard.domain.errors import BadValue, CallerError
from hansard.domain.ids import uuid8
from hansard.domain.run import RunState, RunStatus, Swap
from hansard.inspect import probes
from hansard.inspect.comparison_parts import chance, interval, number
from hansard.inspect.find import find_run
from hansard.inspect.probes import (
    Fairness,
    LeftOut,
    Probed,
    ProbeQuestion,
    Row,
    Searched,
    Site,
    Swapping,
    Unrun,
    fairness,
)

app = noun()

JOBS_MAX = 64
"""Most programs at a time."""

REFUSED = (NotAnswered.__name__, ShadowedEffect.__name__)
"""Errors that end a fork each time that it is run."""

SHOWN_MAX = 10
"""So many pairs and reasons are shown; --json has all."""

VERDICT_STYLES = {"differs": "bold red", "within the margin": "bold green"}

_PLACE = re.compile(r"\{(run|fork|task|label\.[^{}]+)\}")


class NoProgram(CallerError):
    """A probe without the program that it runs again."""

    def __init__(self) -> None:
        super().__init__(
            "a probe runs the program again, once a run and value: give it after '--', such as "
            "hansard probe 'loan-*' --swap customer.gender=female,male -- python loan.py {run}"
        )


class _Lacks(Exception):
    """What a command names that a run does not have."""


class _Fork(msgspec.Struct, frozen=True):
    """One fork to be: of which run, in which directory of values."""

    site: Site
    life: RunLife
    id: str
    value: str
    swap: Swap
    command: tuple[str, ...]


RunsArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUNS",
        help="Ids or prefixes, with commas; a pattern ('loan-*'); or 'all'. Forks are none.",
    ),
]
SwapOption = Annotated[
    str,
    typer.Option(
        metavar="PATH=VALUE,VALUE",
        help="The value, by its path in what a call returned, and what to put in its place; "
        "values with commas as a JSON list.",
    ),
]
DecisionOption = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Only decisions on questions that begin so, taken as one."),
]


@app.command()
@work
async def probe(  # noqa: PLR0913, PLR0917 -- the command's options are the function's parameters
    runs: RunsArgument,
    command: Command = None,
    swap: SwapOption = "",
    workflow: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only runs of this workflow.")
    ] = None,
    decision: DecisionOption = None,
    margin: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=1.0, help="A share of runs decided otherwise that would not matter."
        ),
    ] = None,
    score_margin: Annotated[
        float | None,
        typer.Option(min=0.0, help="A mean difference of a score that would not matter."),
    ] = None,
    alpha: Annotated[
        float, typer.Option(min=1e-6, max=0.5, help="The chance of a false alarm.")
    ] = 0.05,
    live: Annotated[
        bool, typer.Option("--live", help="Run calls of a model that the record does not answer.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Run all forks again, also those that are done.")
    ] = False,
    jobs: Annotated[
        int, typer.Option(min=1, max=JOBS_MAX, help="How many programs run at a time.")
    ] = 1,
    by: By = OS_USER,
    json: Json = False,
) -> int:
    """Test whether another input value changes runs' decisions.

    Forks each run before the call that gave the value, once for each value, answers that call with
    it, and runs the program again: pure calls run, calls of a model are answered from the record,
    effects are shadowed. Compares the decisions in pairs. In COMMAND, {run}, {fork}, {task} and
    {label.NAME} stand for those of the run. Exits with 1 where the decisions differ.
    """
    if not command:
        raise NoProgram
    target = _ProbePlan(Swapping.of(swap), command, workflow, decision, live, again, jobs, by)
    request = ProbeQuestion(
        question=decision, alpha=alpha, margin=margin, score_margin=score_margin
    )
    async with reading() as workspace:
        probed = await _probed(workspace, runs, target)
    async with answering() as reader:
        made = await asyncio.to_thread(fairness, reader, probed, request)
    output.show(made, _people, json=json)
    return 1 if made.differs else 0


class _ProbePlan(msgspec.Struct, frozen=True):
    """What is to be forked and run."""

    swapping: Swapping
    command: list[str]
    workflow: str | None
    question: str | None
    live: bool
    again: bool
    jobs: int
    by: str


async def _probed(workspace: Workspace, runs: str, request: _ProbePlan) -> Probed:
    """Fork the runs, and run the program in the forks that are not done."""
    path = request.swapping.path
    lives = await _chosen(workspace, runs, request.workflow)
    searched = [await probes.search(workspace, life.run, path, request.question) for life in lives]
    if not any(each.site for each in searched):
        raise _none(path, searched)
    salt = workspace.clock.new_id() if request.again else ""
    forks, left_out = _planned(request, searched, {life.run: life for life in lives}, salt)
    done = 0
    waiting: list[_Fork] = []
    for fork in forks:
        current = await _begin(workspace, fork, request.by)
        if current is not None and _is_done(current):
            done += 1
        else:
            waiting.append(fork)
    of = counted(len(forks) // len(request.swapping.values), "run")
    forked = counted(len(forks), "fork")
    output.hint(f"{forked} of {of}: {done} done before, {len(waiting)} to run")
    failures = await _run_all(waiting, request.jobs)
    return _probe_summary(request, forks, searched, left_out, done, failures)


# ------------------------------------------------------------ which runs, which forks


async def _chosen(workspace: Workspace, text: str, workflow: str | None) -> list[RunLife]:
    """The runs that are meant, the oldest first. Raises NotFound, Ambiguous, BadValue."""
    lives = [life for life in await run_index.read(workspace.log) if life.error is None]
    roots = {life.run: life for life in reversed(lives) if life.state.forked is None}
    targets: list[str] = []
    for part in (each.strip() for each in text.split(",")):
        if part == "all" or set(part) & set("*?["):
            pattern = "*" if part == "all" else part
            targets += [run for run in roots if fnmatchcase(run, pattern)]
        else:
            one = await find_run(workspace, part)
            if one not in roots:
                raise BadValue("RUNS", f"{one} is a fork", "give the run that it is a fork of")
            targets.append(one)
    named = set(targets)
    found = [
        life
        for run, life in roots.items()
        if run in named and workflow in (None, life.state.workflow)
    ]
    if not found:
        of = f" of workflow {workflow!r}" if workflow is not None else ""
        raise BadValue("RUNS", f"no run{of} is like {text!r:.80}", "see 'hansard runs'")
    return found


def _none(path: str, searched: list[Searched]) -> CallerError:
    """Why there is nothing to swap in any run."""
    known = {name for each in searched for name in each.paths}
    if not known:
        reasons = Counter(each.why for each in searched)
        why = listed(f"{why} ({counted(number, 'run')})" for why, number in reasons.items())
        return BadValue("RUNS", f"nothing can be swapped: {why}", "give runs that decided")
    if path in known:
        return BadValue("--swap", listed(sorted({each.why for each in searched})), "swap another")
    given = next((each.argument for each in searched if each.argument), "")
    beside = (
        f", though it is an argument of {given}: the program itself gives that, so that it cannot "
        "be swapped"
        if given
        else ""
    )
    return probes.NoSuchPath(path, known, len(searched), beside)


def _planned(
    request: _ProbePlan, searched: list[Searched], lives: dict[str, RunLife], salt: str
) -> tuple[list[_Fork], list[LeftOut]]:
    """The forks, and the runs of which there are none. The same runs, values, command, files that
    it names and --live give the same forks.
    """
    swapping, command, live = request.swapping, request.command, request.live
    marks = [hashlib.sha256(Path(word).read_bytes()).hexdigest() for word in _files(command)]
    same = (*command, "", *marks, "", str(live), salt)
    probe_id = uuid8("probe", swapping.path, *swapping.values, "", *same)
    forks: list[_Fork] = []
    left_out: list[LeftOut] = []
    for each in searched:
        if each.site is None:
            left_out.append(LeftOut(each.run, each.why))
            continue
        life, site = lives[each.run], each.site
        mine: list[_Fork] = []
        try:
            for value in swapping.typed(site.value):
                raw = msgspec.json.encode(value)
                child = uuid8("probe fork", probe_id, each.run, str(site.at), raw.decode())
                items = tuple(_filled(word, life, child) for word in command)
                swap = _swap(swapping, site, probe_id, raw, live=live)
                mine.append(_Fork(site, life, child, raw.decode(), swap, items))
        except _Lacks as lacks:
            left_out.append(LeftOut(each.run, str(lacks)))
            continue
        forks += mine
    if not forks:
        reasons = listed(sorted({each.why for each in left_out}))
        raise BadValue("RUNS", f"none can be forked: {reasons}", "give others, or another command")
    return forks, left_out


def _swap(swapping: Swapping, site: Site, probe_id: str, raw: bytes, *, live: bool) -> Swap:
    return Swap(
        probe=probe_id,
        path=swapping.path,
        agent=site.agent,
        step=site.step,
        tool=site.tool,
        arguments=site.arguments,
        within=site.within,
        before=msgspec.Raw(msgspec.json.encode(site.value)),
        after=msgspec.Raw(raw),
        live=live,
    )


def _files(command: list[str]) -> list[str]:
    return [word for word in command[1:] if Path(word).is_file()]


def _filled(word: str, life: RunLife, fork: str) -> str:
    """A word of the command with what it names of a run. Raises _Lacks."""

    def named(found: re.Match[str]) -> str:
        name = found[1]
        if name == "run":
            return life.run
        if name == "fork":
            return fork
        if name == "task":
            task = life.state.assigned.task if life.state.assigned is not None else ""
            if not task:
                raise _Lacks("it has no task, which the command names")
            return task
        label = life.state.labels.get(name.removeprefix("label."))
        if label is None:
            raise _Lacks(f"it has no {name.replace('.', ' ')}, which the command names")
        return label

    return _PLACE.sub(named, word)


async def _begin(workspace: Workspace, fork: _Fork, by: str) -> RunState | None:
    return await fork_swapped(
        workspace, fork.site.run, fork.site.at, fork.id, fork.swap, by=by, label=fork.site.label
    )


def _is_done(life: RunState) -> bool:
    """Whether running a fork again would come to nothing else: it ended, or what ended it was that
    something is not done in it.
    """
    refused = life.error is not None and life.error.type in REFUSED
    return life.status is RunStatus.COMPLETED or (life.status is RunStatus.FAILED and refused)


# ------------------------------------------------------------ running


async def _run_all(forks: list[_Fork], jobs: int) -> list[Unrun]:
    """Run the program in each fork; those whose program did not end well. Raises NotStartable."""
    free = asyncio.Semaphore(jobs)

    async def run(fork: _Fork) -> Unrun | None:
        async with free:
            code, text = await processes.run_apart(fork.id, list(fork.command))
        if not code:
            return None
        return Unrun(fork.site.run, fork.id, fork.value, code, text)

    running = [asyncio.ensure_future(run(fork)) for fork in forks]
    try:
        found = await asyncio.gather(*running)
    except BaseException:  # whoever waits is gone: so are the programs
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        raise
    return [each for each in found if each is not None]


def _probe_summary(
    request: _ProbePlan,
    forks: list[_Fork],
    searched: list[Searched],
    left_out: list[LeftOut],
    before: int,
    failures: list[Unrun],
) -> Probed:
    runs = list(dict.fromkeys(fork.site.run for fork in forks))
    sites = [each.site for each in searched if each.site is not None and each.run in set(runs)]
    return Probed(
        probe=forks[0].swap.probe,
        path=request.swapping.path,
        values=list(request.swapping.values),
        runs=runs,
        left_out=left_out,
        forks=len(forks),
        before=before,
        ran=len(forks) - before,
        live=request.live,
        tools=dict(Counter(".".join((site.tool, *site.within)) for site in sites)),
        beside=dict(Counter(path for site in sites for path in site.beside)),
        failures=failures,
    )


# ------------------------------------------------------------ for people


def _people(made: Fairness) -> Iterator[Part]:
    yield from _done(made.probed)
    yield from _counts(made)
    for row in made.summary:
        yield from _decision(made, row)
    yield from _pairs(made)
    yield Hint(
        "a probe shows what this program makes of this value: not of others that stand for it, and "
        "of what was recorded and held fixed only what it was then (docs/fairness.md)"
    )


def _done(probed: Probed) -> Iterator[Part]:
    yield output.styled(f"Probe of {probed.path}: {' against '.join(probed.values)}", "bold")
    gave = listed(f"{tool} in {counted(runs, 'run')}" for tool, runs in probed.tools.items())
    models = (
        "are answered from the record, else run" if probed.live else "are answered from the record"
    )
    yield (
        f"{counted(len(probed.runs) + len(probed.left_out), 'run')} asked for, "
        f"{len(probed.runs)} forked, {len(probed.left_out)} left out. "
        f"{counted(probed.forks, 'fork')}: {probed.ran} ran now, {probed.before} were there from "
        f"before. The value is {gave}. Effects are shadowed, calls of a model {models}."
    )
    reasons = Counter(each.why for each in probed.left_out)
    for why, runs in reasons.most_common(SHOWN_MAX):
        yield f"  left out: {counted(runs, 'run')}: {why}"
    for path, runs in sorted(probed.beside.items()):
        yield f"  an equal value stands in {path} of {counted(runs, 'run')}, and was not swapped"
    ends = Counter((each.code, each.said) for each in probed.failures)
    for (code, each_text), forks in ends.most_common(SHOWN_MAX):
        one = next(each for each in probed.failures if (each.code, each.said) == (code, each_text))
        yield Hint(
            f"{counted(forks, 'fork')} ended with exit code {code}, such as {one.fork}: {each_text}"
        )
    if len(ends) > SHOWN_MAX:
        yield Hint(f"and {len(ends) - SHOWN_MAX} other ends; --json has all")


def _counts(made: Fairness) -> Iterator[Part]:
    noise = made.noise
    if not noise["controls"]:
        yield (
            "No fork has the value that stood on record: it is not known whether the program "
            "decides again as it did."
        )
    else:
        line = (
            f"With the value on record {noise['compared'] - noise['differ']} of "
            f"{counted(noise['compared'], 'fork')} decided as their runs had"
        )
        if noise["differ"]:
            line += (
                f": the program is not deterministic ({noise['differ']} differ, a share of "
                f"{interval(noise['low'], noise['high'])}), and what differs below may be that"
            )
        lost = noise["controls"] - noise["compared"]
        yield line + (f"; {lost} did not decide." if lost else ".")
    answered = sum(row["answered"] for row in made.summary)
    yield f"Pairs: {answered} answered, {sum(made.unanswered.values())} not answered."
    for why, pairs in made.unanswered.most_common(SHOWN_MAX):
        yield f"  not answered: {counted(pairs, 'pair')}: {why}"


def _decision(made: Fairness, row: Row) -> Iterator[Part]:
    mine = [
        each
        for each in made.comparisons
        if (each["agent"], each["question"], each["value"])
        == (row["agent"], row["question"], row["value"])
    ]
    if not mine:
        return
    yield ""
    yield output.styled(f"{row['question']} ({row['agent']})", "bold")
    yield (
        f"{row['changed']} of {counted(row['answered'], 'pair')} decided otherwise with "
        f"{row['value']} than with {row['base']} (interval of that share "
        f"{interval(row['low'], row['high'])})."
    )
    yield output.listing(_columns(row), mine)
    for each in mine:
        if not each["slice"]:
            yield from _verdict(each)


def _columns(row: Row) -> tuple[Column, ...]:
    return (
        Column("recorded", lambda each: each["slice"] or "(all)", whole=True),
        Column("what", lambda each: f"{each['measure']} {each['option']}", whole=True),
        Column("pairs", lambda each: str(each["pairs"]), right=True),
        Column(row["base"], lambda each: number(each["base_mean"]), right=True),
        Column(row["value"], lambda each: number(each["mean"]), right=True),
        Column("difference", lambda each: number(each["difference"], signed=True), right=True),
        Column("interval", lambda each: interval(each["low"], each["high"], signed=True)),
        Column("up", lambda each: str(each["above"]), right=True),
        Column("down", lambda each: str(each["below"]), right=True),
        Column("p", lambda each: chance(each["p"]), right=True),
        Column("Holm", lambda each: chance(each["holm_p"]), right=True),
        Column("verdict", lambda each: each["verdict"], whole=True),
    )


def _verdict(row: Row) -> Iterator[Part]:
    what = f"{row['measure']} {row['option']}, {row['value']} against {row['base']}"
    text = f"{what}: {row['verdict']}"
    yield output.styled(text, VERDICT_STYLES.get(row["verdict"], "bold yellow"))
    words = f"{row['test'][:1].upper()}{row['test'][1:]} of {counted(row['pairs'], 'pair')}"
    if row["unscored"]:
        words += f" ({row['unscored']} without a score left out)"
    if row["margin"] is not None:
        words += f"; the margin is {number(row['margin'])}"
    words += ". "
    if row["detectable"] is None:
        words += "So few pairs cannot show a difference, whatever they decide. "
    elif row["test"] != "paired t":
        found = number(row["detectable"])
        words += f"Minimum detectable share of runs at power 0.8: {found}, all changed one way. "
    else:
        words += f"Minimum detectable difference at power 0.8: {number(row['detectable'])}. "
    if row["verdict"] == "cannot tell":
        words += "Cannot tell is not 'no difference': that is said only of a margin that you name."
    yield words.rstrip()


def _pairs(made: Fairness) -> Iterator[Part]:
    changed = made.changed
    if not changed:
        return
    yield ""
    columns = (
        Column("run", lambda row: row["parent"], whole=True),
        Column("recorded", lambda row: row["cohort"]),
        Column("with", lambda row: row["base"]),
        Column("decided", lambda row: ", ".join(row["base_selected"])),
        Column("with", lambda row: row["value"]),
        Column("decided", lambda row: ", ".join(row["selected"])),
        Column("fork", lambda row: row["run"], whole=True),
    )
    yield output.listing(columns, changed[:SHOWN_MAX])
    more = len(changed) - SHOWN_MAX
    if more > 0:
        yield f"and {more} more that decided otherwise; --json has all"
    one = changed[0]
    yield Hint(f"look at one: hansard run diff {one['base_run']} {one['run']}")
