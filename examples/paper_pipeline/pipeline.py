"""Search, download, extract, analyze, summarize: five stages over real documents, all on record.

    python pipeline.py WORD            what the papers say of a word
    python pipeline.py WORD --again    summarized in another way, from the same analysis: a fork

The papers are the chapters of the Python language reference, which every Python brings along.
Downloads run side by side. What was extracted is large, so the record keeps it as a blob. The
analysis goes paper by paper, and goes on with the paper where it stood.
"""

import argparse
import asyncio
import os
import re
import sys
from collections import Counter
from pathlib import Path
from pydoc_data.topics import topics as chapters

import hansard

FORK = os.environ.get("HANSARD_RUN")  # of a worker; read before the record is opened
PAPERS_MAX = 4
QUOTES_MAX = 5
SUMMARY_QUOTES_MAX = 3


@hansard.tool(effects="pure")
async def search(word: str) -> list[str]:
    """Return the titles of the papers with the most occurrences of a word."""
    # Replace this line by a request to your search engine.
    return await asyncio.to_thread(titles_by_count, word)


@hansard.tool(effects="idempotent")
async def download(title: str) -> str:
    """Copy a paper to the shelf, and return its place; a repetition changes nothing."""
    # Replace this line by a request to where the papers are.
    return await asyncio.to_thread(put_on_shelf, title)


@hansard.tool(effects="pure")
async def extract(papers: list[str]) -> dict[str, list[str]]:
    """Return the sentences of each paper by its title, without headings, tables and code."""
    return await asyncio.to_thread(prose_of, papers)


@hansard.tool(effects="pure", kind="model")
async def analyze(sentences: list[str], word: str) -> list[str]:
    """Return a paper's most telling sentences about a word."""
    # Replace this line by a call of your model.
    return await asyncio.to_thread(quotes_by_frequency, sentences, word)


@hansard.tool(effects="pure", kind="model")
async def summarize(messages: list[dict[str, str]], style: str) -> str:
    """One text from the analyses, in a style: `short` or `balanced`."""
    # Replace this line by a call of your model: it gets the same messages.
    return await asyncio.to_thread(extractive_summary, messages, style)


async def pipeline(session: hansard.AsyncSession, word: str, style: str) -> str:
    """All five stages; the summary."""
    titles = await search(word)
    await session.checkpoint("searched", titles=titles)

    papers = await session.gather(*(download(title) for title in titles))
    await session.checkpoint("downloaded", papers=papers)

    sentences = await extract(papers)
    await session.checkpoint("extracted", sentences=sum(map(len, sentences.values())))

    async for title in session.resumable(titles):
        quotes = await analyze(sentences[title], word)
        await session.message("user", "\n".join([f"What {title} says of {word}:", *quotes]))
    await session.checkpoint("analyzed", papers=len(titles))

    summary = await summarize(await session.context(), style)
    await session.message("assistant", summary)
    await session.checkpoint("summarized", style=style)
    return summary


async def fork_after_analysis(record: hansard.AsyncRecord, run: str) -> str:
    """Return the fork of a run that begins where its analysis ended; make it if there is none."""
    for other, life in await record.runs():
        if life.forked is not None and life.forked.parent == run:
            return other
    librarian = (await record.state(run)).agents["librarian"]
    analyzed = librarian.checkpoints.get("analyzed")
    if analyzed is None:
        sys.exit(f"{run} stopped before its analysis ended: let it go on first, without --again")
    version = next(noted.version for noted in librarian.facts if noted.fact is analyzed)
    return await record.fork(run, at=f"librarian@{version}")


async def main(word: str, *, again: bool) -> None:
    """Run the pipeline, or go on with it; print its summary."""
    async with hansard.connect_async() as record:
        run, style = FORK or f"papers-{word}", "short"
        if again:
            run, style = await fork_after_analysis(record, run), "balanced"
        async with record.run("papers", run=run, agent="librarian", role="researcher") as session:
            print(await pipeline(session, word, style))


# Replacements of a search engine, a network and a model, so that this runs anywhere.

SHELF = Path("papers")


def titles_by_count(word: str) -> list[str]:
    """Rank by rule: chapters with more occurrences of the word first."""
    counts = {title: text.lower().count(word.lower()) for title, text in chapters.items()}
    found = sorted((title for title in counts if counts[title]), key=lambda each: -counts[each])
    return found[:PAPERS_MAX]


def put_on_shelf(title: str) -> str:
    """Write a chapter of the language reference to a file."""
    SHELF.mkdir(exist_ok=True)
    paper = SHELF / f"{title}.txt"
    paper.write_text(chapters[title], "utf-8")
    return str(paper)


def prose_of(papers: list[str]) -> dict[str, list[str]]:
    """Split by rule: a sentence begins with a capital letter and ends with a full stop."""
    sentences = {}
    for paper in map(Path, papers):
        paragraphs = re.split(r"\n\s*\n", paper.read_text("utf-8"))
        parts = [part for text in paragraphs for part in re.split(r"(?<=\.)\s+(?=[A-Z])", text)]
        flat = [" ".join(part.split()) for part in parts]
        sentences[paper.stem] = [part for part in flat if re.fullmatch(r"[A-Z].*\.", part)]
    return sentences


def quotes_by_frequency(sentences: list[str], word: str) -> list[str]:
    """Choose by rule: sentences with the word and with the paper's most frequent words."""
    frequency = Counter(re.findall(r"[a-z]{5,}", " ".join(sentences).lower()))

    def weight(sentence: str) -> float:
        words = re.findall(r"[a-z]{5,}", sentence.lower())
        return sum(frequency[each] for each in words) / max(1, len(words))

    with_word = [sentence for sentence in sentences if word.lower() in sentence.lower()]
    return sorted(with_word, key=lambda sentence: (-weight(sentence), sentence))[:QUOTES_MAX]


def extractive_summary(messages: list[dict[str, str]], style: str) -> str:
    """Summarise by rule: `short` takes the shortest quotes of all, `balanced` the first of each."""
    analyses = [message["content"].splitlines()[1:] for message in messages]
    if style == "balanced":
        quotes = [quote for analysis in analyses for quote in analysis[:1]]
    else:
        quotes = sorted((quote for analysis in analyses for quote in analysis), key=len)
    different = list(dict.fromkeys(quotes))
    return "\n".join(f"- {quote}" for quote in different[:SUMMARY_QUOTES_MAX])


if __name__ == "__main__":
    given = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    given.add_argument("word", help="what to look for")
    given.add_argument("--again", action="store_true", help="summarize in another way: a fork")
    asked = given.parse_args()
    asyncio.run(main(asked.word, again=asked.again))
