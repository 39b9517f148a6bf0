"""Commands `hansard actions`, `experience`, `demonstrate`, `reuse` and `savings`.

Record, save, review and replay actions without a model; answers from the record. Long because the
commands of both nouns share the replay of actions in a browser.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from hansard.agents.artifacts import caches, versions
from hansard.agents.artifacts import experiences as kept
from hansard.agents.artifacts.experiences import is_name, read_folder, write_folder
from hansard.bus.clock import OS_USER
from hansard.cli import output
from hansard.cli.common import (
    By,
    Commands,
    OutputFile,
    Reason,
    Run,
    argument,
    flag,
    option,
    pairs,
    within,
)
from hansard.cli.derived import derive, recording
from hansard.cli.opening import answering, beginning, reading, settings, variable
from hansard.cli.output import Bytes, Column, Part
from hansard.client.record import AsyncRecord
from hansard.domain.actions import ActionCache, compared, encode, with_slots
from hansard.domain.choices import NOTHING, counted
from hansard.domain.errors import BadValue
from hansard.domain.experience import checks as checking
from hansard.domain.experience.experience import DIGEST_CHARACTERS_MIN, Experience, content_of, plan
from hansard.ext.browser.demonstrate import ARGUMENTS, DemonstratedEnd, demonstrated
from hansard.ext.browser.replay import Experienced, Replayed, opened_cache, saved
from hansard.ext.browser.replays import AsyncBrowser
from hansard.ext.browser.scripts import ScriptFormat
from hansard.ext.browser.scripts import script as written
from hansard.inspect import experience as reads
from hansard.inspect import savings as saved_calls
from hansard.inspect.actions import action_cache
from hansard.inspect.answer import find_run, find_run_in
from hansard.inspect.experience import ExperienceDiff, ExperienceHits, ShownExperience
from hansard.inspect.savings import ReusedAnswers, SavingsAnswer, added
from hansard.inspect.trace import Payloads
from hansard.operations.actions import Actions, Experiences
from hansard.operations.record import RecordOperations
from hansard.projections.snapshots import Reader

app = Commands()
actions = Commands()
experience = Commands()
reuse = Commands()

Cache = Annotated[
    str,
    argument(
        "NAME|FILE",
        "NAME or NAME@VERSION of a cache in the record; a .json file or a path with a slash.",
    ),
]
Param = Annotated[list[str] | None, option("A slot's value. Repeatable.", "NAME=VALUE")]
Once = Annotated[
    str, option("Non-repeatable actions that may run again: 'allow', or their numbers ('2,5').")
]

CacheName = Annotated[str, argument("NAME", "The cache's name in the record.")]

REPLAYED = output.columns(
    "entry=step_index#> done found_by seconds> message!",
    done=lambda row: "yes" if row.success else "no",
    found_by=lambda row: row.strategy + (", healed" if row.healed else ""),
    seconds=lambda row: f"{row.seconds:.2f}",
)


@actions.command("show")
async def show_actions(
    which: Run,
    param: Param = None,
    other: Annotated[
        str | None, option("Make a slot of each argument that differs in this run.", "RUN")
    ] = None,
    agent: Annotated[str | None, option("Only actions of this agent.")] = None,
    file: OutputFile = None,
) -> None:
    """Print the action cache of a run.

    It holds the run's successful actions on pages and tool calls.
    """
    params = pairs(param, "--param")
    async with reading() as workspace:
        fetch = Payloads(workspace)
        run = await find_run(workspace, which)
        cache = await action_cache(workspace, run, fetch, agent=agent)
        if other is not None:
            beside = await find_run(workspace, other)
            cache = compared(cache, await action_cache(workspace, beside, fetch, agent=agent))
        output.hint_erased(fetch)
    cache = with_slots(cache, params) if params else cache
    _give(cache, file)
    if not cache.actions:
        output.hint(f"run {run}: {cache.final_state.error}")


@actions.command("run")
async def run_actions(
    which: Cache,
    param: Param = None,
    secret: Annotated[
        list[str] | None, option("Environment variable of a secret.", "NAME=VARIABLE")
    ] = None,
    once: Once = "refuse",
    max_xpath_retries: Annotated[
        int, option("Most attempts on a changing page.", min=1, max=100)
    ] = 3,
    workflow: Annotated[str, option("Workflow of the run.")] = "actions",
    debug: Annotated[bool, flag("--attempts", "List every attempt.")] = False,
) -> int:
    """Replay actions in Chromium as a new run.

    No model is called.
    """
    allowed = allowed_once(once)
    name, version = _reference(which)
    secrets = {name: variable("--secret", each) for name, each in pairs(secret, "--secret").items()}
    async with replaying(workflow, secrets) as (record, browser):
        report = await browser.run_actions(
            which if _is_file(which) else await record.actions.get(name, version),
            params=pairs(param, "--param"),
            max_xpath_retries=max_xpath_retries,
            once=allowed,
            debug=debug,
        )
    output.show(report, _render_actions(report))
    return 0 if report.success else 1


@actions.command("script", plain=True)
async def write_script(
    which: Cache,
    form: Annotated[
        ScriptFormat, option("Kind of program to write.", None, "--format")
    ] = ScriptFormat.PLAYWRIGHT_PY,
    module: Annotated[
        str, option("Module that the program imports its tools from.", "MODULE")
    ] = "",
    file: OutputFile = None,
) -> None:
    """Write a program that does the actions without Hansard."""
    cache, _ = await _read(which)
    output.deliver(written(cache, form, module), file)


@actions.command("import")
async def import_cache(
    file: Annotated[Path, argument("FILE", "A file of actions.")],
    name: CacheName,
    reason: Reason = "",
    by: By = OS_USER,
) -> None:
    """Save a file of actions in the record as a new version."""
    if _is_file(name):
        raise BadValue(
            "NAME", f"{name!r:.80} looks like a file path", "leave out slashes and .json"
        )
    cache, _ = opened_cache(file)
    if not cache.actions:
        raise BadValue(str(file), "it has no action", "export a run with actions of a browser")
    async with beginning() as workspace:
        label = await versions.label_of_runs(workspace, [cache.run])
        done = await caches.save(workspace, name, cache, reason=reason, by=by, label=label)
    output.show(done, f"{name} is at version {done.version}")


@actions.command("export")
async def export_cache(
    which: Annotated[str, argument("NAME", "NAME or NAME@VERSION of a cache in the record.")],
    file: OutputFile = None,
) -> None:
    """Print a saved action cache as a file."""
    cache = msgspec.structs.replace((await _read(which))[0], name="")
    _give(cache, file)


derive(
    actions,
    Actions,
    "list log revert review",
    views={
        "revert": "{name} is at version {result}, equal to version {to}",
        "review": "{name} is reviewed up to version {result}",
    },
)


def _give(cache: ActionCache, file: Path | None) -> None:
    """Write a cache to a file, else print it."""
    if file is not None:
        saved(cache, file)
    else:
        output.show(cache, [Bytes(encode(cache))])


def _is_file(which: str) -> bool:
    return which.endswith(".json") or "/" in which or os.sep in which


async def _read(which: str) -> tuple[ActionCache, Path | None]:
    """Read a cache from the record or from a file. Raises NotFound, BadValue, Refused."""
    if _is_file(which):
        return opened_cache(which)
    async with reading() as workspace:
        return await caches.get(workspace, *_reference(which)), None


def _reference(which: str) -> tuple[str, int | None]:
    name, _, version = which.rpartition("@")
    return (name, int(version)) if name and version.isdecimal() else (which, None)


def allowed_once(text: str) -> Any:
    """Parse the value of `--once`. Raises BadValue."""
    if text in ("refuse", "allow"):
        return text
    try:
        return frozenset(int(each) for each in text.split(","))
    except ValueError:
        raise BadValue("--once", f"{text!r:.80}", "give 'allow', or numbers: '2,5'") from None


@contextlib.asynccontextmanager
async def replaying(
    workflow: str, secrets: Mapping[str, str] = NOTHING
) -> AsyncIterator[tuple[AsyncRecord, AsyncBrowser]]:
    """Open the record and a run whose session has a page of Chromium."""
    import hansard
    from hansard.ext.browser import chromium

    config = settings()
    async with (
        hansard.connect_async(config.workspace, data_dir=config.data_dir) as record,
        chromium.page() as page,
        record.run(workflow, agent="replay", role="agent", secrets=secrets) as session,
    ):
        yield record, AsyncBrowser(session, page)


def _render_actions(replay: Replayed) -> Iterator[Part]:
    yield output.listing(REPLAYED, replay.actions)
    yield "done" if replay.success else f"not done: {replay.error}"


NO_GUARD = "nothing: it may guide, not act. Proposed checks:"
WHICH = "Name of a saved experience, or a folder: a path with a slash."
VERSION = "NAME, NAME@VERSION or NAME@DIGEST of a saved experience, or a folder's path."

NameOrFolder = Annotated[str, argument("NAME|DIR", WHICH)]
OutputFolder = Annotated[Path | None, option("Write its folder, too.", "DIR", "--output", "-o")]

CHANGES = output.columns(
    "version> change digest by=author at! why=because!",
    digest=lambda row: (row.digest or "")[:DIGEST_CHARACTERS_MIN],
)

NODES = output.columns(
    "node level#> found_by=strategy seconds>", seconds=lambda row: f"{row.seconds:.2f}"
)


@experience.command()
async def distil(
    name: Annotated[str, argument("NAME", "Name of the experience.")],
    runs: Annotated[list[str], argument("RUN...", "Runs of one kind of task.")],
    task: Annotated[
        list[str] | None, option("Task of a run [its first user message]. Repeatable.", "RUN=TEXT")
    ] = None,
    param: Annotated[
        list[str] | None,
        option(
            "A value of a run, which is a slot of this name; give each run the same slots. Needed"
            " where two values are adjacent in the task.",
            "RUN/SLOT=VALUE",
        ),
    ] = None,
    about: Annotated[str, option("Purpose of the experience.", None, "--description")] = "",
    reason: Reason = "",
    by: By = OS_USER,
    folder: OutputFolder = None,
) -> None:
    """Learn the next version of an experience from runs.

    All runs must do the same kind of task. No model is called.
    """
    texts = pairs(task, "--task")
    values: dict[str, dict[str, str]] = {}
    for each, value in pairs(param, "--param").items():
        run, slash, slot = each.partition("/")
        if not slash:
            raise BadValue("--param", f"{each!r:.80} names no run", "give RUN/SLOT=VALUE")
        values.setdefault(run, {})[slot] = value
    async with recording(begins=True) as record:
        found = {e: await find_run(record.workspace, e) for e in (*runs, *texts, *values)}
        learned = await record.experiences.learn(
            name,
            [found[each] for each in runs],
            tasks={found[each]: text for each, text in texts.items()},
            params={found[each]: slots for each, slots in values.items()},
            description=about,
        )
        version = await record.experiences.keep(learned, reason=reason, by=by)
        made = await record.experiences.get(name, version)
    if folder is not None:
        write_folder(made, folder)
    output.show(made, _render_experience(made))
    output.hint(
        f"{name} is at version {version}: `hansard experience confirm {name}` once its checks are "
        "right"
    )


@experience.command("show")
async def show_experience(
    which: NameOrFolder,
    point: Annotated[str, option("Its number, or its digest [newest].", "VERSION", "--at")] = "",
    folder: OutputFolder = None,
) -> None:
    """Print an experience: task, plan, checks and record."""
    if not is_name(which):
        if point:
            raise BadValue("--at", f"{which} is a folder, which has no versions", "leave it away")
        of_folder = read_folder(Path(which))
        output.show(of_folder, _render_experience(of_folder))
        return
    async with reading() as workspace:
        version = await kept.at(workspace, which, point)
    if folder is not None:
        write_folder(version.experience, folder)
    async with answering() as reader:
        changes = reads.log(reader, which)
    report = reads.shown(version, changes)
    output.show(report, _render_shown(report))


@experience.command("diff")
async def diff_experiences(
    before: Annotated[str, argument("A", VERSION)], after: Annotated[str, argument("B", VERSION)]
) -> None:
    """Print how the files of two versions differ."""
    items = []
    for each in (before, after):
        if is_name(each):
            name, _, point = each.partition("@")
            async with reading() as workspace:
                items.append((await kept.at(workspace, name, point)).content)
        else:
            items.append(content_of(read_folder(Path(each))))
    difference = reads.difference(items[0], items[1], (before, after))
    output.show(difference, _render_diff(difference))


@experience.command("run")
async def run_experience(
    which: NameOrFolder,
    task: Annotated[str, option("Task in the learned wording, with values.")] = "",
    param: Param = None,
    address: Annotated[str, option("The page to begin on: an address, or a file.")] = "",
    once: Once = "refuse",
    workflow: Annotated[str, option("Workflow of the new run.")] = "experience",
) -> int:
    """Replay an experience in Chromium as a new run.

    No model is called.
    """
    allowed = allowed_once(once)
    experience = which if is_name(which) else read_folder(Path(which))
    async with replaying(workflow) as (_, browser):
        if address:
            await browser.goto(_address(address))
        report = await browser.run_experience(
            experience, pairs(param, "--param"), task=task, once=allowed
        )
    output.show(report, _render_replay(report))
    return 0 if report.success else 1


def _address(text: str) -> str:
    """Return an address unchanged, and a file's path as a file address."""
    path = Path(text)
    return path.resolve().as_uri() if path.is_file() else text


def _render_experience(experience: Experience) -> Iterator[Part]:

    yield f"{experience.name}, version {experience.version}: {experience.description}"
    yield f"wording   {experience.wording.template}"
    of = counted(len(experience.sources), "run")
    out = f", {experience.left_out} of them left out" if experience.left_out else ""
    yield f"learned   from {of}{out}; {counted(len(experience.failed), 'run')} failed"
    for line in plan(experience):
        yield f"  {line}"
    guards = f"{counted(len(experience.checks), 'check')}:" if experience.checks else NO_GUARD
    yield f"guarded by {guards}"
    for each in experience.checks or checking.proposed(experience.procedure):
        yield f"  {checking.kind(each):14} {each.name}"
    if experience.left_out_checks:
        yield f"not in the folder, being Python: {', '.join(experience.left_out_checks)}"
    for what, sentences in (("plan", experience.plan), ("lesson", experience.lessons)):
        for sentence in sentences:
            yield f"{what}    {sentence.says} ({', '.join(sentence.rests_on)})"
    if experience.dropped:
        yield f"dropped   {counted(experience.dropped, 'sentence')} that rested on no step"


def _render_shown(report: ShownExperience) -> Iterator[Part]:
    yield from _render_experience(report.experience)
    label = f", labelled {report.label}" if report.label else ""
    yield f"it is {report.standing.value}{label}: {report.digest}"
    yield output.listing(CHANGES, report.changes)


def _render_hits(hits: ExperienceHits) -> Iterator[Part]:
    for each in hits.hits:
        yield f"{each.experience}, version {each.version} ({each.standing.value}): {each.task}"
        yield f"  {'; '.join(each.why)}"
        if each.duplicates:
            yield f"  the same as {', '.join(each.duplicates)}"
        for name, value in (each.params or {}).items():
            yield f"  {name} = {value}"
    if not hits.hits:
        yield "no experience fits"
    elif hits.more:
        yield output.Hint("there are more: --limit")


def _render_diff(difference: ExperienceDiff) -> Iterator[Part]:
    for each in difference.files:
        yield each.diff.rstrip("\n")
    if not difference.files:
        yield "they are equal"


derive(
    experience,
    Experiences,
    "list log find confirm retire",
    views={
        "find": _render_hits,
        "confirm": "{name} is at version {result}",
        "retire": "{name} is retired",
    },
)


def _render_replay(report: Experienced) -> Iterator[Part]:
    yield output.listing(NODES, report.actions)
    yield (
        f"completed as demonstrated, at level {report.level}, in {report.seconds:.2f} s; no model "
        "was called, and no check proves that the result is the intended one"
        if report.success
        else f"not done: {report.error}"
    )
    for line in report.guide:
        yield f"  {line}"


Tool = Annotated[str | None, option("Only of this tool.", "NAME")]
OfRun = Annotated[str | None, option("Only of this run; 'last' works.", "RUN")]

OFFERED = output.columns(
    "key! tool workflow of offered=offered_at! ran=times#> stale=stale_since!",
    workflow=lambda row: row.workflow or "any",
    of=lambda row: f"{row.run} {row.agent}#{row.step}",
)
REUSED = (
    Column("call", lambda row: f"{row.run} {row.agent}#{row.step}"),
    Column("tool"),
    Column("answer of", lambda row: f"{row.from_run} {row.from_agent}#{row.from_step}"),
    Column("age", lambda row: _amount_text(row.age_s, "{:,.1f} s"), right=True),
    Column("seconds", lambda row: _amount_text(row.seconds_saved, "{:,.2f}"), right=True),
    Column("USD", lambda row: _amount_text(row.cost_saved, "{:,.4f}"), right=True),
)


def _run_in(reader: Reader, run: str | None) -> str | None:
    return find_run_in(reader, run) if run is not None else None


@reuse.command("list")
async def list_answers(tool: Tool = None, run: OfRun = None) -> None:
    """List answers that later runs may reuse, newest of each key."""
    async with answering() as reader:
        offers = saved_calls.offered(reader, tool, _run_in(reader, run))
    output.show(offers, output.counted_listing(OFFERED, offers.answers, "answer", offers.position))


@reuse.command()
async def used(tool: Tool = None, run: OfRun = None) -> None:
    """List calls answered from earlier runs, and what that saved."""
    async with answering() as reader:
        of = _run_in(reader, run)
        reused = saved_calls.reused(reader, tool, of)
    output.show(reused, _render_reused(reused, within(tool=tool, run=of)))


derive(
    reuse,
    RecordOperations,
    "invalidate",
    views={"invalidate": "the answers of {tool}{run}{key} until now are stale"},
)


def _amount_text(amount: float | None, form: str) -> str:
    return "unknown" if amount is None else form.format(amount)


def _render_reused(reused: ReusedAnswers, question: str) -> Iterator[Part]:
    if reused.reused:
        yield output.listing(REUSED, reused.reused)
    yield f"{reused.line(question)}, as of position {reused.position}"


SAVED = output.columns(
    "of! sessions> unknown=sessions_unknown#> calls> effects> tokens_in> tokens_out> USD> seconds>",
    calls=lambda row: _amount_text(row.calls, "{:,}"),
    effects=lambda row: _amount_text(row.effects, "{:,}"),
    tokens_in=lambda row: _amount_text(row.input_tokens, "{:,.0f}"),
    tokens_out=lambda row: _amount_text(row.output_tokens, "{:,.0f}"),
    USD=lambda row: _amount_text(row.cost, "{:,.4f}"),
    seconds=lambda row: _amount_text(row.seconds, "{:,.2f}"),
)


def _savings(report: SavingsAnswer) -> Iterator[Part]:
    if report.rows:
        yield output.listing(SAVED, report.rows)
        yield f"in all: {added(report.rows).line()}"
    else:
        yield "no such session went on with a run: nothing was answered from the record"
    yield f"as of position {report.position}"


derive(app, RecordOperations, "savings", views={"savings": _savings})


@app.command()
async def demonstrate(
    url: Annotated[str, argument("URL", "First page: an address or a file.")],
    task: Annotated[str, option("Description of the task, recorded as the run's task.")] = "",
    workflow: Annotated[str, option("Workflow of the new run.")] = "demonstration",
    agent: Annotated[str, option("Name and role of the acting person.")] = "person",
) -> None:
    """Record what you do in a browser window as a new run.

    Recording ends when you close the window or press Ctrl-C. Each click, text, key and choice is a
    step, so that 'hansard actions' and 'hansard experience' accept the run. Of a password field, a
    secret with its name is recorded.
    """
    import hansard
    from hansard.ext.browser import chromium

    ended = asyncio.Event()
    config = settings()
    address = _address(url)
    async with (
        hansard.connect_async(config.workspace, data_dir=config.data_dir) as record,
        chromium.page(window=True, arguments=ARGUMENTS) as page,
        record.run(workflow, agent=agent, role=agent, secrets=lambda _: "-") as session,
    ):
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, ended.set)
        if task:
            await session.message("user", task)
        output.hint(f"run {session.run}: close the window, or press Ctrl-C, to finish")
        report = await demonstrated(session, page, address, ended)
    output.show(report, _render_demonstration(report))


def _render_demonstration(demonstration: DemonstratedEnd) -> Iterator[Part]:
    yield f"{counted(demonstration.actions, 'action')} on record in run {demonstration.run}"
    if demonstration.secrets:
        yield f"secrets, by name: {', '.join(demonstration.secrets)}"
    for each in demonstration.unrecorded:
        yield f"not an action, and not recorded: {each}"
