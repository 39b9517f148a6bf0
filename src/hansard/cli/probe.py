"""Command `hansard probe`: test whether another input value changes decisions."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import msgspec

from hansard.agents.errors import NotAnswered, ShadowedEffect
from hansard.agents.runs import fork_swapped
from hansard.agents.workspace import RunLife, Workspace, read_lives
from hansard.bus.clock import OS_USER
from hansard.cli import output
from hansard.cli.common import By, Command, Commands, argument, flag, option
from hansard.cli.opening import answering, reading
from hansard.cli.output import Column, Hint, Part
from hansard.domain.choices import counted, listed
from hansard.domain.errors import BadValue, CallerError
from hansard.domain.ids import uuid8
from hansard.domain.run import RunState, RunStatus, Swap
from hansard.inspect import probes
from hansard.inspect.answer import find_run
from hansard.inspect.comparison_parts import chance, interval, number
from hansard.inspect.probes import (
    FailedFork,
    Fairness,
    ProbeQuestion,
    ProbeReport,
    Replacement,
    Row,
    SearchResult,
    Site,
    SkippedRun,
    fairness,
)

app = Commands()

JOBS_MAX = 64
"""Most programs run at a time."""

REFUSED = (NotAnswered.__name__, ShadowedEffect.__name__)
"""Errors that end a fork each time it is run."""

SHOWN_MAX = 10
"""Most pairs and reasons shown; --json has all."""

VERDICT_STYLES = {"differs": "bold red", "within the margin": "bold green"}

_PLACE = re.compile(r"\{(run|fork|task|label\.[^{}]+)\}")


class _Fork(msgspec.Struct, frozen=True):
    """Planned fork: its run, the value in it, and the command with its values."""

    site: Site
    id: str
    value: str
    swap: Swap
    command: list[str]


@app.command()
async def probe(
    runs: Annotated[
        str,
        argument("RUNS", "Ids or prefixes with commas, a pattern ('loan-*'), or 'all'; no forks."),
    ],
    command: Command = None,
    swap: Annotated[
        str,
        option(
            "The value, by its path in what a call returned, and what to put in its place; values "
            "with commas as a JSON list.",
            "PATH=VALUE,VALUE",
        ),
    ] = "",
    workflow: Annotated[str | None, option("Only runs of this workflow.", "NAME")] = None,
    decision: Annotated[
        str | None, option("Only decisions on questions with this prefix, as one.", "TEXT")
    ] = None,
    margin: Annotated[
        float | None, option("Share of changed decisions that is negligible.", min=0.0, max=1.0)
    ] = None,
    score_margin: Annotated[
        float | None, option("Mean difference of a score that is negligible.", min=0.0)
    ] = None,
    alpha: Annotated[float, option("Probability of a false alarm.", min=1e-6, max=0.5)] = 0.05,
    live: Annotated[
        bool, flag("--live", "Run model calls that the record does not answer.")
    ] = False,
    again: Annotated[
        bool, flag("--again", "Run all forks again, including finished ones.")
    ] = False,
    jobs: Annotated[int, option("Most programs run at a time.", min=1, max=JOBS_MAX)] = 1,
    by: By = OS_USER,
) -> int:
    """Test whether another input value changes runs' decisions.

    For each value, forks each run before the call that returned the value, answers that call with
    the new value, and runs the program again without effects. Compares the decisions in pairs
    (docs/fairness.md). In COMMAND, {run}, {fork}, {task} and {label.NAME} are replaced by those of
    the run. Exits with 1 if the decisions differ.
    """
    if not command:
        message = (
            "a probe runs the program again, once a run and value: give it after '--', such as "
            "hansard probe 'loan-*' --swap customer.gender=female,male -- python loan.py {run}"
        )
        raise CallerError(message)
    target = _ProbePlan(Replacement.of(swap), command, workflow, decision, live, again, jobs, by)
    request = ProbeQuestion(
        question=decision, alpha=alpha, margin=margin, score_margin=score_margin
    )
    async with reading() as workspace:
        probed = await _probed(workspace, runs, target)
    async with answering() as reader:
        made = await asyncio.to_thread(fairness, reader, probed, request)
    output.show(made, _render(made))
    return 1 if made.differs else 0


class _ProbePlan(msgspec.Struct, frozen=True):
    """Arguments of a probe: the runs to fork and the program to run."""

    swapping: Replacement
    command: list[str]
    workflow: str | None
    question: str | None
    live: bool
    again: bool
    jobs: int
    by: str


async def _probed(workspace: Workspace, runs: str, request: _ProbePlan) -> ProbeReport:
    """Fork the runs, and run the program in the forks that are not done."""
    path = request.swapping.path
    lives = await _select_runs(workspace, runs, request.workflow)
    searched = [await probes.search(workspace, life.run, path, request.question) for life in lives]
    if not any(each.site for each in searched):
        raise _none(path, searched)
    salt = workspace.clock.new_id() if request.again else ""
    forks, left_out = _plan_forks(request, searched, {life.run: life for life in lives}, salt)
    waiting: list[_Fork] = []
    for each in forks:
        site, swap = each.site, each.swap
        current = await fork_swapped(
            workspace, site.run, site.at, each.id, swap, by=request.by, label=site.label
        )
        if current is None or not _is_done(current):
            waiting.append(each)
    before = len(forks) - len(waiting)
    of = counted(len(forks) // len(request.swapping.values), "run")
    forked = counted(len(forks), "fork")
    output.hint(f"{forked} of {of}: {before} done before, {len(waiting)} to run")
    sites = {each.site.run: each.site for each in forks}
    return ProbeReport(
        probe=forks[0].swap.probe,
        path=path,
        values=list(request.swapping.values),
        runs=list(sites),
        left_out=left_out,
        forks=len(forks),
        before=before,
        ran=len(waiting),
        live=request.live,
        tools=dict(Counter(".".join((site.tool, *site.within)) for site in sites.values())),
        beside=dict(Counter(path for site in sites.values() for path in site.beside)),
        failures=await _run_all(workspace, waiting, request.jobs),
    )


# ------------------------------------------------------------ which runs, which forks


async def _select_runs(workspace: Workspace, text: str, workflow: str | None) -> list[RunLife]:
    """Return the selected runs, oldest first. Raises NotFound, Ambiguous, BadValue."""
    lives = [life for life in await read_lives(workspace.log) if life.error is None]
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
    matches = [
        life
        for run, life in roots.items()
        if run in named and workflow in (None, life.state.workflow)
    ]
    if not matches:
        of = f" of workflow {workflow!r}" if workflow is not None else ""
        raise BadValue("RUNS", f"no run{of} is like {text!r:.80}", "see 'hansard runs'")
    return matches


def _none(path: str, searched: list[SearchResult]) -> CallerError:
    """Return why no run has a value to swap."""
    known = {name for each in searched for name in each.paths}
    if not known:
        reasons = Counter(each.why for each in searched)
        why = listed(f"{why} ({counted(number, 'run')})" for why, number in reasons.items())
        return BadValue("RUNS", f"nothing can be swapped: {why}", "give runs that decided")
    if path in known:
        return BadValue("--swap", listed(sorted({each.why for each in searched})), "swap another")
    example = next((each.argument for each in searched if each.argument), "")
    beside = (
        f", though it is an argument of {example}: the program itself gives that, so that it "
        "cannot be swapped"
        if example
        else ""
    )
    return probes.no_such_path(path, known, len(searched), beside)


def _plan_forks(
    request: _ProbePlan, searched: list[SearchResult], lives: dict[str, RunLife], salt: str
) -> tuple[list[_Fork], list[SkippedRun]]:
    """Plan the forks, and list the runs that cannot be forked.

    Equal runs, values, command, files named by it and --live give equal forks.
    """
    swapping, command = request.swapping, request.command
    # A word may be too long for the name of a file.
    names = [word for word in command[1:] if os.path.isfile(word)]  # noqa: PTH113 -- Path raises
    files = [Path(name).read_bytes() for name in names]
    marks = [hashlib.sha256(content).hexdigest() for content in files]
    same = (*command, "", *marks, "", str(request.live), salt)
    probe_id = uuid8("probe", swapping.path, *swapping.values, "", *same)
    forks: list[_Fork] = []
    left_out = [SkippedRun(each.run, each.why) for each in searched if each.site is None]
    for site in [each.site for each in searched if each.site is not None]:
        mine: list[_Fork] = []
        try:
            for value in swapping.typed(site.value):
                raw = msgspec.json.encode(value).decode()
                child = uuid8("probe fork", probe_id, site.run, str(site.at), raw)
                values = _placeholders(lives[site.run], child)
                words = [_PLACE.sub(lambda found: values[found[1]], word) for word in command]  # noqa: B023 -- called at once
                swap = Swap(
                    probe=probe_id,
                    path=swapping.path,
                    agent=site.agent,
                    step=site.step,
                    tool=site.tool,
                    arguments=site.arguments,
                    within=site.within,
                    before=msgspec.Raw(msgspec.json.encode(site.value)),
                    after=msgspec.Raw(raw.encode()),
                    live=request.live,
                )
                mine.append(_Fork(site, child, raw, swap, words))
        except KeyError as lacks:
            name = str(lacks.args[0]).replace(".", " ")
            left_out.append(SkippedRun(site.run, f"it has no {name}, which the command names"))
            continue
        forks += mine
    if not forks:
        reasons = listed(sorted({each.why for each in left_out}))
        raise BadValue("RUNS", f"none can be forked: {reasons}", "give others, or another command")
    return forks, left_out


def _placeholders(life: RunLife, fork: str) -> dict[str, str]:
    """Return the values of the command's placeholders for a fork of a run, by name."""
    task = life.state.assigned.task if life.state.assigned is not None else ""
    labels = {f"label.{name}": label for name, label in life.state.labels.items()}
    return {"run": life.run, "fork": fork, **labels, **({"task": task} if task else {})}


def _is_done(life: RunState) -> bool:
    """Return whether running a fork again could not give another result.

    True if it ended, or if it ended because something is not done in a fork.
    """
    refused = life.error is not None and life.error.type in REFUSED
    return life.status is RunStatus.COMPLETED or (life.status is RunStatus.FAILED and refused)


# ------------------------------------------------------------ running


async def _run_all(workspace: Workspace, forks: list[_Fork], jobs: int) -> list[FailedFork]:
    """Run the program in each fork and return the failures. Raises CallerError."""
    from hansard.cli.record import run_in_fork

    free = asyncio.Semaphore(jobs)

    async def run(fork: _Fork) -> FailedFork | None:
        async with free:
            code, text, _ = await run_in_fork(workspace, fork.id, fork.command, prints=False)
        if not code:
            return None
        return FailedFork(fork.site.run, fork.id, fork.value, code, text)

    running = [asyncio.ensure_future(run(fork)) for fork in forks]
    try:
        outcomes = await asyncio.gather(*running)
    except BaseException:  # the caller is gone: end its programs
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        raise
    return [each for each in outcomes if each is not None]


# ------------------------------------------------------------ for people


def _render(made: Fairness) -> Iterator[Part]:
    yield from _render_forks(made.probed)
    yield from _counts(made)
    for row in made.summary:
        yield from _decision(made, row)
    yield from _pairs(made)
    yield Hint(
        "a probe shows what this program makes of this value: not of others that stand for it, and "
        "of what was recorded and held fixed only what it was then (docs/fairness.md)"
    )


def _render_forks(probed: ProbeReport) -> Iterator[Part]:
    yield output.styled(f"Probe of {probed.path}: {' against '.join(probed.values)}", "bold")
    gave = listed(f"{tool} in {counted(runs, 'run')}" for tool, runs in probed.tools.items())
    models = (
        "are answered from the record, else run" if probed.live else "are answered from the record"
    )
    yield (
        f"{counted(len(probed.runs) + len(probed.left_out), 'run')} selected, "
        f"{len(probed.runs)} forked, {len(probed.left_out)} left out. "
        f"{counted(probed.forks, 'fork')}: {probed.ran} ran now, {probed.before} were there from "
        f"before. The value is {gave}. Effects are shadowed, calls of a model {models}."
    )
    reasons = Counter(each.why for each in probed.left_out)
    for why, runs in reasons.most_common(SHOWN_MAX):
        yield f"  left out: {counted(runs, 'run')}: {why}"
    for path, runs in sorted(probed.beside.items()):
        yield f"  an equal value in {path} of {counted(runs, 'run')} was not swapped"
    ends = Counter((each.code, each.last_line) for each in probed.failures)
    for (code, each_text), forks in ends.most_common(SHOWN_MAX):
        one = next(
            each for each in probed.failures if (each.code, each.last_line) == (code, each_text)
        )
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
        detectable = number(row["detectable"])
        words += (
            f"Minimum detectable share of runs at power 0.8: {detectable}, all changed one way. "
        )
    else:
        words += f"Minimum detectable difference at power 0.8: {number(row['detectable'])}. "
    if row["verdict"] == "cannot tell":
        words += (
            "Cannot tell is not 'no difference': that verdict needs --margin or --score-margin."
        )
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
