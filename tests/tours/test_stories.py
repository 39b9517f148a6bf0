"""Two stories that users tell: one comes back after a time-out, one works in Chinese."""

from pathlib import Path
from typing import Any

import pytest

import hansard
from tests.cli.support import Ran, ran

pytestmark = pytest.mark.slow


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> Any:
    """Run a command on the record in this folder."""
    monkeypatch.setenv("HANSARD_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("HANSARD_WORKSPACE", "lab")

    def called(*arguments: object) -> Ran:
        return ran(capsysbinary, monkeypatch, arguments)

    return called


def test_a_user_who_reconnects_finds_the_conversation_where_it_stood(tmp_path: Path):
    """A connection breaks in the middle of a turn. The user comes back, in a new run of the same
    conversation: the window holds all earlier messages, the order that was placed is known, and a
    resume of the broken run places it no second time.
    """
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


def test_a_run_in_chinese_is_recorded_found_and_asked(tmp_path: Path, call: Any):
    """Names of workflow, run, agent, role, tool, board keys, files, prompts, tasks and labels, and
    all texts, are Chinese: state, replay, search, SQL and the command line give them back.
    """
    with hansard.connect(workspace="lab", data_dir=tmp_path) as record:
        record.add_prompt("摘要", "请用一句话总结{文本}。", because="第一版")
        for _ in range(2):
            with record.run("论文整理", run="运行一", agent="小明", role="研究员") as session:

                @session.tool(name="检索", effects="once")
                def find(query: str) -> list[str]:
                    return [f"{query}:综述"]

                papers = find(query="事件溯源")
                session.board.put("阅读清单", papers)
                session.message("user", "先读哪一篇。")
                session.decide(
                    "先读哪一篇", selected="综述", alternatives=["综述", "教程"], because="引用最多"
                )
                session.checkpoint("已收集", 篇数=1)
        memory = record.memory("org")
        memory.create("笔记/事件.md", "事件一旦写入就不再改变。\n", by="小红")
        state = record.state("运行一", "小明#1").agent("小明")
        assert state.steps[1].tool == "检索"
        rows = record.sql(
            "SELECT question, selected, agent FROM decisions WHERE run = $1", "运行一"
        ).rows
        assert rows == [("先读哪一篇", "综述", "小明")]
        assert record.prompt("摘要").text == "请用一句话总结{文本}。"
        assert memory.view("笔记/事件.md") is not None
    assert "运行一" in call("runs").out
    assert "检索" in call("run", "trace", "运行一").out
    assert "引用最多" in call("why", "运行一").out or "综述" in call("why", "运行一").out
    [hit, *_] = call("search", "先读哪一篇", "--json").lines
    assert hit["run"] == "运行一"
    assert "阅读清单" in call("board", "运行一").out
    assert call("run", "show", "运行一", "--at", "小明#1").code == 0
