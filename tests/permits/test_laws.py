"""Under any rules and attempts of a session, no refused event is recorded."""

import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import hansard
from hansard.domain.ids import AgentStream, KeyStream, WorkspaceStream
from hansard.domain.roles import authorize
from hansard.domain.roles.model import KIND, Mask, May, RoleDefined, RoleRule, RoleWithdrawn
from tests.conftest import THOROUGH

pytestmark = pytest.mark.slow

TOOLS, KEYS = ("search", "search.web", "send"), ("k", "k/a", "k/a/b", "other")
_numbers = itertools.count(1)


def some(pool: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...]]:
    """Return a few of some patterns, or none."""
    return st.lists(st.sampled_from(pool), max_size=3, unique=True).map(tuple)


key_patterns = some(("k", "k/*", "k/**", "other", "**"))
kind_patterns = some(("message.added", "decision.*", "task.*", "task.claimed", "mail.**", "**"))
may = st.builds(
    May, tools=some(("search", "search.*", "s*", "**")), kinds=kind_patterns, keys=key_patterns
)
sees = st.builds(
    RoleRule,
    st.uuids().map(str),
    kinds=st.sampled_from([None, ("board.*",), ("**",), ("board.put",)]),
    keys=st.none() | key_patterns.filter(bool),
    roles=st.sampled_from([None, None, ("role*",)]),
    fields=st.sampled_from([None, None, ("value",)]),
)
masks = st.builds(
    Mask,
    st.uuids().map(str),
    kinds=st.sampled_from([("board.put",), ("message.added",)]),
    fields=st.just(("value",)),
    keys=st.none() | st.just(("other",)),
)
definitions = st.builds(
    RoleDefined,
    sees=st.lists(sees, max_size=3).map(tuple),
    masks=st.lists(masks, max_size=1).map(tuple),
    may=may,
) | st.just(RoleWithdrawn(because="over"))


def _tool(name: str) -> Callable[[Any], None]:
    def call(session: Any) -> None:
        session.tool(lambda: name, name=name)()

    return call


def _transact(read: str, write: str) -> Callable[[Any], None]:
    def transact(session: Any) -> None:
        with session.board.transaction() as tx:
            tx.get(read)
            tx.put(write, 1)

    return transact


OPERATIONS: list[tuple[str, Callable[[Any], None]]] = [
    *((f"call {name}", _tool(name)) for name in TOOLS),
    ("message", lambda s: s.message("user", "x")),
    ("decide", lambda s: s.decide("?", selected="a")),
    ("checkpoint", lambda s: s.checkpoint("c")),
    ("send", lambda s: s.team.send("x", role="boss")),
    ("add", lambda s: s.team.add("t", role=s.role)),
    ("claim", lambda s: s.team.claim()),
    ("inbox", lambda s: s.team.inbox()),
    ("keys", lambda s: s.board.keys()),
    *((f"get {key}", lambda s, key=key: s.board.get(key)) for key in KEYS),
    *((f"put {key}", lambda s, key=key: s.board.put(key, 1, expected="any")) for key in KEYS),
    *((f"add {key}", lambda s, key=key: s.board.add(key)) for key in KEYS),
    *((f"wait {key}", lambda s, key=key: s.wait_for(key=key, timeout_s=0)) for key in KEYS),
    ("transact", _transact("k", "other")),
    ("transact back", _transact("other", "k/a")),
]


@settings(
    max_examples=settings().max_examples if THOROUGH else 20,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(definitions, st.lists(st.sampled_from(OPERATIONS), min_size=3, max_size=10))
def test_nothing_that_is_refused_is_on_record(record, definition, operations):
    """Under any rules each recorded event was allowed, and each refused one was not."""
    number = next(_numbers)
    role, run = f"role{number}", f"r{number}"
    rules = definition if isinstance(definition, RoleDefined) else None
    stream = WorkspaceStream(KIND, role)
    news = [RoleDefined(), definition] if rules is None else [definition]
    record._portal.run(record.workspace.repository.record(stream, "eva", lambda _: news))
    with record.run("w", run=run, agent="bob", role="boss") as boss:
        boss.board.put("k", 5)
        boss.team.add("for all")
        with record.run("w", run=run, agent="ada", role=role) as session:
            for name, operate in operations:
                try:
                    operate(session)
                except hansard.Blocked:
                    event(f"{name.partition(' ')[0]} refused")
                except (hansard.errors.BoardConflict, hansard.errors.Refused):
                    pass
    for stored in record._portal.run(record.workspace.log.read_run(run)):
        if stored.commit.actor.agent == "ada":
            for each in stored.commit.events:
                _check(rules, stored.stream, each.type, msgspec.json.decode(each.data))


_requests: dict[int, dict[str, Any]] = {}


def _check(rules: RoleDefined | None, stream: Any, tag: str, data: dict[str, Any]) -> None:
    match stream:
        case KeyStream(key=key) if tag.startswith("board.") and tag != "board.checked.v1":
            assert authorize.may_write(rules, key).allowed, (tag, key)
        case KeyStream(key=key) if tag.startswith("board."):
            assert authorize.sees_whole_key(rules, key).allowed, key
        case KeyStream():
            assert authorize.may_state(rules, tag).allowed, tag
        case AgentStream():
            _check_own(rules, tag, data)
        case _:
            pass  # the run's life: every agent joins and leaves


def _check_own(rules: RoleDefined | None, tag: str, data: dict[str, Any]) -> None:
    if tag == "step.requested.v1":
        _requests[data["step"]] = data
    elif tag == "step.completed.v1":
        request = _requests[data["step"]]
        tool, arguments = request["tool"], request["arguments"]
        if tool in ("board.get", "team.wait_for"):
            assert authorize.sees_whole_key(rules, arguments["key"]).allowed
        elif tool == "board.keys":
            assert all(authorize.sees_whole_key(rules, key).allowed for key in data["result"])
        elif request.get("kind", "tool") == "tool":
            assert authorize.may_call(rules, tool).allowed
    elif tag == "step.blocked.v1":
        assert not authorize.may_call(rules, _requests[data["step"]]["tool"]).allowed
    elif tag == "agent.refused.v1":
        check = {
            "kind": authorize.may_state,
            "key": authorize.may_write,
            "read": authorize.sees_whole_key,
        }[data["what"]]
        assert not check(rules, data["name"]).allowed
    elif rules is not None or not tag.startswith("agent."):
        assert authorize.may_state(rules, tag).allowed or tag == "tool.declared.v1", tag
