"""A log in memory of a team that hides secrets wherever a commit can carry one; its role's tables.

As a program it brings up a role's tables until it is killed: python planted.py FOLDER TURNS
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from hansard.bus import subjects
from hansard.bus.commits import decode, encode, record
from hansard.bus.jetstream.log import Chunk
from hansard.bus.log import Origin, RawMessage, Stored
from hansard.bus.marks import Extent
from hansard.domain import agent, board, run, steps
from hansard.domain.events import Actor, Commit, Event, Recorded, Tx
from hansard.domain.ids import AgentStream, KeyStream, RunStream, StreamId, WorkspaceStream
from hansard.domain.roles import check as role_check
from hansard.domain.roles.model import Mask, Masking, May, RoleDefined, RoleRule
from hansard.projections import snapshots as published
from hansard.projections.role_tables import bring_up
from hansard.projections.rows import Rows
from hansard.projections.store import Digest, Store
from hansard.projections.table_files import TableFiles, role_place

WORKSPACE = "lab"
BEGAN_NS = 1_795_000_000_000_000_000
CHUNK = 7

RULES = RoleDefined(
    sees=(
        RoleRule("its own", roles=("writer",)),
        RoleRule(
            "results", ("step.completed",), roles=("reader",), fields=("step", "result.title")
        ),
        RoleRule("failures", ("step.failed",), roles=("reader",)),
        RoleRule("how it goes", ("run.*",), labels={"team": "x"}),
        RoleRule("findings", keys=("findings/**",)),
        RoleRule("prices", ("price.stated",)),
    ),
    masks=(
        Mask("contents", ("message.added",), ("content",), Masking.HASH),
        Mask("reasons", ("decision.made",), ("because",), Masking.TRUNCATE, 4),
        Mask("errors", ("step.failed",), ("error.message",), Masking.DROP),
        Mask("costs", ("step.completed",), ("usage",), Masking.HASH),
        Mask("labels", ("run.*",), ("labels.owner",), Masking.DROP),
    ),
    may=May(query=True),
)
role_check.check(RULES)

UNHASHED = msgspec.structs.replace(RULES, masks=RULES.masks[1:3])
"""Rules without keyed hashes, so that tables in two places are equal."""

ALL = RoleDefined(sees=(RoleRule("all", ("**",)),), may=May(query=True), clearance="secret")


class Log:
    """Messages in order; it is read as a workspace is."""

    def __init__(self) -> None:
        self.all: list[RawMessage] = []
        self._epochs: dict[StreamId, int] = {}

    def add(
        self,
        stream: StreamId,
        version: int,
        events: Iterable[Event | Recorded],
        *,
        actor: Actor | None = None,
        origin: Origin | None = None,
        name: str = "",
        **fields: Any,
    ) -> None:
        """Append a commit; ids follow from its name, else from its place."""
        events = list(events)
        name = name or f"{len(self.all) + 1}"
        recorded = tuple(
            each if isinstance(each, Recorded) else record(each, f"event {name}.{index}")
            for index, each in enumerate(events)
        )
        writer = (
            Actor("import", ("a person",)) if isinstance(stream, RunStream) else Actor("a person")
        )
        if isinstance(stream, AgentStream):
            writer = Actor(stream.agent)
            begun = [each.epoch for each in events if isinstance(each, agent.SessionBegan)]
            fields.setdefault("epoch", begun[0] if begun else self._epochs.get(stream, 0))
            self._epochs[stream] = fields["epoch"]
        commit = Commit(
            id=f"commit {name}",
            version=version,
            at=datetime(2026, 1, 1, tzinfo=UTC),
            actor=actor or writer,
            events=recorded,
            **fields,
        )
        subject = subjects.subject(WORKSPACE, stream, version)
        self.raw(subject, encode(stream, commit), origin)

    def raw(self, subject: str, body: bytes, origin: Origin | None = None) -> None:
        """Append whatever."""
        number = len(self.all) + 1
        self.all.append(RawMessage(number, BEGAN_NS + number * 10**6, subject, body, origin))

    async def extent(self) -> Extent:
        """Return the first and the newest position, and the number of messages."""
        return Extent(1, len(self.all), len(self.all))

    async def past(self, stream: StreamId) -> list[Stored]:
        """Return a stream's own commits."""
        decoded = [(each, *decode(each.subject, each.body)) for each in self.all if not each.fault]
        return [
            Stored(each.position, each.stamp, of, commit, each.body)
            for each, of, commit in decoded
            if of == stream
        ]

    async def chunks(
        self, after: int = 0, *, until: int | None = None
    ) -> AsyncGenerator[Chunk, None]:
        """Every message after a position."""
        last = len(self.all) if until is None else until
        for begin in range(after, last, CHUNK):
            yield Chunk(self.all[begin : min(begin + CHUNK, last)], len(self.all))


def renumbered(messages: Sequence[RawMessage]) -> Log:
    """Return a log of these at new positions, each at its old time."""
    made = Log()
    made.all = [
        msgspec.structs.replace(each, position=number) for number, each in enumerate(messages, 1)
    ]
    return made


def bring(
    log: Log, home: Path, rules: RoleDefined | None, role: str = "writer", **more: Any
) -> TableFiles:
    """Bring a role's tables up to a log's end, and return them."""
    place = role_place(home, WORKSPACE, role)

    async def rules_at(_position: int) -> RoleDefined | None:
        return rules

    asyncio.run(bring_up(log, place, rules_at, **more))
    return place


def digests(place: TableFiles) -> dict[str, Digest]:
    """Return the digest of each published table."""
    with published.holding(place) as tables:
        assert tables is not None
        store = Store(tables.path, read_only=True)
        try:
            assert (tables.position, tables.head) == (store.progress.position, tables.position)
            return store.digests()
        finally:
            store.close()


def everything(place: TableFiles, *, views: bool = True) -> bytes:
    """Return each row of each published table and view, except projection times."""
    with published.holding(place) as tables:
        assert tables is not None
        store = Store(tables.path, read_only=True)
        try:
            contents: dict[str, Any] = {"position": tables.position, "digest": tables.digest}
            for (name,) in store.all(
                "SELECT table_name FROM duckdb_tables() UNION ALL "
                "SELECT view_name FROM duckdb_views() WHERE NOT internal AND $1 ORDER BY 1",
                [views],
            ):
                contents[name] = [
                    {k: v for k, v in row.items() if k not in {"projected_at", "delay_ms"}}
                    for row in store.rows(f'FROM "{name}" ORDER BY ALL')
                ]
            layout = "SELECT row_group_id, segment_id, count FROM pragma_storage_info('events')"
            contents["layout"] = store.all(f"{layout} ORDER BY ALL")
            contents["sizes"] = store.all(
                "SELECT table_name, estimated_size FROM duckdb_tables() ORDER BY 1"
            )
            return msgspec.json.encode(contents, enc_hook=str)
        finally:
            store.close()


def whole_tables(log: Log, path: Path) -> Store:
    """Return the workspace's own tables of a log, open."""
    store, rows = Store(path), Rows()
    for message in log.all:
        rows.add(message)
    batch = rows.take()
    if batch is not None:
        store.write(batch, batch.position)
    return store


# ---------------------------------------------------------------- a team with secrets

SECRETS = [
    "event-of-others",
    "result-beside-title",
    "masked-content",
    "because-beyond-cut",
    "masked-error",
    "name-of-agent",
    "name-of-role",
    "name-of-key",
    "label-of-others",
    "masked-label",
    "their-correlation",
    "their-causation",
    "their-traceparent",
    "on-whose-behalf",
    "transaction-id",
    "origin-log",
    "blob-preview",
    "tool-in-intent",
    "name-of-conversation",
    "data-of-newer-version",
]
"""Texts in the workspace's log, none of them in anything that the role may see."""

ADA, BOB = AgentStream("r1", "writer", "ada"), AgentStream("r1", "reader", "bob")


def secret(name: str) -> str:
    """Return the planted text, long enough that no other text matches by chance."""
    assert name in SECRETS
    return f"S3CRET~{name}~PLANTED"


def raw(value: Any) -> msgspec.Raw:
    """Return a payload."""
    return msgspec.Raw(msgspec.json.encode(value))


def _began(stream: AgentStream, epoch: int = 1) -> agent.SessionBegan:
    return agent.SessionBegan(
        epoch=epoch, agent=stream.agent, role=stream.role, server_version="1", protocol_version="1"
    )


def requested(step: int, tool: str = "t", **more: Any) -> steps.StepRequested:
    """Return an intent."""
    return steps.StepRequested(
        step=step,
        tool=tool,
        effects=steps.Effects.ONCE,
        arguments=raw({"x": 1}),
        call="c",
        fingerprint="f",
        **more,
    )


def done(step: int, result: Any, **more: Any) -> steps.StepCompleted:
    """Return an outcome."""
    return steps.StepCompleted(step=step, result=raw(result), digest="d", **more)


def message_added(text: str, **more: Any) -> agent.MessageAdded:
    """Return a message."""
    return agent.MessageAdded(role="user", content=raw(text), fingerprint="f", **more)


def planted() -> Log:
    """Return the team's log."""
    log = Log()
    labels = {"team": "x", "owner": secret("masked-label")}
    joined = [run.AgentJoined(agent=each.agent, role=each.role) for each in (ADA, BOB)]
    tx = secret("transaction-id")
    log.add(RunStream("r1"), 1, [run.RunStarted(workflow="papers", labels=labels), *joined])
    log.add(ADA, 1, [_began(ADA, 7), requested(1), requested(2)], tx=Tx(tx, 0, 2), epoch=7)
    spy = AgentStream("r3", secret("name-of-role"), secret("name-of-agent"))
    log.add(spy, 1, [_began(spy), message_added(secret("event-of-others"))], tx=Tx(tx, 1, 2))
    log.add(BOB, 1, [_began(BOB), requested(1, secret("tool-in-intent")), requested(2)])
    result = {"title": "shown title", "text": secret("result-beside-title")}
    log.add(BOB, 4, [done(1, result, usage={"cost": 0.5})])
    why = steps.Failure("Gone", secret("masked-error"))
    log.add(BOB, 5, [steps.StepFailed(step=2, error=why, digest="d", usage={"cost": 0.5})])
    log.add(
        *(
            ADA,
            4,
            [done(2, {"x": 1}, usage={"cost": 1.5}), message_added(secret("masked-content"))],
        ),
        causation=secret("their-causation"),
        correlation=secret("their-correlation"),
        traceparent=secret("their-traceparent"),
        actor=Actor("ada", (secret("on-whose-behalf"),)),
    )
    chosen = agent.DecisionMade(
        question="which?",
        selected="a",
        fingerprint="f",
        because="kept" + secret("because-beyond-cut"),
        inputs=("event 5.0", "event 3.1", "commit 7"),
        after=(1, 2),
    )
    copied = Origin(secret("origin-log"), 987_654_321, "2026-01-01T00:00:00Z")
    log.add(ADA, 6, [chosen], causation="event 7.0", origin=copied)
    preview = {"$blob": {"sha256": "0" * 64, "size": 9, "preview": secret("blob-preview")}}
    log.add(BOB, 6, [requested(3), done(3, preview)])
    for key, value in (("findings/a", 1), (secret("name-of-key"), 2)):
        put = board.ValuePut(value=raw(value), role="reader")
        log.add(KeyStream("r1", key), 1, [put], actor=Actor("bob"))
    other = run.RunStarted(workflow="other", labels={"team": secret("label-of-others")})
    log.add(RunStream("r2"), 1, [other])
    talk = WorkspaceStream("conversation", secret("name-of-conversation"))
    log.add(talk, 1, [Recorded("conversation.run_joined.v1", "e", raw({"run": "r1"}))])
    newer = raw({"text": secret("data-of-newer-version")})
    log.add(ADA, 7, [Recorded("step.dreamt.v9", "e9", newer), agent.AgentLeft(outcome="completed")])
    log.raw("hansard.lab.run.r1.life.99", b"no commit")
    log.add(RunStream("r1"), 4, [run.RunCompleted()])
    return log


def main(folder: Path, turns: int) -> None:
    """Bring a role's tables up, again and again, each time to more."""
    for turn in range(1, turns + 1):
        bring(long_log(turn), folder, UNHASHED, batch_max=40)
        print(turn, flush=True)  # noqa: T201 -- tells the test how far it is


def long_log(turn: int) -> Log:
    """Return a log with as many runs as the turn says; the first ones are always the same."""
    log = Log()
    for number in range(turn * 20):
        life, ada = RunStream(f"run {number}"), AgentStream(f"run {number}", "writer", "ada")
        log.add(life, 1, [run.RunStarted(workflow="w", labels={"team": "xy"[number % 2]})])
        log.add(ada, 1, [_began(ada), requested(1), done(1, number), message_added("x" * 50)])
    return log


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
