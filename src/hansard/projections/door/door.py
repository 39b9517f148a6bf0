"""The SQL door: untrusted questions, answered from published generations of one place."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Self

from hansard.projections import generations
from hansard.projections.door._wire import Ask, Said
from hansard.projections.door.answer import Answer
from hansard.projections.door.errors import Closed, NotAllowed, QueryFailed, TooCostly
from hansard.projections.door.limits import SQL_CHARACTERS_MAX, Bounds, Limits
from hansard.projections.door.pool import Pool
from hansard.projections.generations import Generation
from hansard.projections.place import Place

WAIT_S = 10.0
"""How long a position may take to be published."""

TRIES_MAX = 3
"""Tries with the generation that is newest then: a rebuild takes away what was published."""


_NOTHING = "nothing is published of this workspace: run 'hansard up', or ask with 'hansard sql'"


class Door:
    """Answers SQL of whoever asks. Use it in `async with`; several questions may be asked at once.

    Everybody who may ask sees all that is published there: of the workspace, or what one role sees
    (`hansard.projections.roles`).
    """

    def __init__(self, place: Place, bounds: Bounds | None = None) -> None:
        self._place = place
        self._pool: Pool | None = None
        self._bounds = bounds if bounds is not None else Bounds()

    async def __aenter__(self) -> Self:
        """Start what is started ahead: one at least, since somebody is going to ask."""
        self._pool = Pool(self._place.published, self._bounds)
        if self._place.published.exists():
            self._pool.warm(at_least=1)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the workers."""
        if self._pool is not None:
            await self._pool.close()

    async def ask(
        self,
        sql: str,
        limits: Limits | None = None,
        *,
        wait_for: int | None = None,
        wait_s: float = WAIT_S,
    ) -> Answer:
        """Answer one statement that reads, from the newest generation, or from one at `wait_for`,
        for which it waits. Raises NotAllowed, QueryFailed, TooCostly, Busy, Closed, Behind.
        """
        _check(sql)
        if wait_for is not None:
            await generations.wait_for(self._place, wait_for, wait_s)
        if self._pool is None:
            raise Closed("the SQL door is not open: use it in 'async with'")
        given = limits if limits is not None else Limits()
        gone = ""
        for _ in range(TRIES_MAX):
            if generations.newest(self._place) is None:
                raise Closed(_NOTHING)
            async with self._pool.worker() as worker:
                with generations.holding(self._place) as generation:
                    question = _question(generation, sql, given)
                    said, body = await worker.ask(question)
            if said.wrong != "gone":
                return _answer(said, body, question.position, given)
            gone = said.text
        raise Closed(f"what is published cannot be opened ({gone}): run 'hansard rebuild'")


def _check(sql: str) -> None:
    if len(sql) > SQL_CHARACTERS_MAX:
        raise NotAllowed(
            f"the question has {len(sql):,} characters, the most is {SQL_CHARACTERS_MAX:,}: "
            "shorten it"
        )
    if "\0" in sql:
        raise NotAllowed(f"the question has a NUL at character {sql.index(chr(0))}: remove it")
    with contextlib.suppress(UnicodeEncodeError):
        sql.encode()
        return
    raise NotAllowed("the question has characters that UTF-8 does not: remove them")


def _question(generation: Generation | None, sql: str, limits: Limits) -> Ask:
    if generation is None:
        raise Closed(_NOTHING)
    return Ask(generation.folder.name, generation.position, sql, limits)


def _answer(said: Said, body: bytes, position: int, limits: Limits) -> Answer:
    match said.wrong:
        case None:
            return Answer(position, body, said.rows, said.cut, said.engine_ms, said.open_ms)
        case "not allowed":
            raise NotAllowed(said.text)
        case "memory":
            raise TooCostly("memory", f"{limits.memory_mib:,} MiB of memory")
        case _:
            raise QueryFailed(said.text)
