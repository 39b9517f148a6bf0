"""Runs of several agents that stay valid logs, whatever is left out or put in."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import strategies as st

from hansard.bus.commits import encode, record
from hansard.bus.log import Stored
from hansard.domain import access, agent, board, run, steps
from hansard.domain.events import Actor, Commit, Event
from hansard.domain.ids import AgentStream, KeyStream, RunStream, StreamId
from hansard.domain.label import parse
from hansard.domain.steps import Effects, Failure
from hansard.domain.values import dump
from tests.domain import strategies

RUN = "r"
ROSTER = {
    "r1": "researcher",
    "r2": "researcher",
    "a1": "analyzer",
    "w1": "writer",
    "x1": "outsider",
}
KEYS = ("findings/a", "findings/b", "scores/1", "secret", "findings-old/a")
KINDS = (
    "step",
    "failed",
    "message",
    "decision",
    "hand_off",
    "checkpoint",
    "put",
    "add",
    "append",
    "served",
)
LABELS = ("", "", "untrusted", "internal", "secret untrusted")
AT = datetime(2026, 11, 21, tzinfo=UTC)


class Act(msgspec.Struct, frozen=True):
    """One agent's action: its values, the acts it refers to, and its commit's label."""

    number: int
    agent: str
    kind: str
    key: str = "findings/a"
    one: Any = None
    two: Any = None
    refs: tuple[int, ...] = ()
    label: str = ""


def acts(numbers: st.SearchStrategy[int]) -> st.SearchStrategy[Act]:
    """Draw an act of any agent."""
    values = st.one_of(
        strategies.text,
        st.fixed_dictionaries(
            {},
            optional={"title": strategies.text, "price": st.integers(0, 9), "x": strategies.text},
        ),
        st.lists(st.fixed_dictionaries({"title": strategies.text}), max_size=2),
    )
    return st.builds(
        Act,
        number=numbers,
        agent=st.sampled_from(sorted(ROSTER)),
        kind=st.sampled_from(KINDS),
        key=st.sampled_from(KEYS),
        one=values,
        two=values,
        refs=st.lists(st.integers(0, 15), max_size=3).map(tuple),
        label=st.sampled_from(LABELS),
    )


worlds: st.SearchStrategy[list[Act]] = st.lists(acts(st.just(0)), min_size=4, max_size=16).map(
    lambda drawn: [msgspec.structs.replace(each, number=n) for n, each in enumerate(drawn)]
)


class _Builder:
    def __init__(self) -> None:
        self.history: list[Stored] = []
        self._versions: dict[StreamId, int] = {}
        self._steps: dict[str, int] = {}
        self._step_of: dict[int, tuple[str, int]] = {}
        self._kinds: dict[str, str] = {}
        self._board: dict[str, int] = {}
        self._ids: dict[int, str] = {}

    def tell(
        self, stream: StreamId, actor: str, mark: str, events: Sequence[Event], label: str = ""
    ) -> None:
        """Append a commit; ids and time follow from the mark."""
        version = self._versions.get(stream, 0)
        self._versions[stream] = version + len(events)
        seconds = sum(mark.encode())
        commit = Commit(
            id=f"c-{mark}",
            version=version + 1,
            at=AT + timedelta(seconds=seconds),
            actor=Actor(actor),
            label=parse(label).stored,
            events=tuple(record(each, f"e-{mark}-{n}") for n, each in enumerate(events)),
        )
        position = len(self.history) + 1
        self.history.append(Stored(position, position, stream, commit, encode(stream, commit)))

    def join(self, name: str) -> None:
        """Append an agent's first commit, and its roster entry."""
        role = ROSTER[name]
        self.tell(RunStream(RUN), name, f"join-{name}", [run.AgentJoined(agent=name, role=role)])
        began = agent.SessionBegan(
            epoch=1, agent=name, role=role, server_version="1", protocol_version="1"
        )
        self.tell(AgentStream(RUN, role, name), name, f"began-{name}", [began])

    def act(self, act: Act) -> None:
        """Append an act as events to their stream."""
        stream: StreamId = AgentStream(RUN, ROSTER[act.agent], act.agent)
        events = self._events(act)
        if act.kind in ("put", "add", "append"):
            # What a key holds is fixed by its first write: another kind of thing has another key.
            key = act.key if act.kind == "put" else f"{act.key}-{act.kind}"
            stream = KeyStream(RUN, key)
            self._board[key] = self._board.get(key, 0) + 1
        if act.kind == "served":
            stream = KeyStream(RUN, access.key_of(ROSTER[act.agent]))
        self.tell(stream, act.agent, f"{act.number}", events, act.label)
        self._ids[act.number] = f"e-{act.number}-0"

    def _events(self, act: Act) -> list[Event]:
        one, two, mark = dump(act.one), dump(act.two), f"f{act.number}"
        role = ROSTER[act.agent]
        mine = (self._step_of[ref] for ref in act.refs if ref in self._step_of)
        after = tuple(number for name, number in mine if name == act.agent)
        match act.kind:
            case "step" | "failed":
                number = self._steps[act.agent] = self._steps.get(act.agent, 0) + 1
                self._step_of[act.number] = act.agent, number
                requested = steps.StepRequested(
                    step=number,
                    tool="search",
                    effects=Effects.PURE,
                    arguments=msgspec.Raw(b'{"query":' + bytes(one) + b"}"),
                    call=mark,
                    fingerprint=f"{mark}-{number}",
                    after=after,
                )
                if act.kind == "step":
                    size = {"output_tokens": float(len(bytes(two)))}
                    done = steps.StepCompleted(step=number, result=two, digest=mark, usage=size)
                    return [requested, done]
                error = Failure("ValueError", bytes(two).decode())
                return [requested, steps.StepFailed(step=number, error=error, digest=mark)]
            case "message":
                return [agent.MessageAdded(role="user", content=one, fingerprint=mark, fields=two)]
            case "decision":
                ids = tuple(self._ids[ref] for ref in act.refs if ref in self._ids)
                return [
                    agent.DecisionMade(
                        question="which?",
                        selected=bytes(one).decode(),
                        fingerprint=mark,
                        inputs=ids,
                        because=bytes(two).decode(),
                        after=after,
                    )
                ]
            case "hand_off":
                return [agent.HandedOff(to="analyzer", fingerprint=mark, payload=one, after=after)]
            case "checkpoint":
                return [agent.CheckpointSaved(name=mark, data=one, fingerprint=mark, after=after)]
            case "put":
                expected = self._board.get(act.key, 0)
                return [board.ValuePut(value=one, role=role, expected=expected)]
            case "add":
                return [board.AmountAdded(amount=len(bytes(one)), role=role)]
            case "append":
                return [board.ItemAppended(item=one, role=role)]
            case _:
                seen = {"life": f"1-{len(self.history)}"}
                at = self.history[-1].commit.id
                served = access.ViewServed(
                    role=role, agent=act.agent, at=at, events=9, seen=seen, digest=mark
                )
                return [served]


def build(acts_of_run: Sequence[Act]) -> list[Stored]:
    """Return the history of a run in which these acts happened, in this order."""
    made = _Builder()
    started = run.RunStarted(workflow="papers", labels={"team": "x"})
    made.tell(RunStream(RUN), "r1", "start", [started])
    joined = set(ROSTER) - {"x1"}  # who comes late may be somebody of whom a role knows nothing
    for name in sorted(joined):
        made.join(name)
    for act in acts_of_run:
        if act.agent not in joined:
            joined.add(act.agent)
            made.join(act.agent)
        made.act(act)
    return made.history
