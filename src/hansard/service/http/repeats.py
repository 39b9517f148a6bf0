"""Answers of writes by their `Idempotency-Key`, so that a repeated request writes once.

A row is stored before the write begins, and its answer afterwards, in a file of the data directory.
After a kill in between, the same request is answered as in doubt. The file survives a kill of the
process; after a power cut the last rows may be missing.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from hansard.bus.errors import AppendUnknown
from hansard.domain.errors import HansardError
from hansard.service.http.problems import MEDIA_TYPE, problem

KEY_LENGTH_MAX = 255
"""Most characters of a key."""

KEPT_S, KEPT_MAX = 24 * 3_600, 100_000
"""Seconds that an answer is kept, and most answers of all workspaces."""

ANSWER_BYTES_MAX = 1024 * 1024
"""Largest answer that is kept; a repeated request for a larger one is answered without content."""

REPEATED = "Idempotency-Replayed"
"""Header of an answer that an earlier request with the same key got."""

_SCHEMA = """
    CREATE TABLE IF NOT EXISTS writes (
        caller TEXT, key TEXT, digest TEXT NOT NULL, begun REAL NOT NULL,
        status INTEGER, headers TEXT, body BLOB, PRIMARY KEY (caller, key)
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS writes_begun ON writes (begun);
"""

_TRIM = """
    DELETE FROM writes
    WHERE begun <= (SELECT begun FROM writes ORDER BY begun DESC LIMIT 1 OFFSET ?)
"""
_FIND = "SELECT digest, status, headers, body FROM writes WHERE caller = ? AND key = ?"
_ADD = "INSERT INTO writes (caller, key, digest, begun) VALUES (?, ?, ?, ?)"
_ANSWER = "UPDATE writes SET status = ?, headers = ?, body = ? WHERE caller = ? AND key = ?"


class _Row(msgspec.Struct, frozen=True):
    digest: str
    status: int | None
    headers: str | None
    body: bytes | None


class Repeats:
    """The writes by caller and key."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database: sqlite3.Connection | None = None
        self._lock = asyncio.Lock()
        self._running: dict[tuple[str, str], tuple[str, asyncio.Task[Response]]] = {}

    async def answer(
        self, request: Request, caller: str, body: bytes, write: Callable[[], Awaitable[Response]]
    ) -> Response:
        """Return the answer of a write, which runs once for a key, also if its client leaves."""
        key = request.headers.get("idempotency-key", "").strip().strip('"')
        if not 0 < len(key) <= KEY_LENGTH_MAX:
            remedy = f"send a new text of 1 to {KEY_LENGTH_MAX} characters for each write"
            fact = "a write without an Idempotency-Key" if not key else f"a key of {len(key)}"
            return problem(HTTPStatus.BAD_REQUEST, fact, remedy=remedy, value="Idempotency-Key")
        parts = f"{request.method} {request.url.path}?{request.url.query} ".encode()
        digest = hashlib.sha256(parts + body).hexdigest()
        name = (caller, key)
        known, task = self._running.get(name, (digest, None))
        if task is None:
            task = asyncio.create_task(self._once(name, digest, write))
            self._running[name] = (digest, task)
            task.add_done_callback(lambda _: self._running.pop(name, None))
        elif known != digest:
            return _other(key)
        return await asyncio.shield(task)

    async def aclose(self) -> None:
        """Wait for writes under way, and close the file."""
        if self._running:
            await asyncio.wait([task for _, task in self._running.values()])
        if self._database is not None:
            self._database.close()

    async def _once(
        self, name: tuple[str, str], digest: str, write: Callable[[], Awaitable[Response]]
    ) -> Response:
        row = await self._locked(self._begin, name, digest)
        if row is not None:
            return _repeated(row, digest, name[1])
        try:
            answer = await write()
        except AppendUnknown:
            raise  # it may have been made: the same key is answered as in doubt from now on
        except HansardError:
            await self._locked(self._forget, name)  # nothing was written: it may be sent again
            raise
        await self._locked(self._end, name, answer)
        return answer

    async def _locked(self, step: Callable[..., _Row | None], *words: object) -> _Row | None:
        async with self._lock:
            return await asyncio.to_thread(step, *words)

    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._database = sqlite3.connect(self._path, check_same_thread=False)
            self._path.chmod(0o600)
            pragmas = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
            self._database.executescript(pragmas + _SCHEMA)
        return self._database

    def _begin(self, name: tuple[str, str], digest: str) -> _Row | None:
        """Store that a write begins; return the row of an earlier one instead."""
        now_s = time.time()
        with self._open() as database:
            database.execute("DELETE FROM writes WHERE begun < ?", [now_s - KEPT_S])
            database.execute(_TRIM, [KEPT_MAX])
            row = database.execute(_FIND, name).fetchone()
            if row is None:
                database.execute(_ADD, [*name, digest, now_s])
        return None if row is None else _Row(*row)

    def _end(self, name: tuple[str, str], answer: Response) -> None:
        body = bytes(answer.body) if len(answer.body) <= ANSWER_BYTES_MAX else b""
        headers = msgspec.json.encode(dict(answer.headers)).decode()
        with self._open() as database:
            database.execute(_ANSWER, [answer.status_code, headers, body, *name])

    def _forget(self, name: tuple[str, str]) -> None:
        with self._open() as database:
            database.execute("DELETE FROM writes WHERE caller = ? AND key = ?", name)


def _repeated(row: _Row, digest: str, key: str) -> Response:
    """Return the answer to a request whose key is known."""
    if row.digest != digest:
        return _other(key)
    if row.status is None:
        fact = "an earlier request with this key did not learn whether its write was made"
        remedy = "look at the record; to write, send it with a new key"
        return problem(HTTPStatus.CONFLICT, fact, remedy=remedy, value=key, kind="in-doubt")
    headers = msgspec.json.decode(row.headers or "{}", type=dict[str, str])
    headers.pop("content-length", None)
    kind = headers.pop("content-type", MEDIA_TYPE)
    return Response(row.body, row.status, headers | {REPEATED: "true"}, kind)


def _other(key: str) -> Response:
    fact = "another request was sent with this Idempotency-Key"
    remedy = "send each write with a key of its own"
    unfit = HTTPStatus.UNPROCESSABLE_ENTITY
    return problem(unfit, fact, remedy=remedy, value=key, kind="key-reused")
