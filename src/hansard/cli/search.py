"""Command `hansard search`: update the text index to the newest position, then query it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from hansard.cli import output
from hansard.cli.common import Agent, Commands, argument, flag, option, within
from hansard.cli.opening import reading_raw, reading_run, settings
from hansard.client.opening import data_dir_of
from hansard.domain.errors import CallerError
from hansard.inspect.answer import plain_text
from hansard.projections import full_text as index
from hansard.projections.errors import Held, Unusable
from hansard.projections.full_text import Answer, Hit, IndexPlace, Question

if TYPE_CHECKING:
    from rich.text import Text


app = Commands()

_INDENT = "    "


@app.command()
async def search(
    words: Annotated[
        list[str] | None, argument("WORDS", 'Words that must all occur; "..." is a phrase.')
    ] = None,
    run: Annotated[str | None, option("Only this run: its id, a prefix, or 'last'.", "RUN")] = None,
    agent: Agent = None,
    type_: Annotated[
        str | None, option("Only events of this type, e.g. decision.made.", "TYPE", "--type")
    ] = None,
    limit: Annotated[int, option("Most events to show; 0 shows all.", min=0)] = 20,
    query: Annotated[bool, flag("--query", "WORDS are a query in SQLite's FTS5 syntax.")] = False,
    rebuild: Annotated[bool, flag("--rebuild", "Rebuild the index from the log first.")] = False,
) -> None:
    """Search the text of events, best match first.

    Searches all texts and keys in the events' data, ignoring case and accents. Payloads stored as
    blobs are not searched, only their references. The index is updated to the newest event first;
    while another process updates it, the answer covers what is indexed.
    """
    expression = " ".join(words or [])
    if not expression.strip() and not rebuild:
        message = "there is nothing to search for: give words, or --rebuild"
        raise CallerError(message)
    config = settings()
    place = IndexPlace.of(data_dir_of(config), config.workspace)
    if run is not None:
        async with reading_run(run) as (_, found_run):
            run = found_run
    busy = await _fill(place, rebuild=rebuild)
    if not expression.strip():
        return
    question = Question(
        words=expression, is_query=query, run=run, agent=agent, type=type_, limit=limit or index.ALL
    )
    answer = await asyncio.to_thread(index.ask, place, question)
    if answer is None:
        raise busy or Unusable(place.path, "it was removed meanwhile", place.remedy)
    if busy is not None:
        by = f"process {busy.pid}" if busy.pid else "another process"
        output.hint(f"{by} is indexing: this answers from what it has indexed")
    output.show([*_lines(answer)], [output.Lines(_hit_cells(hit)) for hit in answer.hits])
    if not answer.hits:
        of = within(run=run, agent=agent, type=type_)
        output.hint(
            f"nothing was found in the texts of events{of}: payloads over 64 KiB, which are "
            "kept apart, are not searched"
        )
    if answer.more:
        output.hint(f"more than {len(answer.hits)} were found: see --limit")
    output.hint(f"as of position {answer.position}")


async def _fill(place: IndexPlace, *, rebuild: bool) -> Held | None:
    """Update or rebuild the index; return the process that already does, if any."""
    async with reading_raw() as raw:
        with output.positions() as progress:
            if rebuild:
                reached = await index.rebuild(raw, place, progress)
                output.hint(f"made {place.path} up to position {reached}")
                return None
            try:
                await index.bring_up(raw, place, progress)
            except Held as error:
                return error
    return None


def _lines(answer: Answer) -> Iterator[dict[str, Any]]:
    """Yield each event; `marks` are the delimiters of matches in the snippet."""
    for hit in answer.hits:
        fields = msgspec.structs.asdict(hit)
        snippet, rank = fields.pop("snippet"), fields.pop("rank")
        shown = {"snippet": snippet.text, "marks": snippet.marks, "rank": rank}
        yield {**fields, **shown, "as_of": answer.position}


def _hit_cells(hit: Hit) -> list[Text]:
    """Render a hit: its place, and its text with the matches in brackets."""
    head = output.text(hit.address, style="bold")
    head.append(f"  {output.cut(hit.type)}", style="cyan")
    if hit.run is not None:
        head.append(f"  run {output.cut(hit.run)}")
    if hit.agent is not None:
        head.append(f"  {output.cut(hit.agent)} ({output.cut(hit.role or '')})")
    line, at = output.text(_INDENT), 0
    for begin, end in hit.snippet.marks:
        line.append(plain_text(hit.snippet.text[at:begin]))
        line.append(f"[{plain_text(hit.snippet.text[begin:end])}]", style="bold yellow")
        at = end
    line.append(plain_text(hit.snippet.text[at:]))
    return [head, line]
