"""Chats to import, and readers of the resulting log."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hansard import settings
from hansard.agents.workspace import Workspace
from hansard.bus.commits import encode, revive
from hansard.bus.log import Append, Stored
from hansard.client.opening import open_workspace
from hansard.domain.events import Event
from hansard.domain.ids import AgentStream, run_of
from hansard.domain.payload import run_fetch
from hansard.ext.importers.chat import ImportDefaults, Mapped, from_chat, mapped, run_id
from hansard.inspect.rederive import CheckedCall, Rederiver

NOW = datetime(2026, 11, 21, 10, tzinfo=UTC)


def call(id_: str | None, tool: str, arguments: Any = "{}") -> dict[str, Any]:
    """Return a tool call as a model asks for it."""
    return {"id": id_, "type": "function", "function": {"name": tool, "arguments": arguments}}


def asks(*calls: dict[str, Any], content: Any = None, **more: Any) -> dict[str, Any]:
    """Return an assistant's message with calls."""
    return {"role": "assistant", "content": content, "tool_calls": list(calls), **more}


def says(role: str, content: Any, **more: Any) -> dict[str, Any]:
    """Return a message."""
    return {"role": role, "content": content, **more}


def answer(id_: str | None, content: Any, **more: Any) -> dict[str, Any]:
    """Return a tool's message."""
    return {"role": "tool", "tool_call_id": id_, "content": content, **more}


def chat(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a record."""
    return {"run": "r", "workflow": "w", "messages": list(messages), **more}


def made(
    record: dict[str, Any], defaults: ImportDefaults | None = None, at: datetime = NOW
) -> Mapped:
    """Return a record as commits, the way the importer makes them."""
    run = from_chat(json.loads(json.dumps(record)), defaults or ImportDefaults())
    return mapped(run, run_id(run), "some.jsonl", at)


def events(out: Mapped, stream: str | None = None) -> list[Event]:
    """Return the events of a run, or of one of its streams, in the order of its commits."""
    return [
        revive(recorded)
        for append in out.appends
        if stream is None or str(append.stream) == stream
        for recorded in append.commit.events
    ]


def of_type(out: Mapped, kind: type[Any], stream: str | None = None) -> list[Any]:
    """Return the events of one type."""
    return [event for event in events(out, stream) if isinstance(event, kind)]


def bare(append: Append) -> tuple[str, bytes]:
    """Return a commit's stream and body less the importer's clock."""
    return str(append.stream), _bare(encode(append.stream, append.commit))


def _bare(body: bytes) -> bytes:
    body_fields = json.loads(body)
    del body_fields["at"]
    return json.dumps(body_fields).encode()


def rederived(out: Mapped) -> list[CheckedCall]:
    """Return every call of a run, derived again from what is recorded."""
    blobs = {hashlib.sha256(blob).hexdigest(): blob for blob in out.blobs}
    agents: dict[str, Rederiver] = {}

    async def fetch(request: Any) -> Any:
        return run_fetch(request, lambda sha256, _: blobs[sha256])

    async def take() -> None:
        for append in out.appends:
            if isinstance(append.stream, AgentStream):
                rederiver = agents.setdefault(
                    append.stream.agent, Rederiver(append.stream.agent, fetch)
                )
                body = encode(append.stream, append.commit)
                await rederiver.take(Stored(0, 0, append.stream, append.commit, body))

    asyncio.run(take())
    return [checked for each in agents.values() for checked in each.checked.values()]


def written(path: Path, records: Iterable[Any]) -> Path:
    """Return a file of JSON lines."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def in_workspace(home: Path, workspace: str, work: Callable[[Workspace], Any]) -> Any:
    """Do something async with a workspace."""

    async def run() -> Any:
        opened = await open_workspace(settings.load(data_dir=home, workspace=workspace))
        try:
            return await work(opened)
        finally:
            await opened.close()

    return asyncio.run(run())


def log_of(home: Path, workspace: str) -> list[Stored]:
    """Return the commits of runs in a workspace's log, without the import's own."""

    async def read(opened: Workspace) -> list[Stored]:
        head = await opened.log.head()
        commits = [stored async for stored in opened.log.follow(0, until=head)]
        return [stored for stored in commits if run_of(stored.stream) is not None]

    commits: list[Stored] = in_workspace(home, workspace, read)
    return commits


STORED_S = 60.0


def stored_beyond(home: Path, workspace: str, position: int) -> None:
    """Wait until a workspace's log, which somebody else writes, is longer than so much."""

    async def wait(opened: Workspace) -> None:
        until_s = time.monotonic() + STORED_S
        while await opened.log.head() <= position:
            assert time.monotonic() < until_s
            await asyncio.sleep(0.005)

    in_workspace(home, workspace, wait)


def runs_of(home: Path, workspace: str) -> set[str | None]:
    """Return the runs of a workspace."""
    return {run_of(stored.stream) for stored in log_of(home, workspace)}


def bodies(home: Path, workspace: str) -> list[tuple[str, bytes]]:
    """Return the whole log less the importers' clocks, by position."""
    return [(_where(stored), _bare(stored.body)) for stored in log_of(home, workspace)]


def _where(stored: Stored) -> str:
    return f"{stored.stream!r} {stored.commit.version}"
