"""A researcher reads, an analyzer compares, a writer reports: three processes, one list of tasks.

    python team.py WORD researcher [NAME]     reads papers, a task each
    python team.py WORD analyzer [NAME]       waits for the researchers, sees what they found
    python team.py WORD writer [NAME]         waits for the analyzer, sees both

Apply the roles first: `hansard roles apply roles.toml`. Then start them in any order, several of a
role if you like. Each role puts its tasks up; the same task again changes nothing. Kill one, and
another of its role does its task when the lease is over. The papers are the text files of a folder
`papers` where this is started, else the chapters of the Python language reference, which every
Python brings along.
"""

import argparse
import json
import re
from pathlib import Path
from pydoc_data.topics import topics as chapters
from typing import Any

import hansard

PAPERS_MAX = 5
QUOTES_MAX = 3
LEASE_S = 3.0


@hansard.tool(effects="pure")
def search(word: str) -> list[str]:
    """Return the titles of the papers with the most occurrences of a word."""
    # Replace this line by a request to your search engine.
    return titles_by_count(word)


@hansard.tool(effects="pure")
def read(title: str) -> list[str]:
    """Return the sentences of a paper."""
    # Replace this line by a request to where the papers are.
    return sentences_of(title)


@hansard.tool(effects="pure", kind="model")
def compare(findings: dict[str, list[str]], word: str) -> list[str]:
    """Rank the titles of papers, those with most about a word first."""
    # Replace this line by a call of your model.
    return by_share(findings, word)


@hansard.tool(effects="idempotent")
def publish(word: str, text: str) -> str:
    """Write a report to a file, and return its place; a repetition changes nothing."""
    return write_report(word, text)


def plan(session: hansard.Session, word: str) -> None:
    """Put the tasks of the session's own role up, where they are not up yet."""
    match session.role:
        case "researcher":
            for title in search(word):
                session.team.add(f"read {title}", what=title, role="researcher", task=title)
        case "analyzer":
            waits = ["researcher"]
            session.team.add("compare", role="analyzer", waits_for_roles=waits, task="compare")
        case _:
            waits = ["researcher", "analyzer"]
            session.team.add("report", role="writer", waits_for_roles=waits, task="report")


# The result of a task has its own name: repeated by another agent, it is the same.


def research(session: hansard.Session, word: str, title: str) -> int:
    """Record a paper's quotes about a word and a decision on its use; return their number."""
    if f"use {title}?" in decisions(session):  # by another agent, killed before it reported
        return len(session.board.get(f"findings/{title}"))
    sentences = read(title)
    quotes = [sentence for sentence in sentences if word.lower() in sentence.lower()]
    session.message("assistant", f"{title}: {len(quotes)} of {len(sentences)} sentences say it")
    session.board.put(f"findings/{title}", quotes, expected="any")
    reason = f"it says {word} in {len(quotes)} sentences"
    session.decide(f"use {title}?", selected="yes" if quotes else "no", reason=reason)
    return len(quotes)


def analyze(session: hansard.Session, word: str, _: Any) -> list[str]:
    """Return the papers that the researchers found useful, in order."""
    said = decisions(session)
    findings = {
        title: session.board.get(key)
        for key, title in findings_of(session).items()
        if said[f"use {title}?"]["selected"] == "yes"
    }
    order = compare(findings, word)
    session.board.put("analysis", order, expected="any")
    first = order[0] if order else "nothing"
    session.decide("begin with?", selected=first, reason=f"it says most of {word}")
    return order


def write(session: hansard.Session, word: str, _: Any) -> str:
    """Return a report: the quotes of the researchers in the analyzer's order, with reasons."""
    said = decisions(session)
    lines = [f"# What the papers say of {word}"]
    for title in session.board.get("analysis"):
        why = said[f"use {title}?"]["because"]["$cut"]
        quotes = session.board.get(f"findings/{title}")[:QUOTES_MAX]
        lines += ["", f"## {title}", f"Chosen because {why}.", *(f"- {each}" for each in quotes)]
    return publish(word, "\n".join(lines) + "\n")


def decisions(session: hansard.Session) -> dict[str, dict[str, Any]]:
    """Return the decisions by question, as far as the session's role may see them."""
    shown = [event for _, event in session.view().events if event.type == "decision.made.v1"]
    told = [json.loads(bytes(event.data)) for event in shown]
    return {each["question"]: each for each in told}


def findings_of(session: hansard.Session) -> dict[str, str]:
    """Return the titles of the papers that were read, by the key of their findings."""
    keys = session.board.keys()
    found = [key for key in keys if key.startswith("findings/")]
    return {key: key.removeprefix("findings/") for key in found}


WORK = {"researcher": research, "analyzer": analyze, "writer": write}


def main(word: str, role: str, name: str) -> None:
    """Do tasks of a role until none is left."""
    with (
        hansard.connect() as record,
        record.run("research", run=f"team-{word}", agent=name, role=role) as session,
    ):
        plan(session, word)
        while True:
            with session.team.claimed(lease_s=LEASE_S, timeout_s=None) as task:
                if task is None:
                    break
                task.result = WORK[role](session, word, task.what)
                print(f"{name}: {task.title}")


# Replacements of a search engine, a library and a model, so that this runs anywhere.


def papers() -> dict[str, str]:
    """Return the texts by their titles."""
    files = sorted(Path("papers").glob("*.txt"))
    return {file.stem: file.read_text("utf-8") for file in files} or dict(chapters)


def titles_by_count(word: str) -> list[str]:
    """Rank by rule: papers with more occurrences of the word first."""
    counts = {title: text.lower().count(word.lower()) for title, text in papers().items()}
    found = sorted((title for title in counts if counts[title]), key=lambda each: -counts[each])
    return found[:PAPERS_MAX]


def sentences_of(title: str) -> list[str]:
    """Split by rule: a sentence begins with a capital letter and ends with a full stop."""
    parts = re.split(r"(?<=\.)\s+(?=[A-Z])|\n\s*\n", papers()[title])
    flat = [" ".join(part.split()) for part in parts]
    return [part for part in flat if re.fullmatch(r"[A-Z].*\.", part)]


def by_share(findings: dict[str, list[str]], word: str) -> list[str]:
    """Rank by rule: papers whose quotes have a larger share of the word first."""

    def weight(title: str) -> tuple[int, str]:
        said = sum(quote.lower().count(word.lower()) for quote in findings[title])
        return -said, title

    return sorted(findings, key=weight)


def write_report(word: str, text: str) -> str:
    """Write a file in the folder that this was started in."""
    path = Path(f"report-{word}.md")
    path.write_text(text, "utf-8")
    return str(path)


if __name__ == "__main__":
    given = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    given.add_argument("word", help="what to look for")
    given.add_argument("role", choices=["researcher", "analyzer", "writer"])
    given.add_argument("name", nargs="?", help="of the agent; ROLE_1 if not given")
    asked = given.parse_args()
    main(asked.word, asked.role, asked.name or f"{asked.role}_1")
