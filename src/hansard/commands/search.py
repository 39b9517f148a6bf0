"""`hansard search`: the index of words brought up to the newest position, then asked."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from rich.text import Text

from hansard.commands import _show
from hansard.commands._open import Options, data_dir_of, find_run, reading, reading_raw
from hansard.commands.rebuild import _progress
from hansard.domain.errors import CallerError
from hansard.projections import search as index
from hansard.projections.errors import Held
from hansard.projections.search import Answer, Hit, IndexPlace, Question

_INDENT = "    "


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What to search for and where; a limit of 0 is none."""

    words: str
    is_query: bool = False
    run: str | None = None
    agent: str | None = None
    type: str | None = None
    limit: int = 20
    rebuild: bool = False
    json: bool = False


class Nothing(CallerError):
    """Neither words nor --rebuild were given."""

    def __init__(self) -> None:
        super().__init__("there is nothing to search for: give words, or --rebuild")


async def search(options: Options, asked: Asked) -> int:
    """Print what fits, the best first. Raises BadQuery, NotFound, Held, ProjectionError."""
    words = asked.words.strip()
    if not words and not asked.rebuild:
        raise Nothing
    settings = options.settings()
    place = IndexPlace.of(data_dir_of(settings), settings.workspace)
    run = await _run(options, asked.run)
    busy = await _fill(options, place, rebuild=asked.rebuild)
    if not words:
        return 0
    question = Question(
        words=asked.words,
        is_query=asked.is_query,
        run=run,
        agent=asked.agent,
        type=asked.type,
        limit=asked.limit or index.ALL,
    )
    found = await asyncio.to_thread(index.ask, place, question)
    if found is None:
        raise busy or index.IndexUnusable(place.path, "it was removed meanwhile")
    if busy is not None:
        by = f"process {busy.pid}" if busy.pid else "another process"
        _show.hint(f"{by} is indexing: this answers from what it has indexed")
    _print(found, asked)
    return 0


async def _run(options: Options, run: str | None) -> str | None:
    if run is None:
        return None
    async with reading(options) as workspace:
        return await find_run(workspace, run)


async def _fill(options: Options, place: IndexPlace, *, rebuild: bool) -> Held | None:
    """Bring the index up, or make it anew. Where another process does, who that is."""
    async with reading_raw(options) as raw:
        with _progress() as progress:
            if rebuild:
                reached = await index.rebuild(raw, place, progress)
                _show.hint(f"made {place.path} up to position {reached}")
                return None
            try:
                await index.bring_up(raw, place, progress)
            except Held as error:
                return error
    return None


def _print(found: Answer, asked: Asked) -> None:
    for hit in found.hits:
        if asked.json:
            _show.emit(_line(hit, found.position))
        else:
            _show.write(_show.Lines(_shown(hit)))
    if not found.hits:
        _show.hint("nothing was found")
    if found.more:
        _show.hint(f"more than {len(found.hits)} were found: see --limit")
    _show.hint(f"as of position {found.position}")


def _line(hit: Hit, position: int) -> dict[str, Any]:
    return {
        "position": hit.position,
        "event_index": hit.event_index,
        "event": hit.event,
        "type": hit.type,
        "run": hit.run,
        "agent": hit.agent,
        "role": hit.role,
        "snippet": hit.snippet.text,
        "marks": hit.snippet.marks,
        "rank": hit.rank,
        "as_of": position,
    }


def _shown(hit: Hit) -> list[Text]:
    """Where it stands, and what it says, with the matches in brackets."""
    head = Text(hit.address, style="bold")
    head.append(f"  {_show.cut(hit.type)}", style="cyan")
    if hit.run is not None:
        head.append(f"  run {_show.cut(hit.run)}")
    if hit.agent is not None:
        head.append(f"  {_show.cut(hit.agent)} ({_show.cut(hit.role or '')})")
    said, at = Text(_INDENT), 0
    for begin, end in hit.snippet.marks:
        said.append(_show.plain_text(hit.snippet.text[at:begin]))
        said.append(f"[{_show.plain_text(hit.snippet.text[begin:end])}]", style="bold yellow")
        at = end
    said.append(_show.plain_text(hit.snippet.text[at:]))
    return [head, said]
