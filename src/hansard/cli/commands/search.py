"""`hansard search`: the index of words brought up to the newest position, then asked."""

from __future__ import annotations

import asyncio

import msgspec
from rich.text import Text

from hansard.cli import output
from hansard.cli.commands.rebuild import positions
from hansard.cli.opening import Options, data_dir_of, find_run, reading, reading_raw
from hansard.cli.output import Part
from hansard.domain.errors import CallerError
from hansard.inspect.search import Hits
from hansard.inspect.texts import plain_text
from hansard.projections.errors import Held
from hansard.projections.search import search as index
from hansard.projections.search.search import Answer, Hit, IndexPlace, Question

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
        output.hint(f"{by} is indexing: this answers from what it has indexed")
    output.show(Hits(found), lambda _: _people(found), json=asked.json)
    if not found.hits:
        output.hint("nothing was found")
    if found.more:
        output.hint(f"more than {len(found.hits)} were found: see --limit")
    output.hint(f"as of position {found.position}")
    return 0


async def _run(options: Options, run: str | None) -> str | None:
    if run is None:
        return None
    async with reading(options) as workspace:
        return await find_run(workspace, run)


async def _fill(options: Options, place: IndexPlace, *, rebuild: bool) -> Held | None:
    """Bring the index up, or make it anew. Where another process does, who that is."""
    async with reading_raw(options) as raw:
        with positions() as progress:
            if rebuild:
                reached = await index.rebuild(raw, place, progress)
                output.hint(f"made {place.path} up to position {reached}")
                return None
            try:
                await index.bring_up(raw, place, progress)
            except Held as error:
                return error
    return None


def _people(found: Answer) -> list[Part]:
    return [output.Lines(_shown(hit)) for hit in found.hits]


def _shown(hit: Hit) -> list[Text]:
    """Where it stands, and what it says, with the matches in brackets."""
    head = Text(hit.address, style="bold")
    head.append(f"  {output.cut(hit.type)}", style="cyan")
    if hit.run is not None:
        head.append(f"  run {output.cut(hit.run)}")
    if hit.agent is not None:
        head.append(f"  {output.cut(hit.agent)} ({output.cut(hit.role or '')})")
    said, at = Text(_INDENT), 0
    for begin, end in hit.snippet.marks:
        said.append(plain_text(hit.snippet.text[at:begin]))
        said.append(f"[{plain_text(hit.snippet.text[begin:end])}]", style="bold yellow")
        at = end
    said.append(plain_text(hit.snippet.text[at:]))
    return [head, said]
