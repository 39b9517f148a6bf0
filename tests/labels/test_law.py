"""The law of labels, on generated histories: what an agent commits is labelled at least as high as
all that it was shown before, and it is labelled no higher than that.

What each agent was shown is counted here apart, from what its calls gave it.
"""

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hansard
from hansard.client.record import Record
from hansard.domain.ids import AgentStream
from hansard.domain.label import LOWEST, Label, join, parse
from tests.labels.support import apply_roles, history

pytestmark = pytest.mark.slow

AGENTS = ("ada", "bob", "cyd")
GIVEN = ("", "internal", "untrusted", "secret", "confidential untrusted")
_runs = itertools.count(1)

who = st.sampled_from(AGENTS)
acts = st.one_of(
    st.tuples(st.sampled_from(["tool", "fails", "message"]), who, st.sampled_from(GIVEN)),
    st.tuples(
        st.sampled_from(["put", "get", "resolve", "remove", "move"]), who, st.sampled_from("kl")
    ),
    st.tuples(st.sampled_from(["add", "count", "mail", "task"]), who, who),
    st.tuples(
        st.sampled_from(
            ["keys", "decide", "inbox", "claim", "complete", "tasks", "view", "resume"]
        ),
        who,
        st.just(""),
    ),
    st.tuples(st.just("declassify"), who, st.sampled_from(["", "untrusted", "internal"])),
)


# Something labelled that is shared in every way, so that it is there to be read.
shared = st.builds(
    lambda label, tool: [
        ("tool" if tool else "message", "ada", label),
        *(("put", "ada", "k"), ("add", "ada", "bob")),
        *(("mail", "ada", "bob"), ("task", "ada", "bob")),
    ],
    st.sampled_from(GIVEN[1:]),
    st.booleans(),
)


class World:
    """A run of three agents, each one's input, and the sources of all shared state."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.run = f"law-{next(_runs)}"
        self.shown = dict.fromkeys(AGENTS, LOWEST)
        self.keys: dict[str, Label] = {}
        self.tasks: dict[str, Label] = {}
        self.mail: list[tuple[str, Label]] = []
        self.claims: dict[str, list[Any]] = {name: [] for name in AGENTS}
        self.position = 0
        self.opened = 0
        self.resumed: set[str] = set()
        self._stacks: dict[str, contextlib.ExitStack] = {}
        self.sessions: dict[str, Any] = {}

    def open(self, name: str) -> None:
        """Begin an agent's session, or resume it."""
        stack = self._stacks[name] = contextlib.ExitStack()
        opened = self.record.run("law", run=self.run, agent=name, role="researcher")
        session = self.sessions[name] = stack.enter_context(opened)
        self.opened += 1
        if self.opened > len(AGENTS):
            self.resumed.add(name)
            # A new call, so that the following calls run instead of being replayed.
            session.tool(effects="pure", name="fresh")(lambda x: x)(self.opened)

    def close(self, name: str) -> None:
        """End an agent's session."""
        self._stacks.pop(name).close()

    def see(self, name: str, *labels: Label | None) -> None:
        """Note labels that an agent was shown."""
        self.shown[name] = join(self.shown[name], *labels)

    def act(self, number: int, kind: str, name: str, what: str) -> None:
        """Perform an action and record what it showed; a resumed session is shown it again."""
        if kind in ("inbox", "claim", "remove") and name in self.resumed:
            return
        getattr(self, f"_{kind}")(self.sessions[name], name, what, number)

    def check(self, before: dict[str, Label]) -> None:
        """Check each new commit's label against all that its agent was shown."""
        news = [each for each in history(self.record, self.run) if each.position > self.position]
        for stored in news:
            author, label = stored.commit.actor.agent, stored.commit.label or LOWEST
            if author in AGENTS:
                assert join(label, before[author]) == label, stored
        last = {each.stream: each for each in news if isinstance(each.stream, AgentStream)}
        for stream, stored in last.items():
            assert (stored.commit.label or LOWEST) == self.shown[stream.agent], stored
        for name, session in self.sessions.items():
            assert session.label == self.shown[name]
        self.position = news[-1].position if news else self.position

    # ------------------------------------------------------------ acts

    def _tool(self, session: Any, name: str, what: str, number: int) -> None:
        session.tool(effects="pure", name=f"tool{what}", gives=what)(lambda x: x)(number)
        self.see(name, parse(what))

    def _fails(self, session: Any, name: str, what: str, number: int) -> None:
        @session.tool(effects="once", name=f"fails{what}", gives=what)
        def fails(x: int) -> None:
            raise ValueError(x)

        with pytest.raises(ValueError, match=str(number)):
            fails(number)
        self.see(name, parse(what))

    def _message(self, session: Any, name: str, what: str, number: int) -> None:
        session.message("user", number, label=what)
        self.see(name, parse(what))

    def _decide(self, session: Any, _: str, __: str, number: int) -> None:
        session.decide(f"{number}?", selected="yes")

    def _put(self, session: Any, name: str, what: str, number: int) -> None:
        session.board.put(what, number, expected="any")
        self.keys[what] = self.shown[name]

    def _resolve(self, session: Any, name: str, what: str, number: int) -> None:
        try:
            session.board.put(what, number, expected=1_000_000, resolve=lambda mine, _: mine)
        finally:
            self.see(name, self.keys.get(what))
        self.keys[what] = self.shown[name]

    def _remove(self, session: Any, name: str, what: str, _: int) -> None:
        if session.board.remove(what, expected="any"):
            self.keys[what] = self.shown[name]  # that it is gone tells that somebody removed it

    def _get(self, session: Any, name: str, what: str, _: int) -> None:
        session.board.get(what)
        self.see(name, self.keys.get(what))

    def _move(self, session: Any, name: str, what: str, number: int) -> None:
        with session.board.transaction() as tx:
            tx.put("m", [tx.get(what), number], expected="any")
        self.see(name, self.keys.get(what))
        self.keys["m"] = self.shown[name]

    def _add(self, session: Any, name: str, _: str, number: int) -> None:
        label = join(self.keys.get("n"), self.shown[name])
        session.board.add("n", number)
        self.keys["n"] = label
        self.see(name, label)

    def _count(self, session: Any, name: str, _: str, __: int) -> None:
        session.board.get("n")
        self.see(name, self.keys.get("n"))

    def _keys(self, session: Any, name: str, _: str, __: int) -> None:
        keys = session.board.keys()
        self.see(name, *(self.keys[key] for key in keys))

    def _mail(self, session: Any, name: str, what: str, number: int) -> None:
        session.team.send(number, agent=what)
        self.mail.append((what, self.shown[name]))

    def _inbox(self, session: Any, name: str, _: str, __: int) -> None:
        messages = session.team.inbox()
        mine = [label for to, label in self.mail if to == name]
        self.mail = [each for each in self.mail if each[0] != name]
        assert len(messages) == len(mine)
        self.see(name, *mine)

    def _task(self, session: Any, name: str, what: str, number: int) -> None:
        self.tasks[session.team.add(f"t{number}", agent=what)] = self.shown[name]

    def _claim(self, session: Any, name: str, _: str, __: int) -> None:
        task = session.team.claim()
        if task is not None:
            self.see(name, self.tasks[task.id])
            self.claims[name].append(task)

    def _complete(self, session: Any, name: str, _: str, number: int) -> None:
        if self.claims[name]:
            task = self.claims[name].pop()
            session.team.complete(task, number)
            self.tasks[task.id] = join(self.tasks[task.id], self.shown[name])

    def _tasks(self, session: Any, name: str, _: str, __: int) -> None:
        self.see(name, *(self.tasks[task.id] for task in session.team.tasks()))

    def _view(self, session: Any, name: str, _: str, __: int) -> None:
        before = history(self.record, self.run)
        ids = {line.id for _, line in session.view().events}
        shown = [s for s in before if ids & {each.id for each in s.commit.events}]
        assert len(shown) > len(AGENTS)
        self.see(name, *(stored.commit.label for stored in shown))

    def _resume(self, _: Any, name: str, __: str, ___: int) -> None:
        self.close(name)
        self.open(name)

    def _declassify(self, _: Any, name: str, what: str, __: int) -> None:
        to, current = parse(what), self.shown[name]
        self.close(name)
        if to != current and join(to, current) == current:
            self.record.roles.declassify(
                self.run, agent=name, to=what, approver="eve", reason="law"
            )
            self.shown[name] = to
        self.open(name)


@pytest.fixture(scope="module")
def law_record(data_dir) -> Iterator[Record]:
    """Yield one workspace for all examples, each of which is a run."""
    with hansard.connect("labels-law", data_dir=data_dir) as opened:
        apply_roles(opened)
        yield opened


@given(shared, st.lists(acts, min_size=6, max_size=18))
@settings(max_examples=max(6, settings().max_examples // 3 - 4), deadline=None)
def test_what_is_committed_is_labelled_by_all_that_was_shown_before(law_record, begun, then):
    """A commit's label covers earlier input of all writers, streams and sessions."""
    world = World(law_record)
    for name in AGENTS:
        world.open(name)
    world.check(dict(world.shown))
    for number, (kind, name, what) in enumerate([*begun, *then]):
        before = dict(world.shown)
        world.act(number, kind, name, what)
        if kind == "declassify":
            before[name] = world.shown[name]
        world.check(before)
    for name in AGENTS:
        world.close(name)
