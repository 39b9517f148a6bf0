"""A support desk of three agents that remembers its customers and answers each ticket once.

    python desk.py TICKET.txt [DOCUMENTS]

The classifier says what a ticket is about, the gatherer finds what our documents say of it, the
responder answers. Each ticket is a run, all tickets of a customer are one conversation. Sending is
`idempotent`: run again after a kill, it is given the same key, and the outbox knows that key. A key
of ours in a ticket is replaced before anything is recorded.
"""

import json
import os
import re
import sys
from collections import Counter
from pathlib import Path

import hansard

CUSTOMER = "customer-1"
OUTBOX = Path("outbox.jsonl")
OUR_DOCUMENTS = Path(__file__).parents[2] / "docs"
TOPICS = {
    "resume": {"resume", "killed", "kill", "again", "restart"},
    "doubt": {"doubt", "settle", "happened", "twice"},
    "cost": {"price", "slow", "cost", "fast"},
}


@hansard.tool(effects="pure", kind="model")
def classify(messages: list[dict[str, str]]) -> dict[str, float]:
    """How much a ticket is about each topic: by words, so that this runs anywhere."""
    # Replace the next three lines by a call of your model: it gets the same messages.
    words = Counter(re.findall(r"[a-z]+", str(messages[-1]["content"]).lower()))
    found = {topic: sum(words[word] for word in of) for topic, of in TOPICS.items()}
    return {topic: round(count / max(1, sum(found.values())), 4) for topic, count in found.items()}


@hansard.tool(effects="pure")
def search_documents(folder: str, topic: str, most: int = 3) -> list[dict[str, str]]:
    """The paragraphs that speak of a topic most, each with its file."""
    scored: list[tuple[int, str, str]] = []
    for path in sorted(Path(folder).rglob("*.md")):
        for paragraph in path.read_text("utf-8").split("\n\n"):
            words = Counter(re.findall(r"[a-z]+", paragraph.lower()))
            score = sum(words[word] for word in TOPICS[topic])
            if score and len(paragraph) < 1_000:
                scored.append((-score, path.name, paragraph.strip()))
    return [{"file": name, "text": text} for _, name, text in sorted(scored)[:most]]


@hansard.tool(effects="pure", kind="model")
def write_reply(messages: list[dict[str, str]], found: list[dict[str, str]]) -> str:
    """An answer from what was found: by rule."""
    # Replace the next three lines by a call of your model: it gets the same messages.
    visits = sum(message["role"] == "user" for message in messages)
    greeting = "Thank you for coming back." if visits > 1 else "Thank you for asking."
    return "\n\n".join([greeting, *(f"{each['text']}\n({each['file']})" for each in found)])


@hansard.tool(effects="idempotent", key_argument="key")
def send_reply(to: str, text: str, key: str = "") -> str:
    """Send a reply; who asks again with the same key gets the same receipt and no second mail."""
    # Replace the next five lines by a call of your mail service that takes an idempotency key.
    lines = OUTBOX.read_text("utf-8").splitlines() if OUTBOX.exists() else []
    if not any(json.loads(line)["key"] == key for line in lines):
        with OUTBOX.open("a", encoding="utf-8") as outbox:
            outbox.write(json.dumps({"key": key, "to": to, "text": text}) + "\n")
    return f"sent to {to}"


def classify_ticket(session: hansard.Session, messages: list[dict[str, str]]) -> str:
    """What it is about."""
    scores = classify(messages)
    topic = max(scores, key=lambda name: scores[name])
    session.decide(
        "What is this ticket about?",
        selected=topic,
        alternatives=[{"id": name, "score": score} for name, score in scores.items()],
    )
    session.hand_off("gatherer", because="the topic is known", topic=topic)
    return topic


def gather(session: hansard.Session, documents: Path, topic: str) -> list[dict[str, str]]:
    """What our documents say of it."""
    found = search_documents(str(documents), topic)
    for each in found:
        session.resource(f"document:{each['file']}", "read")
    session.checkpoint("gathered", documents=len(found))
    return found


def answer(record: hansard.Record, ticket: Path, documents: Path) -> str:
    """Answer a ticket."""
    run = f"ticket-{ticket.stem}"
    earlier = record.conversation(CUSTOMER, before=run).messages
    with record.run(
        "support", run=run, agent="responder", role="responder", conversation=CUSTOMER
    ) as responder:
        responder.message("user", ticket.read_text("utf-8").strip())
        messages = [*earlier, *responder.context()]
        with record.run(run=run, agent="classifier", role="classifier") as classifier:
            topic = classify_ticket(classifier, messages)
        with record.run(run=run, agent="gatherer", role="gatherer") as gatherer:
            found = gather(gatherer, documents, topic)
        text = write_reply(messages, found)
        responder.message("assistant", text)
        return f"{topic}: {send_reply(CUSTOMER, text)}"


def main(ticket: Path, documents: Path) -> None:
    """Answer a ticket and say what came of it."""
    secret = os.environ.get("DESK_KEY", "sk-desk-0123456789")
    with hansard.connect(workspace="support", redact={"desk-key": secret}) as record:
        print(answer(record, ticket, documents))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else OUR_DOCUMENTS)
