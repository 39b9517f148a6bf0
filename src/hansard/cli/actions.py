"""`hansard actions`: what a run did, as a file that is done again without a model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hansard.bus.os_user import OS_USER
from hansard.cli import output as shown
from hansard.cli.common import Because, By, Json, Run, noun, work
from hansard.cli.opening import answering, beginning, reading, settings
from hansard.cli.output import Bytes, Column, Part
from hansard.client.browser.replay import Replayed
from hansard.domain.choices import counted
from hansard.domain.errors import BadValue
from hansard.inspect import kept_actions
from hansard.inspect.acknowledgements import ActionsKept
from hansard.inspect.action_scripts import ScriptFormat
from hansard.inspect.find import find_run
from hansard.inspect.kept_actions import ActionsLog, KeptCaches

app = noun()

File = Annotated[Path, typer.Argument(metavar="FILE", help="A file of actions.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="The file to write [stdout].")]
Param = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="A slot's value; may be given several times."),
]

Name = Annotated[str, typer.Argument(metavar="NAME", help="What the record keeps it by.")]

LIST = (
    Column("cache", whole=True),
    Column("versions", right=True),
    Column("heals", right=True),
    Column("not looked at", lambda row: str(row.not_looked_at), right=True),
    Column("changed", lambda row: f"{row.changed_at:%Y-%m-%d %H:%M:%S}"),
)
LOG = (
    Column("version", right=True),
    Column("change", lambda row: row.change),
    Column("entry", lambda row: "" if row.entry is None else str(row.entry), right=True),
    Column("by", lambda row: row.author),
    Column("at", lambda row: f"{row.at:%Y-%m-%d %H:%M:%S}"),
    Column("looked at", lambda row: "yes" if row.looked_at else ""),
    Column("why", lambda row: row.because or ""),
)
COLUMNS = (
    Column("entry", lambda row: str(row.step_index), right=True),
    Column("done", lambda row: "yes" if row.success else "no"),
    Column("found by", lambda row: row.strategy + (", healed" if row.healed else "")),
    Column("seconds", lambda row: f"{row.seconds:.2f}", right=True),
    Column("message", whole=True),
)


@app.command()
@work
async def show(
    which: Run,
    param: Param = None,
    other: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Make a slot of each argument that differs in this run."),
    ] = None,
    agent: Annotated[str | None, typer.Option(help="Only what this agent did.")] = None,
    output: Output = None,
    json: Json = False,
) -> None:
    """Print the action cache of a run.

    What it did to pages and by tools, and succeeded with.
    """
    from hansard.client.browser.replay import saved
    from hansard.domain.actions.cache import encode
    from hansard.domain.actions.slots import compared, with_slots
    from hansard.inspect.actions import action_cache
    from hansard.inspect.payloads import Payloads

    params = pairs(param, "--param")
    async with reading() as workspace:
        fetch = Payloads(workspace)
        run = await find_run(workspace, which)
        cache = await action_cache(workspace, run, fetch, agent=agent)
        if other is not None:
            beside = await find_run(workspace, other)
            cache = compared(cache, await action_cache(workspace, beside, fetch, agent=agent))
        shown.hint_erased(fetch)
    cache = with_slots(cache, params) if params else cache
    if output is not None:
        saved(cache, output)
    else:
        shown.show(cache, lambda found: [Bytes(encode(found))], json=json)


@app.command()
@work
async def run(  # noqa: PLR0913, PLR0917 -- the command's options are its parameters
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A file of actions, or --kept.")
    ] = None,
    kept: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The cache that the record keeps by a name."),
    ] = None,
    version: Annotated[
        int | None, typer.Option(min=1, help="Of --kept: which version; the newest.")
    ] = None,
    param: Param = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VARIABLE", help="The environment variable of a secret."),
    ] = None,
    once: Annotated[
        str,
        typer.Option(
            help="Actions that are done once and may be done again: 'allow', or their entries "
            "('2,5')."
        ),
    ] = "refuse",
    max_xpath_retries: Annotated[
        int, typer.Option(min=1, max=100, help="How often a page that changes is looked at.")
    ] = 3,
    workflow: Annotated[str, typer.Option(help="Of the new run.")] = "actions",
    debug: Annotated[bool, typer.Option("--attempts", help="Tell every look (--json).")] = False,
    json: Json = False,
) -> int:
    """Replay a file's actions in Chromium as a new run.

    No model is asked.
    """
    import hansard
    from hansard.client.browser.replay import Once, opened
    from hansard.integrations.browser import chromium

    allowed: Once = "refuse" if once == "refuse" else "allow"
    if once not in ("refuse", "allow"):
        allowed = _entries(once)
    if (file is None) is (kept is None):
        fact = "both a file and --kept" if file else "no actions to do"
        raise BadValue("hansard actions run", fact, "give a FILE, or --kept NAME")
    if version is not None and kept is None:
        raise BadValue("--version", "a file is at one version", "give it with --kept NAME")
    given = opened(file)[0] if file is not None else None
    secrets = {name: _variable(each) for name, each in pairs(secret, "--secret").items()}
    found = settings()
    async with (
        hansard.connect_async(found.workspace, data_dir=found.data_dir) as record,
        chromium.page() as page,
        record.run(workflow, agent="replay", role="agent", secrets=secrets) as session,
    ):
        session.browser(page)
        told = await session.run_actions(
            given or await record.kept_actions(str(kept), version),
            params=pairs(param, "--param"),
            max_xpath_retries=max_xpath_retries,
            once=allowed,
            debug=debug,
        )
    shown.show(told, _told, json=json)
    return 0 if told.success else 1


@app.command()
@work
async def script(
    file: File,
    form: Annotated[
        ScriptFormat, typer.Option("--format", help="What it is written for.")
    ] = ScriptFormat.PLAYWRIGHT_PY,
    module: Annotated[
        str, typer.Option(metavar="MODULE", help="Where its tools are imported from.")
    ] = "",
    output: Output = None,
) -> None:
    """Write a program that does a file's actions without Hansard."""
    from hansard.bus.file_lock import write_whole
    from hansard.client.browser.replay import opened
    from hansard.inspect.action_scripts import script as written

    cache, _ = opened(file)
    data = written(cache, form, module)
    if output is not None:
        write_whole(output, data)
    else:
        shown.write(Bytes(data))


@app.command()
@work
async def revert(
    file: File,
    to: Annotated[int, typer.Option(metavar="VERSION", help="The version to go back to.")],
    by: By = OS_USER,
    because: Because = "",
) -> None:
    """Restore an earlier version of a file as its next version."""
    from hansard.client.browser.replay import opened, saved
    from hansard.domain.actions.cache import reverted

    cache, path = opened(file)
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    made = reverted(cache, to, at=at, by=by, why=because or f"as at version {to}")
    saved(made, path or file)
    shown.hint(f"{file} is at version {made.version}: what it was at version {to}")


@app.command()
@work
async def keep(
    file: File, name: Name, because: Because = "", by: By = OS_USER, json: Json = False
) -> None:
    """Save a file of actions in the record as a new version."""
    from hansard.agents.actions import store
    from hansard.agents.actions import store as versions
    from hansard.client.browser.replay import opened

    cache, _ = opened(file)
    async with beginning() as workspace:
        label = await versions.label_of_runs(workspace, [cache.run])
        version = await store.save(workspace, name, cache, because=because, by=by, label=label)
    said = f"{name} is at version {version}"
    shown.show(ActionsKept(cache=name, version=version), said, json=json)


@app.command("list")
@work
async def list_(json: Json = False) -> None:
    """List saved action caches, and heals not yet reviewed."""
    async with answering() as reader:
        found = kept_actions.caches(reader)
    shown.show(found, _listed, json=json)


@app.command()
@work
async def log(name: Name, json: Json = False) -> None:
    """List versions of a saved action cache: who, when and why."""
    async with answering() as reader:
        found = kept_actions.log(reader, name)
    shown.show(found, _logged, json=json)


@app.command()
@work
async def export(
    name: Name,
    version: Annotated[int | None, typer.Option(help="Which one; the newest.")] = None,
    output: Output = None,
    json: Json = False,
) -> None:
    """Print a version of a saved action cache as a file."""
    from hansard.agents.actions import store
    from hansard.client.browser.replay import saved
    from hansard.domain.actions.cache import encode

    async with reading() as workspace:
        cache = msgspec.structs.replace(await store.get(workspace, name, version), name="")
    if output is not None:
        saved(cache, output)
    else:
        shown.show(cache, lambda found: [Bytes(encode(found))], json=json)


@app.command()
@work
async def restore(
    name: Name,
    to: Annotated[int, typer.Option(metavar="VERSION", help="The version to go back to.")],
    because: Because = "",
    by: By = OS_USER,
    json: Json = False,
) -> None:
    """Restore an earlier version of a saved cache as its next."""
    from hansard.agents.actions import store

    async with reading() as workspace:
        version = await store.revert(workspace, name, to, because=because, by=by)
    said = f"{name} is at version {version}: what it was at version {to}"
    shown.show(ActionsKept(cache=name, version=version), said, json=json)


@app.command("look-at")
@work
async def look_at(
    name: Name,
    version: Annotated[int | None, typer.Option(help="Up to which one; the newest.")] = None,
    because: Because = "",
    by: By = OS_USER,
    json: Json = False,
) -> None:
    """Mark a saved cache's versions as reviewed, up to one."""
    from hansard.agents.actions import store

    async with reading() as workspace:
        number = await store.look_at(workspace, name, version, because=because, by=by)
    said = f"{name} was looked at up to version {number}"
    shown.show(ActionsKept(cache=name, version=number), said, json=json)


def pairs(given: list[str] | None, option: str) -> dict[str, str]:
    """`NAME=VALUE` by name. Raises BadValue."""
    told: dict[str, str] = {}
    for each in given or ():
        name, equals, value = each.partition("=")
        if not (name and equals):
            raise BadValue(option, f"{each!r:.80}", "give NAME=VALUE")
        told[name] = value
    return told


def _entries(text: str) -> frozenset[int]:
    try:
        return frozenset(int(each) for each in text.split(","))
    except ValueError:
        raise BadValue("--once", f"{text!r:.80}", "give 'allow', or entries: '2,5'") from None


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise BadValue("--secret", f"{name!r:.80} is not set", "set the environment variable")
    return value


def _listed(found: KeptCaches) -> Iterator[Part]:
    if found.caches:
        yield shown.listing(LIST, found.caches)
    yield f"{counted(len(found.caches), 'action cache')}, as of position {found.position}"


def _logged(found: ActionsLog) -> Iterator[Part]:
    yield shown.listing(LOG, found.versions)
    yield f"{counted(len(found.versions), 'version')}, as of position {found.position}"


def _told(found: Replayed) -> Iterator[Part]:
    yield shown.listing(COLUMNS, found.actions)
    yield "done" if found.success else f"not done: {found.error}"
