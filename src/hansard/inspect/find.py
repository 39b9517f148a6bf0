"""From what was typed to what is meant: a run, an event, an approval."""

from __future__ import annotations

import re

from hansard.agents import run_index
from hansard.agents.workspace import Workspace
from hansard.bus.errors import NotFound
from hansard.domain.choices import counted
from hansard.domain.errors import CallerError

CANDIDATES_MAX = 8
"""How many runs an ambiguous prefix shows."""

ID_CHARACTERS = 36
"""Of a whole id: a UUID."""

RUN_REMEDY = "see 'hansard runs'"

_ADDRESS = re.compile(r"(?P<position>[0-9]{1,18})\.(?P<index>[0-9]{1,9})")


class Ambiguous(CallerError):
    """A prefix that several runs have."""

    def __init__(self, prefix: str, runs: list[str]) -> None:
        shown = "\n  ".join(sorted(runs)[:CANDIDATES_MAX])
        more = len(runs) - CANDIDATES_MAX
        super().__init__(
            f"{counted(len(runs), 'run')} begin with {prefix!r}: "
            f"give more of the id, or 'last'\n  {shown}"
            + (f"\n  and {more} more" if more > 0 else "")
        )
        self.prefix = prefix
        self.runs = runs


async def find_run(workspace: Workspace, text: str) -> str:
    """A run from its id, a prefix that no other run has, or `last`, the newest that is no fork of a
    probe. Raises NotFound, Ambiguous.
    """
    if text == "last":
        newest = [life for life in await run_index.read(workspace.log) if life.probe is None]
        if not newest:
            raise NotFound("the last run", f"workspace {workspace.log.workspace!r} has no runs yet")
        return newest[0].run
    known = await workspace.log.runs()
    if text in known:
        return text
    return only([run for run in known if text and run.startswith(text)], text)


def only(found: list[str], text: str) -> str:
    """The only run of those that were found. Raises NotFound, Ambiguous."""
    if not found:
        raise NotFound(f"run {text!r}", RUN_REMEDY)
    if len(found) > 1:
        raise Ambiguous(text, found)
    return found[0]


def address(text: str) -> tuple[int, int] | None:
    """Position and index of an event's address; None for what is none."""
    found = _ADDRESS.fullmatch(text)
    return (int(found["position"]), int(found["index"])) if found is not None else None
