"""Command `hansard experience`: learn plans from runs, and replay them under checks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from hansard.agents.artifacts.bundles import (
    SUFFIX,
    InstalledBundle,
    PublishedBundle,
    VerifiedBundle,
)
from hansard.agents.artifacts.experiences import is_name
from hansard.bus.clock import OS_USER
from hansard.cli import output as shown
from hansard.cli.actions import Once, Param, allowed_once, pairs, replaying
from hansard.cli.common import By, Commands, Reason, argument, flag, option
from hansard.cli.opening import answering, beginning, reading
from hansard.cli.output import Column, Part
from hansard.client.browser.experienced import Experienced
from hansard.domain.choices import counted
from hansard.domain.errors import BadValue
from hansard.domain.experience.experience import Experience
from hansard.domain.experience.kept import DIGEST_CHARACTERS_MIN
from hansard.inspect import experience as inspected
from hansard.inspect.experience import (
    ExperienceDiff,
    ExperienceHits,
    KeptExperiences,
    ShownExperience,
)
from hansard.inspect.find import find_run

app = Commands()

WHICH = "Name of a saved experience, or a folder: a path with a slash."
VERSION = "NAME, NAME@VERSION or NAME@DIGEST of a saved experience, or a folder's path."

Which = Annotated[str, argument("NAME|DIR", WHICH)]
Name = Annotated[str, argument("NAME", "Name of a saved experience.")]
Output = Annotated[Path | None, option("Write its folder, too.", "DIR", "--output", "-o")]

Bundle = Annotated[Path, argument("FILE", "A bundle.")]
PublicKey = Annotated[
    Path | None, option("A public Ed25519 key in PEM that must have signed it.", "FILE")
]

LIST = (
    Column("experience", whole=True),
    Column("version", right=True),
    Column("standing", lambda row: row.standing.value),
    Column("replays", right=True),
    Column("unfinished", right=True),
    Column("succeed at least", lambda row: _share(row.success_low), right=True),
    Column("heals unreviewed", lambda row: str(row.heals_unreviewed), right=True),
    Column("task", whole=True),
)
LOG = (
    Column("version", lambda row: "" if row.version is None else str(row.version), right=True),
    Column("change", lambda row: row.change),
    Column("digest", lambda row: (row.digest or "")[:DIGEST_CHARACTERS_MIN]),
    Column("by", lambda row: row.author),
    Column("at", lambda row: f"{row.at:%Y-%m-%d %H:%M:%S}"),
    Column("why", lambda row: row.because or "", whole=True),
)

COLUMNS = (
    Column("node"),
    Column("level", lambda row: str(row.level), right=True),
    Column("found by", lambda row: row.strategy),
    Column("seconds", lambda row: f"{row.seconds:.2f}", right=True),
)


@app.command()
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
    output: Output = None,
) -> None:
    """Learn the next version of an experience from runs.

    All runs must do the same kind of task. No model is called.
    """
    from hansard.agents.artifacts import experiences as kept
    from hansard.agents.artifacts.experiences import write_folder
    from hansard.agents.artifacts.versions import label_of_runs
    from hansard.inspect.experience import learned

    texts = pairs(task, "--task")
    values: dict[str, dict[str, str]] = {}
    for each, value in pairs(param, "--param").items():
        run, slash, slot = each.partition("/")
        if not slash:
            raise BadValue("--param", f"{each!r:.80} names no run", "give RUN/SLOT=VALUE")
        values.setdefault(run, {})[slot] = value
    async with beginning() as workspace:
        found = {each: await find_run(workspace, each) for each in (*runs, *texts, *values)}
        experience = await learned(
            workspace,
            name,
            [found[each] for each in runs],
            {found[each]: text for each, text in texts.items()},
            about,
            params={found[each]: given for each, given in values.items()},
        )
        label = await label_of_runs(workspace, (*experience.sources, *experience.failed))
        done = await kept.keep(workspace, experience, reason=reason, by=by, label=label)
        made = (await kept.get(workspace, name, done.version)).experience
    if output is not None:
        write_folder(made, output)
    shown.show(made, _render_experience)
    shown.hint(
        f"{name} is at version {done.version}: `hansard experience confirm {name}` once its checks "
        "are right"
    )


@app.command()
async def show(
    which: Which,
    point: Annotated[str, option("Its number, or its digest [newest].", "VERSION", "--at")] = "",
    output: Output = None,
) -> None:
    """Print an experience: task, plan, checks and record."""
    from hansard.agents.artifacts import experiences as kept
    from hansard.agents.artifacts.experiences import read_folder, write_folder

    if not is_name(which):
        if point:
            raise BadValue("--at", f"{which} is a folder, which has no versions", "leave it away")
        shown.show(read_folder(Path(which)), _render_experience)
        return
    async with reading() as workspace:
        found = await kept.at(workspace, which, point)
    if output is not None:
        write_folder(found.experience, output)
    async with answering() as reader:
        changes = inspected.log(reader, which)
    shown.show(inspected.shown(found, changes), _render_version)


@app.command()
async def diff(
    before: Annotated[str, argument("A", VERSION)], after: Annotated[str, argument("B", VERSION)]
) -> None:
    """Print how the files of two versions differ."""
    from hansard.agents.artifacts import experiences as kept
    from hansard.agents.artifacts.experiences import read_folder
    from hansard.domain.experience.kept import content_of

    items = []
    for each in (before, after):
        if is_name(each):
            name, _, point = each.partition("@")
            async with reading() as workspace:
                items.append((await kept.at(workspace, name, point)).content)
        else:
            items.append(content_of(read_folder(Path(each))))
    shown.show(inspected.difference(items[0], items[1], (before, after)), _render_diff)


@app.command("list")
async def list_() -> None:
    """List experiences: permitted use, and how replays ended."""
    async with answering() as reader:
        found = inspected.experiences(reader)
    shown.show(found, _render_list)


@app.command()
async def find(
    task: Annotated[str, argument("[TASK]", "Task text, or words of it.")] = "",
    tool: Annotated[
        list[str] | None, option("A tool that the experience calls. Repeatable.")
    ] = None,
    address: Annotated[str, option("Place of the task: an address or a host.")] = "",
    limit: Annotated[int, option("Most experiences to list.")] = inspected.HITS_MAX,
    every: Annotated[bool, flag("--all", "Also retired experiences.")] = False,
) -> None:
    """Rank experiences that fit a task, and say why.

    The ranking uses wording, words, success and cost.
    """
    from hansard.projections.file_search import FileWords

    query = inspected.ExperienceQuery(
        task=task, tools=tuple(tool or ()), address=address, limit=limit, retired=every
    )
    async with answering() as reader:
        with contextlib.closing(inspected.ExperienceIndex(FileWords())) as index:
            found = inspected.find(reader, query, index)
    shown.show(found, _render_hits)


@app.command()
async def confirm(
    which: Which,
    check: Annotated[list[str] | None, option("Only this check [all]. Repeatable.", "NAME")] = None,
    digest: Annotated[str, option("Digest of the reviewed version; required for a bundle.")] = "",
    reason: Reason = "",
    by: By = OS_USER,
) -> None:
    """Confirm an experience's checks, so that it may act.

    Confirming adds the next version.
    """
    from hansard.agents.artifacts import experiences as kept
    from hansard.agents.artifacts.experiences import confirm_folder

    if not is_name(which):
        shown.show(confirm_folder(Path(which), check or ()), _render_experience)
        return
    async with beginning() as workspace:
        done = await kept.confirm(
            workspace, which, check or (), digest=digest, reason=reason, by=by
        )
        found = await kept.get(workspace, which, done.version)
    shown.show(found.experience, _render_experience)


@app.command()
async def retire(name: Name, reason: Reason = "", by: By = OS_USER) -> None:
    """Retire an experience until a version is confirmed again."""
    from hansard.agents.artifacts import experiences as kept

    async with beginning() as workspace:
        done = await kept.retire(workspace, name, reason=reason, by=by)
    shown.show(done, f"{name} is retired{'' if done.is_new else ' already'}")


@app.command()
async def publish(
    name: Name,
    license_: Annotated[str, option("License: Apache-2.0.", "SPDX", "--license")],
    key: Annotated[
        Path | None, option("A private Ed25519 key in PEM, which signs it [none].", "FILE")
    ] = None,
    point: Annotated[str, option("Its number, or its digest [newest].", "VERSION", "--at")] = "",
    output: Annotated[
        Path | None, option("[NAME" + SUFFIX + "].", "FILE", "--output", "-o")
    ] = None,
    reason: Reason = "",
    by: By = OS_USER,
) -> None:
    """Write a version as one bundle file for others.

    Refused if it has secrets or personal values.
    """
    from hansard.agents.artifacts.bundles import publish as published

    async with beginning() as workspace:
        report = await published(
            workspace,
            name,
            output or Path(f"{name}{SUFFIX}"),
            terms=license_,
            key=key,
            point=point,
            reason=reason,
            by=by,
        )
    shown.show(report, _render_publication)


@app.command()
def verify(file: Bundle, key: PublicKey = None) -> None:
    """Check that a bundle is whole, and who signed it.

    Needs no record, and runs nothing from the bundle.
    """
    from hansard.agents.artifacts.bundles import verify as verified

    shown.show(verified(file, key), _render_bundle)


@app.command()
async def install(
    file: Bundle,
    name: Annotated[str, option("Name in the record [that of the bundle].")] = "",
    key: PublicKey = None,
    reason: Reason = "",
    by: By = OS_USER,
) -> None:
    """Save a bundle as untrusted.

    It may not act until a person confirms its digest.
    """
    from hansard.agents.artifacts.bundles import install as installed

    async with beginning() as workspace:
        report = await installed(workspace, file, name=name, key=key, reason=reason, by=by)
    shown.show(report, _render_installation)


@app.command()
async def run(
    which: Which,
    task: Annotated[str, option("Task in the learned wording, with values.")] = "",
    param: Param = None,
    address: Annotated[str, option("The page to begin on: an address, or a file.")] = "",
    once: Once = "refuse",
    workflow: Annotated[str, option("Workflow of the new run.")] = "experience",
) -> int:
    """Replay an experience in Chromium as a new run.

    No model is called.
    """
    from hansard.agents.artifacts.experiences import read_folder

    allowed = allowed_once(once)
    experience = which if is_name(which) else read_folder(Path(which))
    async with replaying(workflow) as (_, session, browser):
        if address:
            await browser.goto(_address(address))
        report = await session.run_experience(
            experience, pairs(param, "--param"), task=task, once=allowed
        )
    shown.show(report, _render_replay)
    return 0 if report.success else 1


def _address(given: str) -> str:
    """Return an address unchanged, and a file's path as a file address."""
    path = Path(given)
    return path.resolve().as_uri() if path.is_file() else given


def _render_experience(experience: Experience) -> Iterator[Part]:
    from hansard.domain.experience import checks as checking
    from hansard.domain.experience.experience import plan

    yield f"{experience.name}, version {experience.version}: {experience.description}"
    yield f"wording   {experience.wording.template}"
    of = counted(len(experience.sources), "run")
    out = f", {experience.left_out} of them left out" if experience.left_out else ""
    yield f"learned   from {of}{out}; {counted(len(experience.failed), 'run')} failed"
    for line in plan(experience):
        yield f"  {line}"
    if experience.checks:
        yield f"guarded by {counted(len(experience.checks), 'check')}:"
    else:
        yield "guarded by nothing: it may guide, not act. Proposed checks:"
    for each in experience.checks or checking.proposed(experience.procedure):
        yield f"  {checking.kind(each):14} {each.name}"
    if experience.left_out_checks:
        yield f"not in the folder, being Python: {', '.join(experience.left_out_checks)}"
    for what, sentences in (("plan", experience.plan), ("lesson", experience.lessons)):
        for sentence in sentences:
            yield f"{what}    {sentence.says} ({', '.join(sentence.rests_on)})"
    if experience.dropped:
        yield f"dropped   {counted(experience.dropped, 'sentence')} that rested on no step"


def _render_version(report: ShownExperience) -> Iterator[Part]:
    yield from _render_experience(report.experience)
    label = f", {report.label}" if report.label else ""
    yield f"it is {report.standing.value}{label}: {report.digest}"
    yield shown.listing(LOG, report.changes)


def _render_list(found: KeptExperiences) -> Iterator[Part]:
    if found.experiences:
        yield shown.listing(LIST, found.experiences)
    else:
        yield "no experience is saved"


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _render_hits(found: ExperienceHits) -> Iterator[Part]:
    for each in found.hits:
        yield f"{each.experience}, version {each.version} ({each.standing.value}): {each.task}"
        yield f"  {'; '.join(each.why)}"
        if each.duplicates:
            yield f"  the same as {', '.join(each.duplicates)}"
        for name, value in (each.params or {}).items():
            yield f"  {name} = {value}"
    if not found.hits:
        yield "no experience fits"
    elif found.more:
        yield shown.Hint("there are more: --limit")


def _render_diff(found: ExperienceDiff) -> Iterator[Part]:
    for each in found.files:
        yield each.diff.rstrip("\n")
    if not found.files:
        yield "they are equal"


def _render_bundle(report: VerifiedBundle) -> Iterator[Part]:
    yield f"{report.name}, version {report.version}: {report.description}"
    yield f"wording   {report.task}"
    yield f"guarded   by {counted(report.checks, 'check')}"
    yield f"license   {report.license}"
    yield f"signed    {f'by the key {report.key}' if report.key else 'by none'}"
    yield f"digest    {report.digest}"
    yield "the bundle is complete; only a review can tell whether it does what it describes"


def _render_publication(state: PublishedBundle) -> Iterator[Part]:
    yield from _render_bundle(state.bundle)
    yield f"wrote {state.file}"
    for each in state.constants:
        yield f"in each doing {each!r:.80} is filled in, and travels"


def _render_installation(report: InstalledBundle) -> Iterator[Part]:
    yield from _render_bundle(report.bundle)
    least = report.bundle.digest[:DIGEST_CHARACTERS_MIN]
    yield (
        f"{report.name} is at version {report.version}, untrusted: look at it (`hansard experience "
        f"show {report.name}`), then `hansard experience confirm {report.name} --digest {least}`"
    )


def _render_replay(report: Experienced) -> Iterator[Part]:
    yield shown.listing(COLUMNS, report.actions)
    yield (
        f"completed as demonstrated, at level {report.level}, in {report.seconds:.2f} s; no model "
        "was called, and no check proves that the result is the intended one"
        if report.success
        else f"not done: {report.error}"
    )
    for line in report.guide:
        yield f"  {line}"
