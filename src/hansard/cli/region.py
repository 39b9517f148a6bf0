"""Commands `hansard region`: copies of a log in other regions, and another home for it."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Annotated

import msgspec

from hansard.agents.exchange.reader import import_events
from hansard.agents.exchange.writer import export
from hansard.bus.errors import BusError, NotFound
from hansard.bus.jetstream import regions
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.direct import Direct
from hansard.bus.jetstream.generations import survey
from hansard.bus.jetstream.log import named
from hansard.cli import output
from hansard.cli.common import Commands, argument, flag
from hansard.cli.exchange import ImportWatcher
from hansard.cli.opening import settings
from hansard.client import opening
from hansard.domain.choices import counted
from hansard.domain.errors import CallerError
from hansard.settings import Settings

region = Commands()

FOLLOW_S = 1.0
"""Interval of the look-ups of a home's generations, in seconds."""


@contextlib.asynccontextmanager
async def _brokers(config: Settings, home: str = "") -> AsyncGenerator[tuple[Broker, Broker]]:
    """Connect to the server, and over it to another region's (the same one if none is named)."""
    async with contextlib.AsyncExitStack() as stack:
        found = await stack.enter_async_context(opening.broker_of(config))
        options = named(found.admin or found.runtime, "region")
        here = await Broker.open(options)
        stack.push_async_callback(here.close)
        there = await Broker.open(options.in_region(home) if home else options)
        stack.push_async_callback(there.close)
        yield here, there


@region.command("follow")
async def follow(
    home: Annotated[str, argument("REGION", "The JetStream domain of the workspace's home.")],
    once: Annotated[bool, flag("--once", "Do what is due now, and end.")] = False,
) -> None:
    """Keep a copy of a workspace's log in this region until Ctrl-C.

    Commands that read use the copy and state its lag. Programs write to the home, over this
    region's server. After a promotion it seals the former home as soon as that answers, and lists
    the commits that the log lacks. Run in the former home, it imports their runs into workspace
    WORKSPACE-lost-POSITION of the new home, and then keeps a copy.
    """
    config, shown = settings(), ""
    imported: regions.Lost | None = None
    async with _brokers(config, home) as (here, there):
        while True:
            try:
                lost = await regions.follow(here, there, config.workspace, config.nats_replicas)
                if lost is not None and lost.region != home:
                    if lost != imported:  # until the new home has a commit there is nothing to copy
                        await _bring(config, home, lost)
                        imported = lost
                    await regions.copy(here, there, config.workspace, config.nats_replicas)
                if lost is not None and (text := _render(lost, home)) != shown:
                    output.show(lost, text)
                    shown = text
            except BusError as error:
                if once:
                    raise
                if str(error) != shown:
                    shown = str(error)
                    output.hint(f"region {home} is not followed for now: {error}")
            if once:
                return
            await asyncio.sleep(FOLLOW_S)


async def _bring(config: Settings, home: str, lost: regions.Lost) -> None:
    """Import the runs with commits that a new home lacks there, in a workspace of their own."""
    if not lost.runs:
        return
    target = msgspec.structs.replace(config, workspace=lost.workspace, nats_domain=home)
    watcher = ImportWatcher(lambda *_: None, None, strict=True)
    async with opening.reading(config) as source, opening.beginning(target) as workspace:
        with tempfile.NamedTemporaryFile() as file:
            await export(source, [*lost.runs], file.write)
            file.flush()
            await import_events(workspace, Path(file.name), watcher)


def _render(lost: regions.Lost, home: str) -> str:
    lines = [f"region {lost.region} is sealed; the log goes on after position {lost.cut:,}"]
    for name, number in [*lost.runs.items(), *lost.streams.items()]:
        lines.append(f"  without {counted(number, 'commit')} of {name} that it accepted")
    if lost.runs:
        where = "" if lost.region != home else f", once 'region follow' has run in {lost.region}"
        lines.append(f"their runs are in workspace {lost.workspace}{where}")
    return "\n".join(lines)


@region.command("show")
async def show() -> None:
    """Show the home of a workspace, and how far the copy here is."""
    config = settings()
    async with _brokers(config) as (here, _):
        if not (await survey(Direct(here), config.workspace)).streams:
            raise NotFound(
                f"workspace {config.workspace!r}", "'hansard status' lists the workspaces"
            )
        own, lag = await regions.find_domain(here), await regions.lag(here, config.workspace)
    home = lag.home if lag is not None else own
    report = {
        "region": own or None,
        "workspace": config.workspace,
        "home": home or None,
        "lag": lag,
    }
    where = f"in region {own!r}: {lag or 'the home'}" if own else "in no region: only here"
    output.show(report, f"workspace {config.workspace!r} {where}")


@region.command("promote")
async def promote(
    without_home: Annotated[
        bool, flag("--without-home", "Go on though the home does not answer.")
    ] = False,
) -> None:
    """Make this region the home of the workspace.

    A home that answers is sealed first: nothing is lost. One that does not answer may have accepted
    commits that did not arrive here. The log goes on without them; when that region is back, run
    'hansard region follow' in both.
    """
    config = settings()
    async with _brokers(config) as (here, _):
        own, lag = await regions.domain_of(here), await regions.lag(here, config.workspace)
    answers = lag is not None and lag.newest is not None
    if lag is not None and not answers and not without_home:
        raise CallerError(
            f"{lag}: {counted(lag.announced, 'announced commit')} did not arrive, and it may "
            f"have accepted more. They will not be in the log after position {lag.position:,}: "
            f"promote with --without-home, or wait for {lag.home!r}"
        )
    home = lag.home if lag is not None else ""
    async with _brokers(config, home if answers else "") as (here, there):
        cut = await regions.promote(here, config.workspace, there if answers else None)
    text = f"region {own!r} is the home of workspace {config.workspace!r} after position {cut:,}"
    text += f"; it has all that {home!r} accepted" if answers else ""
    output.show({"region": own, "former": home, "cut": cut, "complete": answers}, text)
