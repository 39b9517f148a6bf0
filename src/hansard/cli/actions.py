"""Command `hansard actions`: save, review and replay a run's actions without a model."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from hansard.bus.clock import OS_USER
from hansard.cli import output as shown
from hansard.cli.common import By, Commands, Reason, Run, argument, flag, option
from hansard.cli.opening import answering, beginning, reading, settings
from hansard.cli.output import Bytes, Column, Part
from hansard.client.browser.replay import Replayed
from hansard.domain.actions.cache import ActionCache
from hansard.domain.choices import NOTHING, counted
from hansard.domain.errors import BadValue
from hansard.inspect import actions
from hansard.inspect.actions import ActionsLog, KeptCaches, ScriptFormat
from hansard.inspect.find import find_run

if TYPE_CHECKING:  # a command that replays nothing loads no client
    from hansard.client.browser.browser import AsyncBrowser
    from hansard.client.record import AsyncRecord
    from hansard.client.session import AsyncSession

app = Commands()

Which = Annotated[
    str,
    argument(
        "NAME|FILE",
        "NAME or NAME@VERSION of a cache in the record; a .json file or a path with a slash.",
    ),
]
Output = Annotated[Path | None, option("The file to write [stdout].", None, "--output", "-o")]
Param = Annotated[list[str] | None, option("A slot's value. Repeatable.", "NAME=VALUE")]
Once = Annotated[
    str, option("Non-repeatable actions that may run again: 'allow', or their numbers ('2,5').")
]

Name = Annotated[str, argument("NAME", "The cache's name in the record.")]

LIST = (
    Column("cache", whole=True),
    Column("versions", right=True),
    Column("heals", right=True),
    Column("unreviewed", lambda row: str(row.heals_unreviewed), right=True),
    Column("changed", lambda row: f"{row.changed_at:%Y-%m-%d %H:%M:%S}"),
)
LOG = (
    Column("version", right=True),
    Column("change", lambda row: row.change),
    Column("entry", lambda row: "" if row.entry is None else str(row.entry), right=True),
    Column("by", lambda row: row.author),
    Column("at", lambda row: f"{row.at:%Y-%m-%d %H:%M:%S}"),
    Column("reviewed", lambda row: "yes" if row.reviewed else ""),
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
async def show(
    which: Run,
    param: Param = None,
    other: Annotated[
        str | None, option("Make a slot of each argument that differs in this run.", "RUN")
    ] = None,
    agent: Annotated[str | None, option("Only actions of this agent.")] = None,
    output: Output = None,
) -> None:
    """Print the action cache of a run.

    It holds the run's successful actions on pages and tool calls.
    """
    from hansard.client.browser.replay import saved
    from hansard.domain.actions.cache import compared, encode, with_slots
    from hansard.inspect.actions import action_cache
    from hansard.inspect.trace import Payloads

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
        shown.show(cache, lambda found: [Bytes(encode(found))])


@app.command()
async def run(
    which: Which,
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
    secrets = {name: _variable(each) for name, each in pairs(secret, "--secret").items()}
    async with replaying(workflow, secrets) as (record, session, _):
        report = await session.run_actions(
            which if _is_file(which) else await record.kept_actions(name, version),
            params=pairs(param, "--param"),
            max_xpath_retries=max_xpath_retries,
            once=allowed,
            debug=debug,
        )
    shown.show(report, _render_actions)
    return 0 if report.success else 1


@app.command(plain=True)
async def script(
    which: Which,
    form: Annotated[
        ScriptFormat, option("Kind of program to write.", None, "--format")
    ] = ScriptFormat.PLAYWRIGHT_PY,
    module: Annotated[
        str, option("Module that the program imports its tools from.", "MODULE")
    ] = "",
    output: Output = None,
) -> None:
    """Write a program that does the actions without Hansard."""
    from hansard.bus.file_lock import write_whole
    from hansard.inspect.actions import script as written

    cache, _ = await _read(which)
    data = written(cache, form, module)
    if output is not None:
        write_whole(output, data)
    else:
        shown.write(Bytes(data))


@app.command()
async def revert(
    which: Annotated[
        str,
        argument(
            "NAME|FILE", "NAME of a cache in the record; a .json file or a path with a slash."
        ),
    ],
    to: Annotated[int, option("Version to restore.", "VERSION")],
    reason: Reason = "",
    by: By = OS_USER,
) -> None:
    """Restore an earlier version as the next version."""
    from hansard.agents.artifacts import caches
    from hansard.agents.artifacts.versions import ArtifactChange
    from hansard.client.browser.replay import opened, saved
    from hansard.domain.actions.cache import reverted
    from hansard.domain.actions.kept import KIND

    if _is_file(which):
        cache, path = opened(which)
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        made = reverted(cache, to, at=at, by=by, why=reason or f"as at version {to}")
        saved(made, path or Path(which))
        done = ArtifactChange(kind=KIND, name=which, version=made.version, is_new=True)
    else:
        async with reading() as workspace:
            done = await caches.revert(workspace, which, to, reason=reason, by=by)
    shown.show(done, f"{which} is at version {done.version}, equal to version {to}")


@app.command("import")
async def import_(
    file: Annotated[Path, argument("FILE", "A file of actions.")],
    name: Name,
    reason: Reason = "",
    by: By = OS_USER,
) -> None:
    """Save a file of actions in the record as a new version."""
    from hansard.agents.artifacts import caches, versions
    from hansard.client.browser.replay import opened

    if _is_file(name):
        raise BadValue(
            "NAME", f"{name!r:.80} looks like a file path", "leave out slashes and .json"
        )
    cache, _ = opened(file)
    async with beginning() as workspace:
        label = await versions.label_of_runs(workspace, [cache.run])
        done = await caches.save(workspace, name, cache, reason=reason, by=by, label=label)
    shown.show(done, f"{name} is at version {done.version}")


@app.command("list")
async def list_() -> None:
    """List saved action caches, and heals not yet reviewed."""
    async with answering() as reader:
        found = actions.caches(reader)
    shown.show(found, _render_caches)


@app.command()
async def log(name: Name) -> None:
    """List versions of a saved action cache: who, when and why."""
    async with answering() as reader:
        found = actions.log(reader, name)
    shown.show(found, _render_versions)


@app.command()
async def export(
    which: Annotated[str, argument("NAME", "NAME or NAME@VERSION of a cache in the record.")],
    output: Output = None,
) -> None:
    """Print a saved action cache as a file."""
    from hansard.client.browser.replay import saved
    from hansard.domain.actions.cache import encode

    cache = msgspec.structs.replace((await _read(which))[0], name="")
    if output is not None:
        saved(cache, output)
    else:
        shown.show(cache, lambda found: [Bytes(encode(found))])


@app.command("review")
async def review(
    name: Name,
    version: Annotated[int | None, option("Last reviewed version [newest].")] = None,
    reason: Reason = "",
    by: By = OS_USER,
) -> None:
    """Mark a saved cache's versions as reviewed, up to one."""
    from hansard.agents.artifacts import caches

    async with reading() as workspace:
        done = await caches.review(workspace, name, version, reason=reason, by=by)
    shown.show(done, f"{name} is reviewed up to version {done.version}")


def _is_file(which: str) -> bool:
    return which.endswith(".json") or "/" in which or os.sep in which


async def _read(which: str) -> tuple[ActionCache, Path | None]:
    """Read a cache from the record or from a file. Raises NotFound, BadValue, Refused."""
    from hansard.agents.artifacts import caches
    from hansard.client.browser.replay import opened

    if _is_file(which):
        return opened(which)
    async with reading() as workspace:
        return await caches.get(workspace, *_reference(which)), None


def _reference(which: str) -> tuple[str, int | None]:
    name, _, version = which.rpartition("@")
    return (name, int(version)) if name and version.isdecimal() else (which, None)


def pairs(given: list[str] | None, option: str) -> dict[str, str]:
    """Parse `NAME=VALUE` options. Raises BadValue."""
    fields: dict[str, str] = {}
    for each in given or ():
        name, equals, value = each.partition("=")
        if not (name and equals):
            raise BadValue(option, f"{each!r:.80}", "give NAME=VALUE")
        fields[name] = value
    return fields


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
) -> AsyncIterator[tuple[AsyncRecord, AsyncSession, AsyncBrowser]]:
    """Open the record and a run whose session has a page of Chromium."""
    import hansard
    from hansard.integrations.browser import chromium

    found = settings()
    async with (
        hansard.connect_async(found.workspace, data_dir=found.data_dir) as record,
        chromium.page() as page,
        record.run(workflow, agent="replay", role="agent", secrets=secrets) as session,
    ):
        yield record, session, session.browser(page)


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise BadValue("--secret", f"{name!r:.80} is not set", "set the environment variable")
    return value


def _render_caches(found: KeptCaches) -> Iterator[Part]:
    if found.caches:
        yield shown.listing(LIST, found.caches)
    yield f"{counted(len(found.caches), 'action cache')}, as of position {found.position}"


def _render_versions(found: ActionsLog) -> Iterator[Part]:
    yield shown.listing(LOG, found.versions)
    yield f"{counted(len(found.versions), 'version')}, as of position {found.position}"


def _render_actions(found: Replayed) -> Iterator[Part]:
    yield shown.listing(COLUMNS, found.actions)
    yield "done" if found.success else f"not done: {found.error}"
