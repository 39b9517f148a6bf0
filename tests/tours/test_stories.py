"""A user story: a user returns after a timeout."""

from pathlib import Path
from typing import Any

import pytest

import hansard

pytestmark = pytest.mark.slow


def test_a_user_who_reconnects_finds_the_conversation_where_it_stood(tmp_path: Path):
    """A conversation resumes in a new run with its window, and repeats no order."""
    placed: list[str] = []

    def turn(record: hansard.Record, run: str, question: str, *, breaks: bool = False) -> list[Any]:
        with record.run(
            "shop", run=run, agent="clerk", role="clerk", conversation="li-1"
        ) as session:

            @session.tool(effects="once")
            def place(article: str) -> str:
                placed.append(article)
                return f"order {len(placed)}"

            window = session.window()
            session.message("user", question)
            order = place(question)
            if breaks:
                raise TimeoutError("the client is gone")
            session.message("assistant", f"{order} is placed")
            return window

    with hansard.connect(workspace="lab", data_dir=tmp_path) as record:
        with pytest.raises(TimeoutError):
            turn(record, "r1", "tea", breaks=True)
        assert turn(record, "r2", "rice") == [{"role": "user", "content": "tea"}]
        turn(record, "r1", "tea")
        assert placed == ["tea", "rice"]
        conversation = record.conversation("li-1")
    assert (conversation.runs, conversation.turns) == (["r1", "r2"], 2)
    said = [message["content"] for message in conversation.messages]
    assert sorted(said) == ["order 1 is placed", "order 2 is placed", "rice", "tea"]
