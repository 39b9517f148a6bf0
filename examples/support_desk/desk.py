"""A support desk of three agents that remembers its customers and answers each ticket once.

    python desk.py TICKET.txt

The classifier says what a ticket is about, the gatherer finds what our documents say of it, the
responder answers. Each ticket is a run, all tickets of a customer are one conversation.

Sending is `idempotent`: after a kill it runs again with the same key, and the outbox takes a key
once. A secret in a ticket is replaced before anything is recorded.
"""

import argparse
import json
import os
import re
from collections import Counter
from pathlib import Path

import hansard

CUSTOMER = "customer-1"
FORK = os.environ.get("HANSARD_RUN")  # of a worker; read before the record is opened
OURS = Path(__file__).parents[2]
DOCUMENTS = [OURS / "README.md", *sorted((OURS / "docs").glob("*.md"))]
"""This project's own: the overview, the command line's reference, the guides."""

TOPICS = {
    "resume": {"resume", "resumes", "killed", "kill", "again", "restart"},
    "doubt": {"doubt", "settle", "happened", "effect", "whether"},
    "cost": {"cost", "costs", "slow", "fast", "overhead", "measured"},
}


@hansard.tool(effects="pure", kind="model")
def classify(messages: list[dict[str, str]]) -> dict[str, float]:
    """Score the last message by topic; the scores add up to 1."""
    # Replace this line by a call of your model: it gets the same messages.
    return shares_by_keyword(messages[-1]["content"])


@hansard.tool(effects="pure")
def search_documents(topic: str, most: int) -> list[dict[str, str]]:
    """Return the paragraphs with most about a topic, each with its document."""
    # Replace this line by a call of your search engine.
    return paragraphs_by_keyword(topic, most)


@hansard.tool(effects="pure", kind="model")
def write_reply(messages: list[dict[str, str]], found: list[dict[str, str]]) -> str:
    """Answer the conversation from the documents found."""
    # Replace this line by a call of your model: it gets the same messages.
    return quoting_reply(messages, found)


def unsent_reply(to: str, text: str, key: str = "") -> str:  # noqa: ARG001 -- the tool's
    """Return the receipt of a fork with edits, which sends nothing."""
    return f"not sent to {to}"


@hansard.tool(effects="idempotent", key_argument="key", shadow=unsent_reply)
def send_reply(to: str, text: str, key: str = "") -> str:
    """Send a reply. Hansard fills in the key: the same one for the same step, however often."""
    # Replace this line by a call of your mail service that passes the key on.
    return deliver(to, text, key)


def find_topic(session: hansard.Session, messages: list[dict[str, str]]) -> str:
    """Return the ticket's topic."""
    scores = classify(messages)
    topic = max(scores, key=lambda each: scores[each])
    session.decide(
        "What is this ticket about?",
        selected=topic,
        alternatives=[{"id": each, "score": score} for each, score in scores.items()],
        confidence=scores[topic],
        reason="it has the most words of this topic",
    )
    session.hand_off("gatherer", {"topic": topic}, reason="the topic is known")
    return topic


def gather_context(session: hansard.Session, topic: str) -> list[dict[str, str]]:
    """Return our documents' paragraphs about a topic."""
    found = search_documents(topic, most=2)
    for paragraph in found:
        session.resource(f"document:{paragraph['document']}")
    session.checkpoint("gathered", paragraphs=len(found))
    session.hand_off("responder", reason="the context is there")
    return found


def respond(
    session: hansard.Session, messages: list[dict[str, str]], found: list[dict[str, str]]
) -> str:
    """Write the answer and send it."""
    text = write_reply(messages, found)
    session.message("assistant", text)
    receipt = send_reply(CUSTOMER, text)
    session.checkpoint("answered", receipt=receipt)
    return receipt


def answer(record: hansard.Record, ticket: Path) -> str:
    """Have the three agents answer a ticket; return the result."""
    run = FORK or f"ticket-{ticket.stem}"
    earlier = record.conversation(CUSTOMER, before=run).messages
    with record.run(
        "support", run=run, conversation=CUSTOMER, agent="responder", role="responder"
    ) as responder:
        responder.message("user", ticket.read_text("utf-8").strip())
        messages = [*earlier, *responder.context()]
        with record.run(run=run, agent="classifier", role="classifier") as classifier:
            topic = find_topic(classifier, messages)
        with record.run(run=run, agent="gatherer", role="gatherer") as gatherer:
            found = gather_context(gatherer, topic)
        receipt = respond(responder, messages, found)
    return f"{run} is about {topic}: {receipt}"


def main(ticket: Path) -> None:
    """Answer a ticket and print the result."""
    access_key = os.environ.get("DESK_ACCESS_KEY", "sk-desk-0123456789")
    with hansard.connect(redact={"access-key": access_key}) as record:
        print(answer(record, ticket))


# Replacements of a model, a search engine and a mail service, so that this runs anywhere.

OUTBOX = Path("outbox.jsonl")
PARAGRAPH_CHARACTERS_MAX = 600


def words_of(text: str) -> Counter[str]:
    """Return the number of occurrences of each word in a text."""
    return Counter(re.findall(r"[a-z]+", text.lower()))


def shares_by_keyword(text: str) -> dict[str, float]:
    """Compute by rule each topic's share of the words that belong to any topic."""
    words = words_of(text)
    counts = {topic: sum(words[word] for word in known) for topic, known in TOPICS.items()}
    total = max(1, sum(counts.values()))
    return {topic: round(count / total, 4) for topic, count in counts.items()}


def paragraphs_by_keyword(topic: str, most: int) -> list[dict[str, str]]:
    """Rank by rule: by the number of different words of a topic, then by all occurrences."""
    scored: list[tuple[int, int, str, str]] = []
    for document in DOCUMENTS:
        for paragraph in document.read_text("utf-8").split("\n\n"):
            is_prose = paragraph[:1].isupper() and len(paragraph) <= PARAGRAPH_CHARACTERS_MAX
            found = [words_of(paragraph)[word] for word in sorted(TOPICS[topic])]
            if is_prose and any(found):
                different = sum(count > 0 for count in found)
                scored.append((-different, -sum(found), document.name, " ".join(paragraph.split())))
    return [{"document": name, "text": text} for _, _, name, text in sorted(scored)[:most]]


def quoting_reply(messages: list[dict[str, str]], found: list[dict[str, str]]) -> str:
    """Compose by rule a greeting that depends on an earlier contact, and the documents word for
    word.
    """
    visits = sum(message["role"] == "user" for message in messages)
    greeting = "Thank you for asking." if visits == 1 else "Thank you for coming back."
    quotes = [f"{paragraph['text']} ({paragraph['document']})" for paragraph in found]
    return "\n\n".join([greeting, *quotes])


def deliver(to: str, text: str, key: str) -> str:
    """Deliver by a mail service in a file: it takes a key once, and returns the same receipt
    again.
    """
    mails = OUTBOX.read_text("utf-8").splitlines() if OUTBOX.exists() else []
    if not any(json.loads(mail)["key"] == key for mail in mails):
        with OUTBOX.open("a", encoding="utf-8") as outbox:
            outbox.write(json.dumps({"key": key, "to": to, "text": text}) + "\n")
    return f"sent to {to}"


if __name__ == "__main__":
    given = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    given.add_argument("ticket", type=Path, help="a file, such as tickets/1.txt")
    asked = given.parse_args()
    if not asked.ticket.is_file():
        given.error(f"there is no file {str(asked.ticket)!r}")
    main(asked.ticket)
