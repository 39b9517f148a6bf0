"""Search, download, extract, analyze, summarize: five stages over real files, each kept.

    python pipeline.py WORD [FOLDER]     read what the folder's texts say of a word
    python pipeline.py WORD --again      from the analysis on, another way: a fork

Downloads run side by side; the analysis goes paper by paper and goes on where it stood; the fork
begins where the analysis ended and runs nothing of what came before.
"""

import asyncio
import re
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import hansard

SHELF = Path("papers")
OUR_TEXTS = Path(__file__).parents[2] / "docs"
PAPERS = 4


@hansard.tool(effects="pure")
async def search(word: str, folder: str) -> list[str]:
    """The papers that say a word most often."""
    # Replace the next four lines by a call of your search engine.
    paths = sorted(Path(folder).rglob("*.md"))
    counts = {str(path): path.read_text("utf-8").lower().count(word.lower()) for path in paths}
    found = sorted(
        (path for path in counts if counts[path]), key=lambda path: (-counts[path], path)
    )
    return found[:PAPERS]


@hansard.tool(effects="idempotent")
async def download(source: str) -> str:
    """Bring a paper to the shelf; bringing it again changes nothing."""
    # Replace the next four lines by a request to where the papers are.
    SHELF.mkdir(exist_ok=True)
    target = SHELF / Path(source).name
    await asyncio.to_thread(shutil.copyfile, source, target)
    return str(target)


@hansard.tool(effects="pure")
async def extract(paper: str) -> str:
    """A paper's prose, without its code and tables. Over 64 KiB it is kept as a blob."""
    text = Path(paper).read_text("utf-8")
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return "\n".join(line for line in text.splitlines() if not line.startswith("|"))


@hansard.tool(effects="pure")
async def analyze(text: str, word: str) -> dict[str, Any]:
    """What a text is about, and where it says the word."""
    words = Counter(re.findall(r"[a-z]{6,}", text.lower()))  # shorter ones are of every text
    sentences = re.split(r"(?<=[.:])\s+", text.replace("\n", " "))
    saying = [sentence for sentence in sentences if word.lower() in sentence.lower()]
    return {"words": words.most_common(5), "saying": saying[:5], "times": len(saying)}


@hansard.tool(effects="pure", kind="model", version="1")
async def summarize(word: str, analyses: list[dict[str, Any]], sentences: int) -> str:
    """A summary of what was found: the shortest sentences that say the word, by rule."""
    # Replace the next three lines by a call of your model.
    saying = [sentence for analysis in analyses for sentence in analysis["saying"]]
    chosen = sorted(set(saying), key=lambda sentence: (len(sentence), sentence))[:sentences]
    return f"{word}, in {sum(each['times'] for each in analyses)} places. " + " ".join(chosen)


async def pipeline(session: hansard.AsyncSession, word: str, folder: str, sentences: int) -> str:
    """All five stages; the summary."""
    found = await search(word, folder)
    await session.checkpoint("searched", papers=found)

    papers = await session.gather(*(download(source) for source in found))
    await session.checkpoint("downloaded", papers=papers)

    texts = await session.gather(*(extract(paper) for paper in papers))
    await session.checkpoint("extracted", characters=[len(text) for text in texts])

    analyses = [await analyze(text, word) for text in texts]
    await session.checkpoint("analyzed", papers=len(analyses))

    summary = await summarize(word, analyses, sentences)
    await session.checkpoint("summarized", summary=summary)
    return summary


async def main(word: str, folder: str, *, again: bool) -> None:
    """Run the pipeline or go on with it; with `again`, fork it where the analysis ended."""
    run = f"papers-{word}"
    async with hansard.connect_async(workspace="papers") as record:
        sentences = 3
        if again:
            run = await record.fork(run, at=await analyzed(record, run))
            sentences = 6
        async with record.run("papers", run=run, agent="librarian", role="researcher") as session:
            print(await pipeline(session, word, folder, sentences))


async def analyzed(record: hansard.AsyncRecord, run: str) -> str:
    """The point at which a run's analysis ended."""
    facts = (await record.state(run)).agents["librarian"].facts
    [version] = [each.version for each in facts if getattr(each.fact, "name", "") == "analyzed"]
    return f"librarian@{version}"


if __name__ == "__main__":
    words = [argument for argument in sys.argv[1:] if argument != "--again"]
    texts = words[1] if len(words) > 1 else str(OUR_TEXTS)
    asyncio.run(main(words[0], texts, again="--again" in sys.argv))
