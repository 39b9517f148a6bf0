"""Events of runs as files: `runs/RUN/summary.md` and others, derived from the log on each read and
limited to events that the reader's role may see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from hansard.agents.access.roles import DerivedView, derive_from
from hansard.bus.errors import NotFound
from hansard.bus.log import AtPosition
from hansard.domain.errors import BadValue
from hansard.domain.label import Confidentiality
from hansard.domain.memory.events import digest_of
from hansard.domain.memory.lines import FileText
from hansard.domain.memory.paths import RUNS
from hansard.domain.memory.space import MemoryFile
from hansard.domain.roles.model import RoleDefined, RoleRule
from hansard.domain.roles.view import Line, ShownState
from hansard.state.replay import States

FILES = ("decisions.md", "messages.md", "state.json", "summary.md", "trace.txt")
"""The files of a run."""

RUNS_MAX = 500
"""Most runs whose files are listed or searched at once: each run is read whole."""

ALL = RoleDefined(sees=(RoleRule("all", kinds=("**",)),), clearance=Confidentiality.SECRET.value)
"""Rules of a role without a definition: it sees everything."""


def run_of(path: str) -> tuple[str, str] | None:
    """Return the run and the file name in a path below `runs`; None for another path."""
    match path.split("/"):
        case [folder, run, name] if folder == RUNS and name in FILES:
            return run, name
        case _:
            return None


async def derive(states: States, role: str, rules: RoleDefined | None, run: str) -> DerivedView:
    """Derive the part of a run that a role may see now. Raises NotFound if there is no such run or
    the role may see nothing of it, and BadValue if a mask of the role hashes.
    """
    position = await states.log.end(None)
    history = await states.history(run, AtPosition(position))
    found = derive_from(role, run, history, rules, "", position, None)
    if not found.view.events:
        raise NotFound(f"run {run}", "see 'hansard runs'")
    return found


def are_in(pattern: str) -> bool:
    """Return whether a folder or glob names files of runs: it begins with their folder."""
    return pattern.partition("/")[0] == RUNS


async def files(
    states: States, role: str, rules: RoleDefined | None, is_wanted: Callable[[str], bool]
) -> list[MemoryFile]:
    """Return the files of all runs whose path matches, limited to what a role may see. Raises
    BadValue for too many runs.
    """
    runs: dict[str, list[str]] = {}
    for run in sorted(await states.log.runs()):
        names = [name for name in FILES if is_wanted(f"{RUNS}/{run}/{name}")]
        if names and "/" not in run:
            runs[run] = names
    if len(runs) > RUNS_MAX:
        fact = f"files of {len(runs):,} runs match, the limit is {RUNS_MAX}"
        raise BadValue(f"{RUNS}/", fact, f"name fewer, such as '{RUNS}/{next(iter(runs))}/**'")
    listed_files: list[MemoryFile] = []
    for run, names in runs.items():
        try:
            made = await derive(states, role, rules, run)
        except NotFound:
            continue
        for name in names:
            path = f"{RUNS}/{run}/{name}"
            text = text_of(name, run, made.view.events, made.view.state)
            digest = digest_of(text)
            listed_files.append(
                MemoryFile(
                    path=path,
                    body=FileText(text),
                    digest=digest,
                    version=0,
                    label=made.label,
                    size=len(text),
                )
            )
    return listed_files


def text_of(name: str, run: str, lines: Iterable[Line], state: ShownState) -> str:
    """Return the text of a file."""
    match name:
        case "summary.md":
            parts = _summary(run, state)
        case "messages.md":
            parts = _messages(state)
        case "decisions.md":
            parts = _decisions(lines)
        case "trace.txt":
            parts = _trace(lines)
        case _:
            text = msgspec.json.format(msgspec.json.encode(state, order="deterministic"), indent=2)
            return text.decode() + "\n"
    return "".join(f"{part}\n" for part in parts)


def _summary(run: str, state: ShownState) -> Iterator[str]:
    yield f"# Run {run}"
    yield ""
    for name in ("workflow", "status"):
        if state.run.get(name):
            yield f"- {name}: {state.run[name]}"
    for name, agent in sorted(state.agents.items()):
        outcome = agent.outcome or "at work"
        yield (
            f"- agent {name} ({agent.role}): {outcome}, steps {agent.steps}, "
            f"decisions {agent.decisions}"
        )
    for key in sorted(state.board):
        yield f"- shared state {key}: {state.board[key].kind}"


def _messages(state: ShownState) -> Iterator[str]:
    for agent, messages in sorted(state.context.items()):
        yield f"# {agent}"
        for message in messages:
            content = message.get("content")
            yield f"\n## {message.get('role', '')}\n"
            yield content if isinstance(content, str) else _words(content)


def _decisions(lines: Iterable[Line]) -> Iterator[str]:
    yield "# Decisions"
    for _, line in lines:
        if line.type.rpartition(".")[0] != "decision.made":
            continue
        value = _data(line.data)
        because = f": {value['because']}" if value.get("because") else ""
        yield f"- {line.agent}: {value.get('question', '')} {value.get('selected', '')}{because}"


def _trace(lines: Iterable[Line]) -> Iterator[str]:
    for number, line in lines:
        value = _data(line.data)
        step = f" #{value['step']}" if "step" in value else ""
        tool = f" {value['tool']}" if isinstance(value.get("tool"), str) else ""
        yield f"{number} {line.agent or '-'} {line.type}{step}{tool}"


def _data(raw: msgspec.Raw) -> dict[str, Any]:
    fields = msgspec.json.decode(raw)
    return fields if isinstance(fields, dict) else {}


def _words(value: object) -> str:
    return msgspec.json.encode(value).decode()
