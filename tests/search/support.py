"""Logs to search in, and the content of an index."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import msgspec

import hansard
from hansard.bus.jetstream.log import RawWorkspace
from hansard.domain.agent import MessageAdded, SessionBegan
from hansard.domain.events import Commit, Recorded
from hansard.domain.ids import AgentStream, RunStream, StreamId
from hansard.domain.run import AgentJoined, RunStarted
from hansard.projections import full_text
from hansard.projections.full_text import IndexPlace
from tests.cli.planting import commit, options, plant

ADA = AgentJoined(agent="ada", role="writer")


def silent(_done: int, _total: int) -> None:
    """No progress."""


def place_of(home: Path, workspace: str) -> IndexPlace:
    """Return the place of a workspace's index."""
    return IndexPlace.of(home, workspace)


def brought_up(home: Path, workspace: str, place: IndexPlace | None = None) -> int:
    """Index a workspace."""
    return _worked(home, workspace, full_text.bring_up, place)


def rebuilt(home: Path, workspace: str, place: IndexPlace | None = None) -> int:
    """Index a workspace again."""
    return _worked(home, workspace, full_text.rebuild, place)


def _worked(home: Path, workspace: str, work: Any, place: IndexPlace | None) -> int:
    async def run() -> int:
        raw = await RawWorkspace.open(options(home), workspace)
        try:
            count: int = await work(raw, place or place_of(home, workspace), silent)
            return count
        finally:
            await raw.close()

    return asyncio.run(run())


def content(path: Path) -> dict[str, Any]:
    """Return the whole content of an index: rows, words with their places, position; FTS5 checks
    it.
    """
    con = sqlite3.connect(path)
    try:
        con.execute("INSERT INTO events (events, rank) VALUES ('integrity-check', 1)")
        con.execute("CREATE VIRTUAL TABLE temp.words USING fts5vocab(main, events, instance)")
        return {
            "rows": con.execute(
                "SELECT rowid, text, id, type, run, agent, role FROM events ORDER BY rowid"
            ).fetchall(),
            "words": sorted(con.execute("SELECT term, doc, col, offset FROM temp.words")),
            "progress": con.execute("SELECT * FROM progress").fetchall(),
            "pages": con.execute("PRAGMA integrity_check").fetchall(),
        }
    finally:
        con.close()


def say(home: Path, workspace: str, *texts: Any, run: str = "r1") -> None:
    """Record a run in which an agent states these texts."""
    who = AgentStream(run, "writer", "ada")
    began = SessionBegan(
        epoch=1, agent="ada", role="writer", server_version="1", protocol_version="1"
    )
    messages = [
        MessageAdded(role="user", content=msgspec.Raw(msgspec.json.encode(text)), fingerprint="f")
        for text in texts
    ]
    plant(
        home,
        workspace,
        (RunStream(run), commit(1, RunStarted(workflow="w"), ADA)),
        (who, commit(1, began, *messages)),
    )


def unknown(home: Path, workspace: str, tag: str, data: bytes, run: str = "r9") -> None:
    """Append an event of a type that this version does not know."""
    event = Recorded(tag, "event-of-tomorrow", msgspec.Raw(data))
    plant(home, workspace, (RunStream(run), commit(1, event)))


def grow(home: Path, workspace: str, since: int, count: int) -> None:
    """Many runs of four events each."""
    planted: list[tuple[StreamId, Commit]] = []
    for number in range(since, since + count):
        run = f"run {number}"
        text = msgspec.json.encode(f"number {number} of many, {'é漢字 ' * (number % 7)}")
        who = AgentStream(run, "writer", "ada")
        began = SessionBegan(
            epoch=1, agent="ada", role="writer", server_version="1", protocol_version="1"
        )
        message = MessageAdded(role="user", content=msgspec.Raw(text), fingerprint="f")
        planted += [
            (RunStream(run), commit(1, RunStarted(workflow="w"), ADA)),
            (who, commit(1, began, message)),
        ]
    plant(home, workspace, *planted)


def made(home: Path, workspace: str) -> str:
    """Record a real run with a tool, a failure, a decision and a large result; return its id."""
    with (
        hansard.connect(workspace, data_dir=home) as record,
        record.run("orders", agent="clerk", role="support") as session,
    ):

        @session.tool(effects="once")
        def refund(order: str, note: str) -> dict[str, str]:
            return {"confirmation": f"Überweisung für {order}"}

        fetch = session.tool(effects="pure", name="fetch")(lambda size: "haystack " * size)
        session.message("user", "Please refund my \x1b[31m order\x07 #W2378156.")
        refund("#W2378156", "café closed\u200b early")
        fetch(20_000)
        session.decide("Refund or exchange?", selected="refund", alternatives=["exchange"])
        return session.run
