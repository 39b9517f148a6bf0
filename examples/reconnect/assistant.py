"""An assistant whose users return after a timeout, in another process, to the same conversation.

    python assistant.py USER [TEXT ...]

Each start is a session: it ends after its answers, or after IDLE_S seconds without any input. The
conversation has the user's name, and goes on with the next start. A long history is summarised, and
the record links the summary to its messages.
"""

import argparse
import queue
import sys
import threading
from collections.abc import Iterator

import hansard

IDLE_S = 2.0
WINDOW_MESSAGES = 8
"""A window with more of them is compacted."""

KEPT = 4
INSTRUCTIONS = "You help with books. Answer in one sentence."


@hansard.tool(effects="pure", kind="model")
def ask(messages: list[dict[str, str]]) -> str:
    """Return the assistant's next message."""
    # Replace this line by a call of your model: it gets the same messages.
    return answer_by_rule(messages)


@hansard.tool(effects="pure", kind="model")
def sum_up(messages: list[dict[str, str]]) -> str:
    """Summarise messages that leave the window; the summary must be shorter."""
    # Replace this line by a call of your model that requests a summary.
    return titles_by_rule(messages)


def turn(session: hansard.Session, text: str) -> str:
    """Answer one message of the user's."""
    session.message("user", text)
    reply = ask(session.window())
    session.message("assistant", reply)
    return reply


def main(user: str, texts: Iterator[str]) -> None:
    """Go on with a user's conversation until nothing more comes."""
    with (
        hansard.connect() as record,
        record.run("assistant", conversation=user, agent="assistant", role="assistant") as session,
    ):
        window = session.window()
        if not window:
            session.message("system", INSTRUCTIONS)
        else:
            print(f"welcome back, {user}: {len(window)} messages are in the window")
        made = session.compact(sum_up, keep=KEPT, max_messages=WINDOW_MESSAGES)
        if made is not None:
            print(f"summed up {len(made.dropped)} of them: {made.summary}")
        for text in texts:
            print(f"{user}: {text}")
            print(f"assistant: {turn(session, text)}")
    print("the session is over; start again to go on")


def lines(idle_s: float) -> Iterator[str]:
    """Yield typed lines until the session's timeout without input."""
    typed: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            typed.put(line.strip())
        typed.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = typed.get(timeout=idle_s)
        except queue.Empty:
            print(f"nothing was said for {idle_s:g} s")
            return
        if line is None:
            return
        if line:
            yield line


# Replacement of a model, so that this runs anywhere.


def answer_by_rule(messages: list[dict[str, str]]) -> str:
    """Answer by rule with every book in the window, newest first."""
    books = books_of(messages)
    return f"So far: {', '.join(reversed(books))}." if books else "Which book?"


def titles_by_rule(messages: list[dict[str, str]]) -> str:
    """Summarise by rule: list the books."""
    return f"Books: {', '.join(f'*{book}*' for book in books_of(messages))}."


def books_of(messages: list[dict[str, str]]) -> list[str]:
    """Return the titles, written *so*, in the user's messages or a summary; each once."""
    said = [message["content"] for message in messages if message["role"] != "assistant"]
    return list(dict.fromkeys(title for text in said for title in text.split("*")[1::2]))


if __name__ == "__main__":
    given = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    given.add_argument("user", help="whose conversation goes on")
    given.add_argument("texts", nargs="*", metavar="TEXT", help="what is said; typed if not given")
    asked = given.parse_args()
    main(asked.user, iter(asked.texts) if asked.texts else lines(IDLE_S))
