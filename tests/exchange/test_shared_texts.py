"""A growing prompt, stored in parts: every reader of a log sees the agent's whole text."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard.agents.access import roles
from hansard.bus.jetstream.log import RawWorkspace
from hansard.domain.payload import MARK
from hansard.domain.roles.model import Mask, Masking, May, RoleDefined, RoleRule
from hansard.projections.role_tables import bring_up
from hansard.projections.store import Store
from hansard.projections.table_files import TableFiles, role_place
from tests.cli.planting import options
from tests.exchange.support import bring_in, exported, in_workspace, log_of

pytestmark = pytest.mark.slow

KEY = "hunter2-hunter2-hunter2"
CALLS = 9

RULES = RoleDefined(
    sees=(
        RoleRule("what was asked", ("step.requested",), roles=("writer",)),
        RoleRule("how it went", ("run.*", "agent.*"), roles=("writer",)),
    ),
    masks=(Mask("keys", ("step.requested",), ("arguments.chat.key",), Masking.DROP),),
    may=May(query=True),
)
"""A role that sees no result, and not the key among the arguments."""


def _chat(count: int, size: int = 90) -> dict[str, Any]:
    """Return a nested and growing prompt, as model SDKs have it."""
    messages = [
        {"role": "user", "content": f"Turn {n}: " + f"as was agreed in {n * 7}, " * (size // 20)}
        for n in range(count)
    ]
    return {"key": KEY, "model": "m", "messages": messages}


def _reply(count: int) -> str:
    return f"Reply {count}: " + f"nobody else may know of {count * 13}. " * 20


def _run_with_replies(
    home: Path, workspace: str, run: str | None, calls: int, size: int = 90
) -> str:
    """Begin or resume a run whose agent also receives its own replies."""
    with hansard.connect(workspace, data_dir=home) as record:
        if run is None:
            session_of = record.run("w", agent="ada", role="writer")
        else:
            session_of = record.run(run=run, agent="ada", role="writer")
        with session_of as session:

            @session.tool(effects="pure", kind="model")
            def think(chat: dict[str, Any], replies: list[str]) -> str:
                return _reply(len(replies))

            replies: list[str] = []
            for number in range(1, calls + 1):
                replies.append(think(_chat(number, size), list(replies)))
        return session.run


def _arguments_of(number: int, size: int = 90) -> dict[str, Any]:
    return {"chat": _chat(number, size), "replies": [_reply(n) for n in range(number - 1)]}


@pytest.fixture
def resumed_run(home: Path, workspace: str) -> str:
    """Return a run that was resumed in the middle."""
    run = _run_with_replies(home, workspace, None, 4)
    return _run_with_replies(home, workspace, run, CALLS)


def _trace(call: Any, workspace: str, run: str) -> list[tuple[Any, Any]]:
    ran = call(workspace, "run", "trace", run, "--full", "--json")
    assert ran.code == 0, ran.err
    return [(line["arguments"], line["result"]) for line in ran.lines]


@pytest.mark.thorough(quick="test_a_role_reads_nothing_through_a_reference")
def test_an_export_carries_what_is_referred_to(home, workspace, tmp_path, call, resumed_run):
    """An import has the same bytes and values, also for a fork in the middle of a prompt."""
    expected = [(_arguments_of(n), _reply(n - 1)) for n in range(1, CALLS + 1)]
    [at] = [s.commit.id for s in log_of(home, workspace) if b'"step":5,"result"' in s.body]
    with hansard.connect(workspace, data_dir=home) as record:
        fork = record.fork(resumed_run, at=at)
    _run_with_replies(home, workspace, fork, CALLS + 3)
    assert any(MARK in s.body for s in log_of(home, workspace))
    data = exported(home, workspace, fork)
    other = f"{workspace}-copy"
    assert bring_in(home, other, tmp_path / "x.jsonl", data).bads == []
    assert exported(home, other, fork) == data
    for name in (workspace, other):
        assert _trace(call, name, resumed_run)[:CALLS] == expected
        assert [arguments for arguments, _ in _trace(call, name, fork)] == [
            _arguments_of(n) for n in range(1, CALLS + 4)
        ]
        checked = call(name, "check")
        assert (checked.code, checked.out.count("nothing is wrong")) == (0, 1), checked.out
        replayed = call(name, "run", "replay", fork, "--json")
        assert (replayed.code, replayed.lines[-1]["differ"]) == (0, 0)
        assert replayed.lines[-1]["unproven"] == 0
    page = tmp_path / "page.html"
    assert call(other, "run", "html", fork, "-o", page).code == 0
    held = page.read_text()
    assert "Turn 11: as was agreed in 77, " in held


@pytest.mark.thorough
def test_tables_and_search_have_the_whole_text(home, workspace, call, resumed_run):
    """SQL and search see whole values, projected at once, in two parts or again."""
    assert call(workspace, "rebuild").code == 0
    assert call(workspace, "search", "agreed", "--json").code == 0
    _run_with_replies(home, workspace, resumed_run, CALLS + 3)
    assert call(workspace, "sql", "SELECT 1").code == 0  # which brings the tables up
    store = Store(TableFiles.of(home, workspace).path, read_only=True)
    try:
        rows = store.all("SELECT arguments, result FROM steps ORDER BY step")
        data = store.all(
            "SELECT data FROM events WHERE type = 'step.requested.v1' ORDER BY version"
        )
        assert store.all("SELECT * FROM problems") == []
    finally:
        store.close()
    expected = [(_arguments_of(n), _reply(n - 1)) for n in range(1, CALLS + 4)]
    assert [(json.loads(a), json.loads(r)) for a, r in rows] == expected
    assert [json.loads(hits)["arguments"] for (hits,) in data] == [a for a, _ in expected]
    verified = call(workspace, "rebuild", "--verify")
    assert verified.code == 0, verified.out + verified.err
    hits = call(workspace, "search", "--query", '"agreed in 14, as was agreed"', "--json")
    requests = [line for line in hits.lines if line["type"] == "step.requested.v1"]
    assert len(requests) == CALLS + 1  # every call that was given it


def test_a_role_reads_nothing_through_a_reference(home, workspace, resumed_run):
    """Masks apply to the resolved value, also above the inline size, and hide no more."""
    large = _run_with_replies(home, workspace, None, 6, 30_000)
    with hansard.connect(workspace, data_dir=home) as record:
        record.roles.apply("auditor", RULES)

    async def seen(opened: Any) -> list[Any]:
        views = [await roles.derive(opened.states, "auditor", run) for run in (resumed_run, large)]
        return [each.view.events for each in views]

    small_view, large_view = in_workspace(home, workspace, seen)
    requests = [json.loads(bytes(s.data)) for _, s in small_view if s.type == "step.requested.v1"]
    assert len(requests) == CALLS
    for number, event in enumerate(requests, 1):
        expected = _arguments_of(number)
        del expected["chat"]["key"]
        assert event["arguments"] == expected
    for view in (small_view, large_view):
        assert KEY not in msgspec.json.encode(view).decode()
    place = role_place(home, workspace, "auditor")

    async def tables() -> None:
        raw = await RawWorkspace.open(options(home), workspace)

        async def rules_at(_position: int) -> RoleDefined:
            return RULES

        try:
            await bring_up(raw, place, rules_at)
        finally:
            await raw.close()

    asyncio.run(tables())
    store = Store(place.path, read_only=True)
    try:
        rows = store.all("SELECT arguments FROM steps WHERE run = $1 ORDER BY step", [resumed_run])
        every = store.all("SELECT data FROM events")
    finally:
        store.close()
    assert [json.loads(row) for (row,) in rows] == [event["arguments"] for event in requests]
    assert not [data for (data,) in every if KEY in data]
    assert KEY.encode() not in place.path.read_bytes()
