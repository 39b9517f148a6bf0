"""`hansard run show`: the state of a run at a point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
from rich.text import Text

from hansard.agents.workspace import Workspace
from hansard.bus import quarantine
from hansard.bus.errors import NotFound
from hansard.bus.log import AtPosition, Stored
from hansard.bus.states import RunView
from hansard.commands import _look, _look_message, _show, _snapshots
from hansard.commands._look import Clock
from hansard.commands._open import Options, find_run, reading
from hansard.domain.agent import AgentState
from hansard.domain.errors import UnknownEvent
from hansard.domain.ids import AgentStream
from hansard.domain.run import RunState
from hansard.domain.steps import Step

KEYS_SHOWN_MAX = 200
"""Characters of the names of shared keys; `hansard board` has all."""


class What(msgspec.Struct, frozen=True, kw_only=True):
    """Which run, at which point, which of its agents, and in which shape."""

    run: str
    at: str | None = None
    agent: str | None = None
    snapshot: bool = False
    snapshots: bool = False
    json: bool = False


async def show(options: Options, what: What) -> int:
    """Print a run's state at a point. Raises NotFound, BadName, UnknownEvent, Corrupt."""
    async with reading(options) as workspace:
        run = await find_run(workspace, what.run)
        up_to = await workspace.points.up_to(run, what.at)
        try:
            view = await workspace.states.run(run, up_to)
        except UnknownEvent as error:
            if not what.json:
                raise
            _show.hint(str(error))
            _raw(await workspace.states.history(run, up_to))
            return 0
        history = await workspace.states.history(run, AtPosition(view.position))
        if what.agent is not None:
            view.agents = {what.agent: view.agent(what.agent)}
        if what.snapshot or what.snapshots:
            return await _snapshot(workspace, view, history, what)
    if what.json:
        for line in lines(view, history):
            _show.emit(line)
    else:
        _print(view, history)
    return 0


def _raw(history: list[Stored]) -> None:
    """The commits with their exact bytes, where a state cannot be made of them."""
    for stored in history:
        _show.emit(
            {
                "kind": "commit",
                "position": stored.position,
                "time": stored.time.isoformat(),
                "stream": str(stored.stream),
                "body": msgspec.Raw(stored.body),
            }
        )


async def _snapshot(workspace: Workspace, view: RunView, history: list[Stored], what: What) -> int:
    if not view.agents:
        raise NotFound(f"an agent in run {view.run}", "none had begun at this point")
    for agent in view.agents:
        commits = [
            stored
            for stored in history
            if isinstance(stored.stream, AgentStream) and stored.stream.agent == agent
        ]
        chain = _snapshots.chain if what.snapshots else _snapshots.newest
        async for snapshot in chain(workspace, commits):
            if what.json:
                _show.emit(snapshot)
            else:
                _show.write(msgspec.json.format(msgspec.json.encode(snapshot), indent=2).decode())
    return 0


# ---------------------------------------------------------------- for programs


def lines(view: RunView, history: list[Stored]) -> Iterator[dict[str, Any]]:
    """The run, then each agent, as one object each."""
    life, own = view.life, _look.own(view.run, history)
    yield {
        "kind": "run",
        "run": view.run,
        "position": history[-1].position,
        "time": history[-1].time.isoformat(),
        "origin": history[-1].origin,
        "started": own[0].time.isoformat(),
        "began": _look.began(own).data,
        "last": _look.last(own).data,
        "workflow": life.workflow,
        "status": life.status.value,
        "program": life.program,
        "conversation": life.conversation_id,
        "labels": life.labels,
        "assigned": life.assigned,
        "scores": life.scores,
        "judged": life.judged,
        "error": life.error,
        "forked": life.forked,
        "vector": view.vector,
        "agents": life.roster,
        "at_work": life.missing,
        "keys": sorted(view.boards),
    }
    for name, state in view.agents.items():
        yield {"kind": "agent", "run": view.run, "agent": name, **_agent(state)}
    for stored, reason in _quarantined(history):
        yield {
            "kind": "quarantined",
            "run": view.run,
            "position": stored.position,
            "stream": str(stored.stream),
            "version": stored.commit.version,
            "reason": reason,
        }


def _quarantined(history: list[Stored]) -> list[tuple[Stored, str]]:
    """The commits that do not fit where they stand, and why: nothing of what they say counts."""
    found = [(stored, quarantine.reason(stored.commit)) for stored in history]
    return [(stored, reason) for stored, reason in found if reason]


def _agent(state: AgentState) -> dict[str, Any]:
    return {
        "role": state.role,
        "version": state.version,
        "epoch": state.epoch,
        "left": state.left,
        "turn_number": _turn(state),
        "steps": _by_status(state),
        "open_steps": [
            {
                "step": f"{state.agent}#{step.number}",
                "tool": step.tool,
                "effects": step.effects.value,
                "status": step.status.value,
                "arguments": step.arguments,
                "error": step.error,
            }
            for step in state.open_steps
        ],
        "checkpoints": {name: saved.data for name, saved in state.checkpoints.items()},
        "decisions": state.decisions,
        "messages": len(state.messages),
        "context_tokens": _look_message.total(state.messages)["tokens"],
        "resources": [
            {"uri": noted.fact.uri, "operation": noted.fact.operation}  # type: ignore[union-attr] # only resources
            for noted in state.resources
        ],
        "written_by": state.server_version,
    }


def _turn(state: AgentState) -> int:
    return state.turns_before + sum(message.role == "user" for message in state.messages)


def _by_status(state: AgentState) -> dict[str, int]:
    return dict(Counter(step.status.value for step in state.steps.values()))


# ---------------------------------------------------------------- for people


def _print(view: RunView, history: list[Stored]) -> None:
    life = view.life
    forked = life.forked
    _show.write(
        _show.pairs(
            [
                ("run", view.run),
                ("workflow", life.workflow),
                ("status", _show.status_cell(life.status.value)),
                ("at work", _at_work(life)),
                ("error", _show.failure_text(life.error) if life.error is not None else None),
                ("program", life.program),
                ("conversation", life.conversation_id),
                ("assigned", _assigned(life)),
                (
                    "scores",
                    ", ".join(f"{name} {_look.number(n)}" for name, n in life.scores.items()),
                ),
                ("judged by", ", ".join(dict.fromkeys(each.by for each in life.judged))),
                ("labels", ", ".join(f"{key}={value}" for key, value in life.labels.items())),
                ("fork of", forked and f"{forked.parent} (effects {forked.effects.value})"),
                ("shared keys", _show.cut(", ".join(sorted(view.boards)), KEYS_SHOWN_MAX)),
                *_times(view, history),
            ]
        )
    )
    if view.agents:
        _show.write("", _agents(view))
    for title, made in (
        ("open steps", _open_steps(view)),
        ("checkpoints", _checkpoints(view)),
        ("decisions", _decisions(view)),
        ("quarantined: written to this run, but not by whom it should be", _misfits(history)),
    ):
        if made is not None:
            _show.write("", Text(title, style="bold"), made)
    if any(state.open_steps for state in view.agents.values()):
        _show.hint(
            "an open step's effect may or may not have happened: look, then say so with\n"
            f"  hansard run settle {view.run} STEP --happened RESULT | --did-not-happen"
        )


def _at_work(life: RunState) -> str:
    """Whom an open run waits for: at work, or killed, which no record tells apart."""
    if not life.missing:
        return ""
    return f"{', '.join(life.missing)} (or killed: resume, or 'hansard run finish')"


def _times(view: RunView, history: list[Stored]) -> list[tuple[str, str]]:
    """When it began and when the newest was, each by its clock; the log's own is beside the
    position.
    """
    own, newest = _look.own(view.run, history), history[-1]
    last, is_import = _look.last(own), _look.is_imported(newest)
    stored = "" if is_import else f"{_show.moment(newest.time)}, "
    return [
        ("started", _look.began(own).shown),
        ("last", last.shown if last.clock is not Clock.LOG else ""),
        ("imported", _look.when_stored(newest).text if is_import else ""),
        ("copied from", _origin(newest)),
        ("as of", f"{stored}position {newest.position}"),
    ]


def _assigned(life: RunState) -> str:
    told = life.assigned
    if told is None:
        return ""
    parts = {"experiment": told.experiment, "arm": told.arm, "task": told.task, "trial": told.trial}
    return ", ".join(f"{name} {part}" for name, part in parts.items() if part not in ("", None))


def _origin(stored: Stored) -> str:
    found = stored.origin
    return f"log {found.log}, position {found.position}, {found.at}" if found is not None else ""


def _agents(view: RunView) -> Any:
    columns = (
        _show.Column("agent", whole=True),
        _show.Column("role"),
        _show.Column("version", right=True),
        _show.Column("epoch", right=True),
        _show.Column("steps"),
        _show.Column("context", right=True),
        _show.Column("session"),
    )
    rows = [
        [
            name,
            state.role,
            str(state.version),
            str(state.epoch),
            ", ".join(f"{count} {status}" for status, count in _by_status(state).items()) or "0",
            _look_message.count_text(_look_message.total(state.messages)),
            state.left or "open",
        ]
        for name, state in view.agents.items()
    ]
    return _show.table(columns, rows)


def _open_steps(view: RunView) -> Any:
    rows = [_open_row(state, step) for state in view.agents.values() for step in state.open_steps]
    names = ("step", "tool", "arguments", "effects", "status", "why")
    whole = {"step", "status"}
    return _show.table([_show.Column(n, whole=n in whole) for n in names], rows) if rows else None


def _open_row(state: AgentState, step: Step) -> list[Any]:
    return [
        f"{state.agent}#{step.number}",
        step.tool,
        _show.arguments_preview(_show.recorded(step.arguments)),
        step.effects.value,
        _show.status_cell(step.status.value),
        _show.cut(_show.failure_text(step.error)) if step.error is not None else "",
    ]


def _checkpoints(view: RunView) -> Any:
    rows = [
        [name, saved.name, _show.preview(_show.recorded(saved.data))]
        for name, state in view.agents.items()
        for saved in state.checkpoints.values()
    ]
    names = ("agent", "checkpoint", "data")
    return _show.table([_show.Column(name) for name in names], rows) if rows else None


def _misfits(history: list[Stored]) -> Any:
    rows = [
        [str(stored.position), str(stored.stream), str(stored.commit.version), _show.cut(reason)]
        for stored, reason in _quarantined(history)
    ]
    names = ("position", "stream", "version", "why")
    return _show.table([_show.Column(name) for name in names], rows) if rows else None


def _decisions(view: RunView) -> Any:
    rows = [
        [
            name,
            _show.cut(made.question),
            _show.cut(made.selected),
            "" if made.confidence is None else f"{made.confidence:g}",
            "" if made.threshold is None else f"{made.threshold:g}",
            _show.cut(made.because),
        ]
        for name, state in view.agents.items()
        for made in state.decisions
    ]
    names = ("agent", "question", "selected", "confidence", "threshold", "because")
    return _show.table([_show.Column(name) for name in names], rows) if rows else None
