"""Pairs of runs that differ in what a role may not see, by construction, done by real sessions.

A pair is a list of moments. At most moments an agent that the role sees does something, the same in
both runs; at the others agents that it does not see do one list of things in the one run, and
another one in the other.
"""

import contextlib
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import msgspec
from hypothesis import strategies as st

import hansard
from hansard.agents.policy.approvals import Approvals
from hansard.bus.portal import portal
from hansard.client.session import Session
from hansard.domain.approval import ApprovalGranted, ApprovalRequested
from hansard.domain.values import dump

SECRET = "planted-4711"
"""Text in every statement of an unseen agent, and in no answer."""

SEEN = {"bob": "writer", "carl": "writer"}
UNSEEN = {"eve": "boss", "zoe": "boss", f"fay {SECRET}": "boss"}
"""Agents that the role does not see; the last begins with its first act, and is unknown before."""

APPROVAL = "0" * 32
"""Id of an unseen agent's first approval."""

ROLES = """
[roles.writer]
sees = [
    { name = "own work", roles = ["writer"] },
    { name = "findings", kinds = ["board.*"], keys = ["findings/**"] },
]
[roles.writer.may]
tools = ["**"]
kinds = ["**"]
keys = ["findings/**"]
settle = true
approve = true
query = true
view = ["clerk"]
[roles.clerk]
sees = [{ name = "what writers say", kinds = ["message.*"], roles = ["writer"] }]
[roles.boss]
clearance = "secret"
sees = [{ name = "all", kinds = ["**"] }]
may = { tools = ["**"], kinds = ["**"], keys = ["**"] }
"""


class Act(msgspec.Struct, frozen=True):
    """An act of an agent; `name` and `value` are its arguments."""

    agent: str
    kind: str
    name: str
    value: Any


class Moment(msgspec.Struct, frozen=True):
    """Events of the one run, and of the other."""

    one: tuple[Act, ...]
    other: tuple[Act, ...]


_COMMON = ("message", "checkpoint", "decide", "tool", "failing", "put", "append", "add", "remove")
_TEAM = ("task", "task", "claim", "complete", "mail", "hand_off")
HIDDEN = (*_COMMON, *_TEAM, "doubt", "labelled", "approval", "grant", "elsewhere")
_values = st.sampled_from([0, 7, "x", [1, 2], {"a": 1}, None])
_seen_acts = st.builds(
    Act,
    agent=st.sampled_from(sorted(SEEN)),
    kind=st.sampled_from((*_COMMON, *_TEAM)),
    name=st.sampled_from("abc"),
    value=_values,
)
_unseen_acts = st.lists(
    st.builds(
        Act,
        agent=st.sampled_from(sorted(UNSEEN)),
        kind=st.sampled_from(HIDDEN),
        name=st.sampled_from("abc"),
        value=_values,
    ),
    max_size=4,
).map(tuple)
_moments = st.one_of(
    _seen_acts.map(lambda act: Moment((act,), (act,))),
    st.builds(Moment, one=_unseen_acts, other=_unseen_acts),
)
pairs: st.SearchStrategy[list[Moment]] = st.lists(_moments, min_size=3, max_size=10)
"""Some pairs."""


def kinds_of(pair: Sequence[Moment]) -> set[str]:
    """Return the kinds of acts of unseen agents that occur in one of the runs only."""
    return {
        act.kind
        for moment in pair
        for act in (*moment.one, *moment.other)
        if moment.one != moment.other
    }


class Cast:
    """The agents of one run, each with a trusted session of its own that begins when it acts."""

    def __init__(self, record: hansard.Record, run: str) -> None:
        self._record = record
        self._run = run
        self._stack = contextlib.ExitStack()
        self._sessions: dict[str, Session] = {}
        self._tasks: dict[str, Any] = {}
        self._others = 0
        for name in sorted(SEEN):
            self._session(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _session(self, name: str) -> Session:
        if name not in self._sessions:
            role = {**SEEN, **UNSEEN}[name]
            opened = self._record.run("w", run=self._run, agent=name, role=role)
            self._sessions[name] = self._stack.enter_context(opened)
        return self._sessions[name]

    def do(self, acts: Sequence[Act]) -> None:
        """Perform the acts; refusals are ignored."""
        for act in acts:
            with contextlib.suppress(hansard.HansardError, TimeoutError, ValueError):
                self._do(act, self._session(act.agent))

    def _do(self, act: Act, session: Session) -> None:
        hidden = act.agent in UNSEEN
        text = f"{SECRET} {act.value}" if hidden else f"{act.value}"
        key = f"plans/{act.name}" if hidden else f"findings/{act.name}"
        match act.kind:
            case "message":
                session.message("user", text)
            case "labelled":
                session.message("user", text, label="secret untrusted")
            case "checkpoint":
                session.checkpoint(act.name, value=text)
            case "decide":
                session.decide("which?", selected=text, reason=text)
            case "tool" | "failing" | "doubt":
                _call(session, act.kind, text)
            case "put":
                session.board.put(key, [act.value, text], expected="any")
            case "append":
                session.board.append(key, text)
            case "add":
                session.board.add(f"{key}-n", len(text))
            case "remove":
                session.board.remove(key, expected="any")
            case "hand_off":
                session.hand_off("zoe" if hidden else "carl", reason=text)
            case _:
                self._with_others(act, session, text, role="boss" if hidden else "writer")

    def _with_others(self, act: Act, session: Session, text: str, role: str) -> None:
        match act.kind:
            case "task":
                name = f"hidden-{act.name}" if role == "boss" else act.name
                session.team.add(text, role=role, task=name)
            case "claim":
                task = session.team.claim()
                if task is not None:
                    self._tasks[act.agent] = task
            case "complete":
                task = self._tasks.pop(act.agent, None)
                if task is not None:
                    session.team.complete(task, text)
            case "mail":
                session.team.send(text, role=role)
            case "approval" | "grant":
                portal().run(self._ask(act, text))
            case "elsewhere":
                self._others += 1
                other = f"{self._run}-hidden" if self._others == 1 else None
                labels = {"n": SECRET}
                with self._record.run("o", run=other, agent="eve", role=role, labels=labels) as it:
                    it.checkpoint("x", n=text)
            case _:
                raise AssertionError(act)

    async def _ask(self, act: Act, text: str) -> None:
        """State a question as a session does, or its answer."""
        approvals = Approvals(self._record.workspace.states, self._run)
        if act.kind == "grant":
            await approvals.record(ApprovalGranted(approval=APPROVAL, by="zoe"), "zoe")
            return
        question = ApprovalRequested(
            approval=APPROVAL,
            agent="eve",
            role="boss",
            step=1,
            tool="send",
            arguments=dump({"to": text}),
            call="c",
            fingerprint=text,
            rule=SECRET,
            timeout_ms=60_000,
        )
        await approvals.record(question, "eve")


def _call(session: Session, kind: str, text: str) -> None:
    """Call a tool that succeeds, fails, or leaves its step in doubt."""

    def act(text: str) -> str:
        if kind == "failing":
            raise ValueError(text)
        if kind == "doubt":
            raise TimeoutError(text)
        return text

    session.tool(effects="once" if kind == "doubt" else "pure", name=kind)(act)(text)
