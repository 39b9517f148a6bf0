"""`hansard board`: the shared state of a run at a point, and the history of one of its keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
import typer

from hansard.cli import output
from hansard.cli.common import At, Json, Run, noun, work
from hansard.cli.opening import reading_run
from hansard.cli.output import Column, Hint, Part
from hansard.domain.choices import counted
from hansard.inspect.payloads import Payloads, recorded
from hansard.inspect.team import Key, KeyHistory, Keys, Write, key_history, keys

app = noun()

HISTORY_SHOWN_MAX = 50
"""Writes of a key that people are shown, the newest; `--json` has all."""


@app.command()
@work
async def board(
    which: Run,
    key: Annotated[
        str | None,
        typer.Argument(metavar="[KEY]", help="What it holds, whole, and its writes; else all."),
    ] = None,
    at: At = None,
    json: Json = False,
) -> None:
    """Show the state that a run's agents share.

    Now, or at any point (--at).
    """
    async with reading_run(which) as (workspace, run):
        up_to = await workspace.points.up_to(run, at)
        if key is None:
            output.show(await keys(workspace, run, up_to), _list, json=json)
            return
        fetch = Payloads(workspace)
        found = await key_history(workspace, run, key, up_to, fetch)
    output.hint_erased(fetch)
    output.show(found, _key, json=json)


def _value(write: Write) -> str:
    """What was written, in short."""
    if isinstance(write.value, msgspec.Raw):
        return output.preview(recorded(write.value))
    return "" if write.value in (None, msgspec.UNSET) else str(write.value)


KEYS = (
    Column("key", whole=True),
    Column("kind"),
    Column("version", right=True),
    Column("author", short=True),
    Column("role", short=True),
    Column("value", lambda key: output.preview(key.value)),
    Column("expires", lambda key: output.time(key.expires)),
)
WRITES = (
    Column("version", right=True),
    Column("operation", whole=True),
    Column("author", short=True),
    Column("role", short=True),
    Column("value", _value),
    Column("position", right=True),
    Column("time", lambda write: output.time(write.time), whole=True),
)


def _list(found: Keys) -> Iterator[Part]:
    if found.keys:
        yield output.listing(KEYS, found.keys)
    yield Hint(
        f"{counted(len(found.keys), 'key')} of run {found.run} as of position {found.position}"
    )


def _key(found: KeyHistory) -> Iterator[Part]:
    now = found.now
    rows: list[tuple[str, object]] = [("key", now.key), ("run", now.run)]
    if isinstance(now, Key):
        labels = ", ".join(f"{name}={text}" for name, text in now.labels.items())
        rows += [("holds", now.kind), ("version", now.version)]
        rows += [("written by", f"{now.author} ({now.role})"), ("labels", labels)]
        rows += [("expires", output.time(now.expires))]
    else:
        rows.append(("holds", "nothing: removed or expired"))
    yield output.pairs([*rows, ("as of", f"position {now.position}")])
    if isinstance(now, Key):
        yield ""
        yield msgspec.json.format(msgspec.json.encode(now.value), indent=2).decode()
    yield ""
    yield output.listing(WRITES, found.writes[-HISTORY_SHOWN_MAX:])
    if len(found.writes) > HISTORY_SHOWN_MAX:
        count = counted(len(found.writes), "write")
        yield Hint(f"the newest {HISTORY_SHOWN_MAX} of {count}: --json has all")
