"""The law of what principals carry, on generated histories through two services: what a role may
see holds nothing that a principal wrote after it was shown what the role is not cleared for, unless
somebody lowered it in between.

What each principal was shown is counted here apart, from what its calls gave it, and whatever it
writes has a word of its own: in ids of runs and tasks, names of workflows and keys, and values.
"""

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import hansard
from hansard.agents.access import roles
from hansard.broker.files import Durability
from hansard.broker.lease import join
from hansard.bus.errors import NotFound
from hansard.bus.portal import portal
from hansard.domain.label import LOWEST, Confidentiality, Label, parse
from hansard.domain.label import join as joined
from tests.service._carried import ROLES, Law
from tests.service.support import Served

pytestmark = pytest.mark.slow

LABELS = ("internal", "secret", "confidential untrusted", "untrusted")
WHO = ("ada", "fay")
WRITES = ("open", "message", "put", "append", "task", "mail", "checkpoint")
READS = ("key", "keys", "inbox", "tasks", "view", "outside", "tool", "offline")

acts = st.one_of(
    st.tuples(st.sampled_from(WRITES), st.sampled_from(WHO), st.integers(0, 1)),
    st.tuples(st.sampled_from(WRITES), st.sampled_from(WHO), st.integers(0, 1)),
    st.tuples(st.sampled_from(READS), st.sampled_from(WHO), st.integers(0, 1)),
    st.tuples(st.sampled_from(["again", "declassify"]), st.sampled_from(WHO), st.integers(0, 1)),
)
histories = st.tuples(
    st.sampled_from(LABELS),
    st.lists(acts, min_size=2, max_size=5),
    st.tuples(st.sampled_from(READS), st.sampled_from(WHO), st.just(0)),
    st.lists(acts, min_size=3, max_size=9),
)
_numbers = itertools.count(1)


@pytest.fixture
def houses(tmp_path: Path) -> Iterator[list[Served]]:
    """Yield one workspace with two services; an opening reaches either."""
    with join(tmp_path / "broker", Durability.RELAXED):  # power loss is not tested here
        made = [Served(tmp_path / "broker", "carried-law", tmp_path) for _ in range(2)]
        made[0].apply(ROLES)
        for name in WHO:
            made[0].login(name, "cleared")
        for each in made:
            each.begin()
        try:
            yield made
        finally:
            for each in made:
                each.end()


class World:
    """Two principals at work in runs of their own and in one that holds something labelled."""

    def __init__(self, house: Served, record: hansard.Record, label: str) -> None:
        self.house = house
        self.record = record
        self.label = parse(label)
        self.number = next(_numbers)
        self.source = f"source-{self.number}"
        self.runs: list[str] = [self.source]
        self.shown = dict.fromkeys(WHO, LOWEST)
        self.ever: set[str] = set()
        self.hidden: list[str] = []
        self.public: list[str] = []
        self.marks = 0
        self.tried: set[str] = set()
        self.seen_in_source: set[tuple[str, str]] = set()
        self.been_in_source: set[str] = set()
        self._stack = contextlib.ExitStack()
        self._records: dict[str, Any] = {}
        self._sessions: dict[tuple[str, int], Any] = {}
        self._own: dict[tuple[str, int], str] = {}
        with record.run("w", run=self.source, agent="eve", role="cleared") as eve:
            eve.message("user", "what follows is labelled", label=label)
            eve.board.put("plan", "p")
            for name in WHO:
                eve.team.send("m", agent=name)
            eve.team.add("t", role="nobody", task="t")
        for name in WHO:
            self._connect(name)

    def _connect(self, name: str) -> None:
        self._records[name] = self._stack.enter_context(self.house.connect(name, "cleared"))

    def mark(self, name: str) -> str:
        """Return an unused word for a principal's next write."""
        self.marks += 1
        word = f"mark{self.number}x{self.marks}z"
        above = self.shown[name].confidentiality is not Confidentiality.PUBLIC
        if above:
            self.hidden.append(word)
        elif name not in self.ever:
            self.public.append(word)
        return word

    def see(self, name: str, label: Label) -> None:
        """Show a principal a labelled value."""
        self.shown[name] = joined(self.shown[name], label)
        if self.shown[name].confidentiality is not Confidentiality.PUBLIC:
            self.ever.add(name)

    def session(self, name: str, which: int) -> Any:
        """Return an open session in one of a principal's runs."""
        if (name, which) not in self._sessions:
            run = self._own.get((name, which))
            if run is None:
                word = self.mark(name)
                run = self._own[name, which] = f"r-{word}"
                self.runs.append(run)
                opened = self._records[name].run(f"w {word}", run=run, labels={"n": word})
            else:
                opened = self._records[name].run(run=run)
            stack = contextlib.ExitStack()
            self._sessions[name, which] = stack.enter_context(opened)
            self._sessions[name, which].closing = stack
        return self._sessions[name, which]

    def end(self, name: str) -> None:
        """End a principal's sessions."""
        for key in [key for key in self._sessions if key[0] == name]:
            self._sessions.pop(key).closing.close()

    def close(self) -> None:
        """End everything."""
        for name in WHO:
            self.end(name)
        self._stack.close()

    def act(self, kind: str, name: str, which: int) -> None:
        """Do something."""
        self.tried.add(kind)
        if kind in READS:
            self._read(kind, name)
        elif kind == "again":
            self.end(name)
            self._connect(name)
        elif kind == "declassify":
            self.end(name)
            if self.shown[name] != LOWEST:
                self.record.roles.declassify(principal=name, approver="eve", reason="law")
                self.shown[name] = LOWEST
            self._own = {key: run for key, run in self._own.items() if key[0] != name}
        else:
            self._write(kind, self.session(name, which), self.mark(name))

    def _write(self, kind: str, session: Any, word: str) -> None:
        match kind:
            case "message" | "open":
                session.message("user", word)
            case "put":
                session.board.put(f"k-{word}", word)
            case "append":
                session.board.append("all", word)
            case "task":
                session.team.add(word, task=f"t-{word}")
            case "mail":
                session.team.send(word, role="cleared")
            case "checkpoint":
                session.checkpoint(word, at=word)
            case _:
                raise AssertionError(kind)

    def _read(self, kind: str, name: str) -> None:
        record = self._records[name]
        if kind == "outside":
            record.roles.view(self.source)
            self.see(name, self.label)
            return
        if kind == "tool":
            session = self.session(name, 0)
            session.tool(effects="pure", gives=str(self.label), name=f"read{self.marks}")(
                lambda: 1
            )()
            self.see(name, self.label)
            return
        if kind == "offline":
            if ("offline", name) not in self.seen_in_source:
                return
            with record.run(run=self.source, mode="offline") as session:
                session.board.get("plan")
            self.see(name, self.label)
            return
        with record.run(run=self.source) as session:
            shown = self._shows(kind, session)
        if kind == "key":
            self.seen_in_source.add(("offline", name))
        # What was shown to the agent of this run it is shown again as it is resumed.
        if shown or name in self.been_in_source:
            self.see(name, self.label)
            self.been_in_source.add(name)
        if kind == "view":
            self.see(name, self.label)

    @staticmethod
    def _shows(kind: str, session: Any) -> bool:
        match kind:
            case "key":
                return session.board.get("plan") is not None
            case "keys":
                return bool(session.board.keys())
            case "inbox":
                return bool(session.team.inbox())
            case "tasks":
                return bool(session.team.tasks())
            case "view":
                return bool(session.view().events)
            case _:
                raise AssertionError(kind)

    def check(self) -> int:
        """Check the uncleared role's view for hidden and public words; return the hidden count."""
        views = []
        for run in self.runs:
            derive = roles.derive(self.record.workspace.states, "clerk", run)
            try:
                made = portal().run(derive)
            except NotFound:
                continue
            if made.view.events:
                views.append(msgspec.json.encode(made.view).decode())
        text = " ".join(views)
        assert [word for word in self.hidden if word in text] == []
        assert [word for word in self.public if word not in text] == []
        return len(self.hidden)


@pytest.mark.timeout(3_600)
def test_nothing_goes_out_that_was_written_after_it_was_shown(houses, evidence):
    """Views, tables and the log's order never show writes under a label."""
    house = houses[0]
    law = Law()
    hidden = histories_played = 0
    words: list[str] = []
    tried: set[str] = set()

    @given(history=histories)
    @settings(
        max_examples=max(3, settings().max_examples // 10), phases=set(Phase) - {Phase.shrink}
    )
    def play(history: Any) -> None:
        nonlocal hidden, histories_played
        label, before, read, after = history
        with house.trusted() as record:
            for name in WHO:
                with contextlib.suppress(hansard.HansardError):
                    record.roles.declassify(principal=name, approver="eve", reason="anew")
            world = World(house, record, label)
            try:
                for kind, name, which in (*before, read, *after):
                    world.act(kind, name, which)
            finally:
                world.close()
            hidden += world.check()
        words.extend(world.hidden)
        tried.update(world.tried)
        histories_played += 1
        law.check(house)

    play()
    assert hidden > histories_played / 2, "else the law would say little"
    assert law.labelled > hidden / 2
    assert len(tried) > 10, tried
    house.login("bob", "clerk")
    with house.connect("bob", "clerk") as record:
        text = "data::VARCHAR || stream || coalesce(run, '')"
        statement = (
            f"SELECT DISTINCT unnest(regexp_extract_all({text}, 'mark[0-9x]+z')) AS w FROM events"
        )
        marks = {row["w"] for row in record.sql(statement).dicts()}
    assert marks
    assert marks & set(words) == set()
    evidence.record("service.carried", histories=histories_played, hidden=hidden, shown=0)
