"""Rows of a message: golden events of every type, and messages that Hansard did not write."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hansard.bus.commits import record
from hansard.bus.log import Origin
from hansard.domain import (
    access,
    actions,
    agent,
    aggregate_types,
    approval,
    conversation,
    experiment,
    principal,
    prompt,
    reuse,
    run,
    team,
)
from hansard.domain.errors import Corrupt
from hansard.domain.events import REGISTRY, UPCASTERS, Recorded, Tx
from hansard.domain.experience import experience as kept_experiences
from hansard.domain.ids import AgentStream, KeyStream, RunStream, StreamId, WorkspaceStream
from hansard.domain.memory import files as memory_events
from hansard.domain.roles import model as role_events
from hansard.projections.rows import Rows
from hansard.projections.store import Store
from tests.projections.support import Messages, digests, fill, new_store, selected, write

pytestmark = pytest.mark.later

GOLDEN = Path(__file__).parents[1] / "golden" / "events"
LIFE, ADA = RunStream("r"), AgentStream("r", "writer", "ada")
STARTED = run.RunStarted(workflow="w")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Empty tables."""
    made = new_store(tmp_path / "t.duckdb")
    yield made
    made.close()


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Tables of the golden events, which no test writes."""
    made = new_store(tmp_path_factory.mktemp("golden") / "t.duckdb")
    fill(made, golden_messages().all)
    yield made
    made.close()


def recorded(tag: str, data: bytes, **fields: Any) -> Recorded:
    """Return an event as it may stand in a body."""
    return Recorded(tag, "e", msgspec.Raw(data), **fields)


def _golden() -> list[tuple[StreamId, Recorded]]:
    """Every golden event in the stream it belongs to, those of a step after its request."""
    where: dict[str, StreamId] = {
        "access": WorkspaceStream(access.KIND, "ada"),
        "actions": WorkspaceStream(actions.KIND, "login"),
        "aggregate": WorkspaceStream(aggregate_types.KIND, "a"),
        "approval": KeyStream("r", approval.KEY),
        "board": KeyStream("r", "key"),
        "budget": KeyStream("r", "budget"),
        "conversation": WorkspaceStream(conversation.KIND, "c"),
        "experience": WorkspaceStream(kept_experiences.KIND, "invite"),
        "experiment": WorkspaceStream(experiment.KIND, "e"),
        "import": WorkspaceStream(run.IMPORT_KIND, "i"),
        "mail": KeyStream("r", team.MAIL_KEY),
        "memory": WorkspaceStream(memory_events.KIND, "org"),
        "price": WorkspaceStream(experiment.PRICE_KIND, "m"),
        "principal": WorkspaceStream(principal.KIND, "ada"),
        "prompt": WorkspaceStream(prompt.KIND, "p"),
        "query": WorkspaceStream(access.QUERY_KIND, "writer"),
        "reuse": WorkspaceStream(reuse.KIND, "k"),
        "role": WorkspaceStream(role_events.KIND, "r"),
        "run": LIFE,
        "task": KeyStream("r", team.TASKS_KEY),
        "view": KeyStream("r", access.key_of("writer")),
    }
    followed = WorkspaceStream(aggregate_types.FOLLOWER, "f")
    own: dict[type, StreamId] = {aggregate_types.AggregateFollowed: followed}
    files = sorted(
        GOLDEN.iterdir(), key=lambda path: (path.name[:13] != "step.requeste", path.name)
    )
    events = []
    for path in files:
        tag = path.name.removesuffix(".json").rpartition(".")[0]
        golden = Recorded(tag, path.name, msgspec.Raw(path.read_bytes()))
        kind = REGISTRY[tag]
        events.append((own.get(kind) or where.get(tag.partition(".")[0], ADA), golden))
    return events


BY_STEPS = (
    aggregate_types.AggregateChanged.tag,
    memory_events.MemoryChanged.tag,
    memory_events.MemoryRejected.tag,
)


def golden_messages() -> Messages:
    """Return the golden events as a log, one a commit."""
    messages, versions = Messages(), dict[StreamId, int]()
    for stream, golden in _golden():
        versions[stream] = versions.get(stream, 0) + 1
        # A step's changes of an aggregate or memory are in one transaction with it.
        by_step = golden.type in BY_STEPS
        tx = Tx(f"{stream}@{versions[stream]}", 0, 1) if by_step else None
        messages.add(stream, versions[stream], [golden], tx=tx)
    return messages


REFERRING = ("step.requested.v1.full-4", "step.completed.v1.full-2")
"""Golden events that refer to another step's argument, which is no golden event."""


@pytest.mark.slow
def test_golden_events_of_every_type_are_projected(golden: Store):
    """Every golden event is in `events` byte for byte; only two have a problem."""
    missing = [row["reason"] for row in selected(golden, "problems")]
    assert len(missing) == len(REFERRING)
    assert all("which is not on record" in reason for reason in missing)
    by_id = {row["id"]: row for row in selected(golden, "events")}
    assert {name: row["data"] for name, row in by_id.items()} == {
        each.id: str(each.data, "utf-8") for _, each in _golden()
    }
    core = {tag for tag, cls in REGISTRY.items() if cls.__module__.startswith("hansard.domain.")}
    assert {row["type"] for row in by_id.values()} == core
    assert all(row["known_as"] == row["type"] for row in by_id.values())


@pytest.mark.parametrize(
    "size", [pytest.param(1, marks=pytest.mark.thorough), pytest.param(32, marks=pytest.mark.slow)]
)
def test_golden_events_are_the_same_tables_in_one_batch_or_in_many(golden, tmp_path, size):
    """Whatever is in a batch with an event: `make test-full` has each message alone."""
    messages = golden_messages()
    borders = range(size, messages.position, size)
    assert digests(tmp_path / "each.duckdb", messages.all, borders) == golden.digests()


TABLES = {
    "agent.handed_off.v1": "handoffs",
    "aggregate.changed.v1": "domain_events",
    "checkpoint.saved.v1": "checkpoints",
    "conversation.run_joined.v1": "conversations",
    "decision.made.v1": "decisions",
    "mail.sent.v1": "mail",
    "message.added.v1": "messages",
    "price.stated.v1": "prices",
    "principal.registered.v1": "principals",
    "principal.token_issued.v1": "tokens_issued",
    "principal.token_revoked.v1": "tokens_revoked",
    "principal.shown.v1": "principals_shown",
    "query.answered.v1": "queries",
    "resource.accessed.v1": "resources",
    "run.assigned.v1": "assignments",
    "run.scored.v1": "outcomes",
    "step.attempted.v1": "attempts",
    "step.blocked.v1": "policies",
    "step.settled.v1": "settlements",
    "tool.declared.v1": "tools",
    "view.served.v1": "views_served",
}


ELSEWHERE = {"causation", "choice", "content", "correlation", "name", "tool_call_id"}
"""Columns of messages with non-text content or answering a call (in the story), of aggregates'
commits (in tests/aggregates), and of loops that choose their checkpoints (in tests/agents).
"""


@pytest.mark.slow
@pytest.mark.parametrize("tag", sorted(TABLES))
def test_a_fact_is_a_row(tag: str, golden: Store):
    """Each golden event with a table is a row, and each column has a value somewhere."""
    rows = selected(golden, TABLES[tag])
    positions = {row["position"] for row in rows}
    assert len(positions) == len(list(GOLDEN.glob(f"{tag}.*.json")))
    for column in rows[0].keys() - ELSEWHERE:
        assert any(row[column] is not None for row in rows), column


GOOD = b'{"id":"c","version":1,"at":"2026-01-01T00:00:00Z","actor":{"agent":"a"},"events":%s}'
EVENT = b'[{"type":"run.started.v1","id":"e","data":{"workflow":"w"}}]'

NO_COMMITS = {
    "no JSON": ("hansard.lab.run.r.life.1", b"\x1b[31m", "not a commit"),
    "empty": ("hansard.lab.run.r.life.1", b"", "not a commit"),
    "cut": ("hansard.lab.run.r.life.1", (GOOD % EVENT)[:-9], "not a commit"),
    "no UTF-8 in a field": (
        "hansard.lab.run.r.life.1",
        (GOOD % EVENT).replace(b'"c"', b'"\xff"'),
        "not a commit",
    ),
    "no UTF-8 in data": (
        "hansard.lab.run.r.life.1",
        GOOD % EVENT.replace(b'"w"', b'"\xff"'),
        "not UTF-8",
    ),
    "lone surrogate": (
        "hansard.lab.run.r.life.1",
        GOOD % EVENT.replace(b'"w"', b'"\\ud800"'),
        "not a commit",
    ),
    "another version": ("hansard.lab.run.r.life.2", GOOD % EVENT, "its body says version 1"),
    "no events": ("hansard.lab.run.r.life.1", GOOD % b"[]", "has no events"),
    "no stream": ("hansard.lab.run.r.1", GOOD % EVENT, "is not the subject of a stream"),
    "no version": ("hansard.lab.run.r.life.x", GOOD % EVENT, "invalid literal"),
    "digest": ("hansard.lab.run.r.agent.r.==" + "0" * 64 + ".1", GOOD % EVENT, "behind a digest"),
    "huge version": (
        f"hansard.lab.run.r.life.{2**63}",
        (GOOD % EVENT).replace(b'"version":1', b'"version":%d' % 2**63),
        "too large",
    ),
    "huge epoch": (
        "hansard.lab.run.r.life.1",
        (GOOD % EVENT).replace(b'"at"', b'"epoch":-%d,"at"' % 2**64),
        "too large",
    ),
    "deep": (
        "hansard.lab.run.r.life.1",
        GOOD % EVENT.replace(b'"w"', b"[" * 100_000 + b"]" * 100_000),
        "not a commit",
    ),
}


@pytest.mark.fast(cases=2, slow=0)
@pytest.mark.parametrize("case", sorted(NO_COMMITS))
def test_what_is_no_commit_is_a_problem_and_stops_nothing(case: str, store: Store):
    """A message that is no commit is listed only in `problems`; its neighbours are projected."""
    subject, body, reason = NO_COMMITS[case]
    messages = Messages()
    messages.add(RunStream("before"), 1, [STARTED])
    messages.raw(subject, body)
    messages.add(RunStream("after"), 1, [STARTED])
    fill(store, messages.all)
    [problem] = selected(store, "problems")
    assert (problem["position"], problem["event_index"]) == (2, None)
    assert reason in problem["reason"]
    assert problem["subject"] == subject
    assert [row["position"] for row in selected(store, "events")] == [1, 3]
    assert {row["run"] for row in selected(store, "runs")} == {"before", "after"}
    assert store.progress.position == 3


def test_a_bad_header_is_a_problem(store: Store):
    """A commit marked as a copy without its source is no valid commit."""
    messages = Messages()
    good = messages.add(LIFE, 1, [STARTED])
    messages.all.clear()
    messages.raw(good.subject, good.body, fault=Corrupt("header Hansard-Origin", "no origin"))
    fill(store, messages.all)
    assert [row["reason"] for row in selected(store, "problems")] == ["no origin"]
    assert selected(store, "events") == []


UNSOUND: dict[str, tuple[StreamId, Recorded]] = {
    "wrong type": (LIFE, recorded("run.started.v1", b'{"workflow":7}')),
    "not an object": (LIFE, recorded("run.started.v1", b"[]")),
    "a field is missing": (ADA, recorded("step.requested.v1", b'{"step":1}')),
    "wrong stream": (ADA, record(STARTED, "e")),
    "a step in a life": (LIFE, recorded("step.blocked.v1", b'{"step":1,"rule":"r","reason":"x"}')),
    "a number that no column holds": (
        ADA,
        recorded("step.blocked.v1", b'{"step":%d,"rule":"r","reason":"x"}' % 2**70),
    ),
    "a vector that no column holds": (
        RunStream("new"),
        recorded("run.forked.v1", b'{"parent":"r","at":{"life":%d}}' % 2**70),
    ),
}


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("case", sorted(UNSOUND))
def test_an_event_that_is_not_what_its_type_says_stays_in_events(case: str, store: Store):
    """An event that does not fit its type is in `events` and `problems`, and in no other table."""
    stream, bad = UNSOUND[case]
    messages = Messages()
    messages.add(LIFE, 1, [STARTED])
    messages.add(
        ADA,
        1,
        [
            agent.SessionBegan(
                epoch=1, agent="ada", role="writer", server_version="1", protocol_version="1"
            )
        ],
    )
    before = {name for name in store.tables() if name not in {"events", "problems"}}
    fill(store, messages.all)
    stood = {name: digest for name, digest in store.digests().items() if name in before}
    messages.add(stream, 2, [bad])
    fill(store, messages.all)
    [problem] = selected(store, "problems")
    assert (problem["position"], problem["event_index"]) == (3, 0)
    [row] = selected(store, "events", "position = 3")
    assert (row["type"], row["known_as"]) == (bad.type, None)
    assert row["data"] == str(bad.data, "utf-8")
    unchanged = {name: digest for name, digest in store.digests().items() if name in before}
    assert {n for n in before if stood[n] != unchanged[n]} <= {"agents", "runs"}


def test_events_of_a_newer_version_stay(store: Store):
    """A type that is not known, or encrypted data, is kept in `events` and is no problem."""
    messages = Messages()
    sealed = b'[{"type":"run.started.v1","id":"e","data":"x","enc":{"key":"k","alg":"A256GCM"}}]'
    messages.add(LIFE, 1, [recorded("run.dreamt.v9", b'{"x": 1.0}'), STARTED])
    messages.raw("hansard.lab.run.q.life.1", GOOD % sealed)
    messages.raw("hansard.lab.prompt.p.1", GOOD % EVENT.replace(b"run.started", b"prompt.kept"))
    fill(store, messages.all)
    assert selected(store, "problems") == []
    rows = selected(store, "events", "known_as IS NULL")
    assert [(row["type"], row["data"]) for row in rows] == [
        ("run.dreamt.v9", '{"x": 1.0}'),
        ("run.started.v1", '"x"'),
        ("prompt.kept.v1", '{"workflow":"w"}'),
    ]
    assert [row["run"] for row in selected(store, "runs")] == ["r"]


def test_an_old_event_is_lifted(store: Store, monkeypatch: pytest.MonkeyPatch):
    """Tables have the current form of an old event, `events` the recorded one; a fork inherits the
    current.
    """
    lift = lambda data: ("run.started.v1", {"workflow": data["name"]})  # noqa: E731 -- used once, right below
    monkeypatch.setitem(UPCASTERS, "run.began.v0", lift)
    messages = Messages()
    messages.add(LIFE, 1, [recorded("run.began.v0", b'{"name":"old"}')])
    messages.add(RunStream("fork"), 2, [run.RunForked(parent="r", at={"life": 1})])
    fill(store, messages.all)
    row = selected(store, "events")[0]
    assert (row["type"], row["known_as"]) == ("run.began.v0", "run.started.v1")
    assert (row["data"], row["lifted"]) == ('{"name":"old"}', '{"workflow":"old"}')
    assert {row["workflow"] for row in selected(store, "runs")} == {"old"}


@pytest.mark.fast(cases=4, slow=0)
@pytest.mark.parametrize(
    ("claimed", "origin", "expected"),
    [
        ("2025-10-31T07:34:59.455989", None, "2025-10-31 07:34:59.455989"),
        ("2025-10-31T07:34:59.455989+02:00", None, "2025-10-31 05:34:59.455989"),
        ("2025-10-31", None, "2025-10-31 00:00:00"),
        ("last week", None, None),
        ("0001-01-01T00:00:00+23:00", None, None),
        ("last week", "2025-01-02T03:04:05.123456789Z", "2025-01-02 03:04:05.123456"),
        (None, "2025-01-02T03:04:05.123456789Z", "2025-01-02 03:04:05.123456"),
        (None, "never", None),
        (None, None, None),
    ],
)
def test_when_it_happened_is_known_as_well_as_can_be(store: Store, claimed, origin, expected):
    """The time is the source's claim (naive: as UTC), else the log it was copied from, else the
    log.
    """
    messages = Messages()
    event = recorded("run.started.v1", b'{"workflow":"w"}', occurred_at=claimed)
    copied = Origin("far", 7, origin) if origin else None
    messages.add(LIFE, 1, [event], origin=copied)
    fill(store, messages.all)
    [row] = selected(store, "events")
    assert str(row["happened_at"]) == (expected or str(row["logged_at"]))
    assert row["occurred_at"] == claimed
    assert (row["origin_log"], row["origin_position"]) == (("far", 7) if origin else (None, None))
    assert str(row["written_at"]) == "2026-01-01 00:00:00"


def test_no_batch_ends_inside_a_transaction():
    """A transaction is held until its last commit; an unfinished one delays nothing."""
    messages, rows = Messages(), Rows()
    for index in range(3):
        messages.add(RunStream(f"r{index}"), 1, [STARTED], tx=Tx("t", index, 3))
    messages.add(RunStream("cut"), 1, [STARTED], tx=Tx("u", 0, 2))
    messages.add(RunStream("next"), 1, [STARTED])
    taken = []
    for message in messages.all:
        rows.add(message)
        batch = rows.take()
        taken.append(batch.position if batch else None)
    assert taken == [None, None, 3, None, 5]


def test_a_transaction_that_never_ends_is_held_only_so_long():
    """A claim of a million commits does not hold up the log, nor fill the memory."""
    messages, rows = Messages(), Rows()
    for index in range(1_001):
        messages.add(RunStream(f"r{index}"), 1, [STARTED], tx=Tx("t", index, 1_000_000))
        rows.add(messages.all[-1])
    batch = rows.take()
    assert batch is not None
    assert batch.position == 1_000


@pytest.mark.slow
def test_what_is_delivered_again_changes_nothing(store: Store):
    """The same messages, all or the last of them, from the log or from the batch."""
    messages = golden_messages()
    fill(store, messages.all)
    before = store.digests()
    for since in (0, messages.position // 2):
        rows = Rows(0)
        for message in messages.all[since:]:
            rows.add(message)
            rows.add(message)
        write(store, rows)
    assert store.digests() == before
    rows = Rows(0)
    for message in [*messages.all, messages.add(RunStream("new"), 1, [STARTED])]:
        rows.add(message)
    write(store, rows)
    assert store.all("SELECT count(*) FROM events")[0][0] == messages.position
    assert store.all("SELECT count(*) FROM runs WHERE run = 'new'")[0][0] == 1


@pytest.mark.parametrize("borders", [pytest.param([], marks=pytest.mark.thorough), [1, 2, 3]])
def test_the_newest_assignment_counts_whole(store: Store, borders):
    """Fields missing from the newest assignment are not filled from an older one, in any
    batching.
    """
    messages = Messages()
    messages.add(LIFE, 1, [STARTED])
    messages.add(LIFE, 2, [run.RunAssigned(experiment="e", arm="a", task="t", trial=3)])
    messages.add(LIFE, 3, [run.RunAssigned(experiment="e")])
    fill(store, messages.all, borders)
    [row] = selected(store, "runs")
    assert (row["experiment"], row["arm"], row["task"], row["trial"]) == ("e", None, None, None)


@pytest.mark.parametrize("borders", [pytest.param([], marks=pytest.mark.thorough), [1, 2, 3, 4, 5]])
def test_a_fork_sees_no_more_of_a_grandparent_than_both_cuts_allow(store: Store, borders):
    """A fork of a fork inherits nothing of its grandparent after either cut."""
    messages = Messages()
    messages.add(LIFE, 1, [STARTED])
    messages.add(LIFE, 2, [run.RunAssigned(experiment="e", arm="late")])
    messages.add(RunStream("child"), 3, [run.RunForked(parent="r", at={"life": 2})])
    messages.add(RunStream("grandchild"), 2, [run.RunForked(parent="child", at={"life": 1})])
    fill(store, messages.all, borders)
    arms = {row["run"]: row["arm"] for row in selected(store, "runs")}
    assert arms == {"r": "late", "child": "late", "grandchild": None}
