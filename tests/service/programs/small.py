"""A small program with one write of each kind, repeated until it completes."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hansard
from hansard.bus.errors import BusError
from hansard.client.session import Session

ENDED: list[Any] = [
    *("sent 1", "marked True", 1, [1, 1], "t1", "done", "sent 2", 2),
    *({"half": 2}, True, ["hi"], [0, 1], [1, 2]),
    ["hello", "again"],
]
"""Results of the complete program, whichever process was killed and how often."""


def play(session: Session, file: Path, answers: list[Any]) -> None:
    """Run the program; `answers` collects its results so far."""

    @session.tool(effects="once")
    def send(line: int) -> str:
        write(file, f"{line}")
        return f"sent {line}"

    @session.tool(effects="idempotent", key_argument="key")
    def mark(key: str = "") -> str:
        return f"marked {bool(key)}"

    @session.tool(effects="pure")
    def count(n: int) -> Iterator[int]:
        yield from range(n)

    board, team = session.board, session.team
    session.message("user", "hello")
    answers.append(send(1))
    answers.append(mark())
    answers.append(board.add("n"))
    with board.transaction() as tx:
        tx.put("x", 1, expected="any")
        tx.append("ones", 1)
    answers.append([board.get("x"), len(board.get("ones"))])
    team.add("read", task="t1")
    with team.claimed() as task:
        assert task is not None
        answers.append(task.id)
        task.result = "done"
    answers.append(team.tasks()[0].result)
    answers.append(send(2))
    answers.append(board.add("n"))
    session.checkpoint("c", half=2)
    answers.append(session.checkpoint_data("c"))
    answers.append(session.wait_for(key="x", timeout_s=5) is not None)
    team.send("hi", role="writer")
    answers.append([each.content for each in team.inbox()])
    answers.append(list(count(2)))
    for item in session.resumable([1, 2], name="items"):
        board.append("items", item)
    answers.append(board.get("items"))
    session.message("user", "again")
    answers.append([each["content"] for each in session.context()])


def write(file: Path, line: str) -> None:
    """Append a line to the file, as an effect that is complete on return."""
    out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(out, f"{line}\n".encode())
    finally:
        os.close(out)


def attempt(record: Any, run: str, file: Path, answers: list[Any]) -> list[Any]:
    """Run it once: ["ended"], ["gone", error, text] or ["doubt", step, tool]."""
    try:
        with record.run("small", run=run) as session:
            play(session, file, answers)
    except hansard.InDoubt as error:
        return ["doubt", error.step.number, error.step.tool]
    except BusError as error:
        return ["gone", type(error).__name__, str(error)]
    return ["ended"]
