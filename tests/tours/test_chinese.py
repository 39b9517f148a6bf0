"""Any name or text can be Chinese, and is found, queried and returned."""

import csv
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import testing
from hansard.domain.actions import (
    FORMAT,
    ActionCache,
    ActionsEnd,
    CachedAction,
    ElementTargets,
    with_slots,
)
from hansard.domain.experience.distil import kinds, wording

pytestmark = pytest.mark.slow

ROLES = """
[roles."研究员"]
about = "收集论文。"
[[roles."研究员".sees]]
name = "自己的工作"
roles = ["研究员"]
[[roles."研究员".sees]]
name = "清单"
keys = ["清单/**"]
kinds = ["board.*"]
[roles."研究员".may]
tools = ["检索*"]
kinds = ["message.added", "decision.made", "checkpoint.saved", "task.*"]
keys = ["清单/**"]

[roles."审稿人"]
about = "只看决策。"
[[roles."审稿人".sees]]
name = "决策"
kinds = ["decision.made"]
[roles."审稿人".may]
query = true
"""


def _read(record: hansard.Record, run: str) -> None:
    """Record a run that reads papers, with Chinese names and texts only."""
    with record.run("论文整理", run=run, agent="小明", role="研究员") as session:

        @session.tool(name="检索", effects="once")
        def find(关键词: str) -> list[str]:  # noqa: N803, PLC2401 -- as a Chinese program may
            return [f"{关键词}:综述"]

        papers = find(关键词="事件溯源")
        session.board.put("清单/阅读", papers)
        session.message("user", "先读哪一篇论文?")
        session.decide(
            "先读哪一篇", selected="综述", alternatives=["综述", "教程"], reason="引用最多"
        )
        session.checkpoint("已收集", 篇数=1)
        session.team.add("撰写报告", task="报告", role="研究员")
        with session.team.claimed() as task:
            assert task is not None
            task.result = {"结论": "先读综述"}


@pytest.fixture
def record(tmp_path: Path) -> Any:
    """Return a record of such a run, which was resumed once."""
    with hansard.connect(workspace="lab", data_dir=tmp_path) as opened:
        (tmp_path / "角色.toml").write_text(ROLES, encoding="utf-8")
        opened.roles.apply_file(str(tmp_path / "角色.toml"))
        for _ in range(2):
            _read(opened, "运行一")
        yield opened


def test_a_run_is_resumed_rebuilt_and_shown(record: hansard.Record, call: Any):
    """Names of workflow, run, agent, role, tool, argument, key, checkpoint and task."""
    now = record.state("运行一")
    agent = now.agent("小明")
    assert [step.tool for step in agent.steps.values()].count(
        "检索"
    ) == 1  # the resume made no call
    assert record.state("运行一", "小明#1").agent("小明").steps[1].tool == "检索"
    assert now.team.tasks["报告"].added.title == "撰写报告"
    assert "运行一" in call("runs", "--agent", "小明").out
    assert '关键词="事件溯源"' in call("run", "trace", "运行一").out
    assert "引用最多" in call("why", "运行一").out
    assert "清单/阅读" in call("board", "运行一").out
    assert "撰写报告" in call("team", "运行一").out
    assert call("run", "show", "运行一", "--at", "小明#1").code == 0
    assert call("check").code == 0


def test_a_run_is_written_as_a_page_and_exported(record: hansard.Record, call: Any, tmp_path: Path):
    """Files have Chinese names, and an export imported elsewhere is the same run."""
    assert call("run", "html", "运行一", "-o", tmp_path / "运行一.html").code == 0
    assert "先读哪一篇论文" in (tmp_path / "运行一.html").read_text("utf-8")
    assert call("export", "运行一", "--output", tmp_path / "运行一.jsonl").code == 0
    assert call("-w", "copy", "import", "events", tmp_path / "运行一.jsonl").code == 0
    assert "先读哪一篇" in call("-w", "copy", "why", "运行一").out


@pytest.mark.parametrize("query", ["先读哪一篇", "论文", "综述", "引用最多"])
def test_search_finds_words_inside_a_sentence(record: hansard.Record, call: Any, query: str):
    """Chinese has no spaces between words: any part of a sentence is a word."""
    hits = call("search", query, "--json").lines
    assert hits[0]["run"] == "运行一"
    assert call("search", query[::-1], "--json").lines == []


def test_sql_has_chinese_columns_values_and_tables(record, call, tmp_path):
    """Chinese parameters, literals, aliases and table names work in SQL."""
    query = "SELECT question AS 问题, selected AS 选择 FROM decisions WHERE agent = $1"
    answer = record.sql(query, "小明")
    assert ([*answer.columns], answer.rows) == (["问题", "选择"], [("先读哪一篇", "综述")])
    with (tmp_path / "费用.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("工具", "费用"), ("检索", 3)])
    joined = 'SELECT s.tool, c."费用" FROM steps s JOIN 成本 c ON s.tool = c."工具"'
    output = call("sql", joined, "--with", f"成本={tmp_path / '费用.csv'}", "--json")
    assert output.code == 0, output.err
    row = output.lines[0]
    assert row["费用"] == 3


def test_a_file_of_roles_says_how_to_write_a_chinese_name(tmp_path: Path):
    """TOML takes a bare name in ASCII only; the error has the remedy."""
    (tmp_path / "roles.toml").write_text("[roles.研究员]\n", encoding="utf-8")
    with (
        hansard.connect(workspace="lab", data_dir=tmp_path) as opened,
        pytest.raises(hansard.BadValue, match=r'as in \[roles\."研究员"\]'),
    ):
        opened.roles.apply_file(str(tmp_path / "roles.toml"))


def test_roles_see_what_they_may(record: hansard.Record, call: Any):
    """Roles, their rules, patterns of tools and keys; a reviewer sees the decision alone."""
    assert "只看决策" in call("roles", "show").out
    seen = call("roles", "view", "审稿人", "运行一", "--json")
    assert seen.code == 0
    assert "先读哪一篇" in seen.out
    assert "事件溯源" not in seen.out
    rows = call("sql", "SELECT question FROM decisions", "--role", "审稿人", "--json").lines
    assert rows[0]["question"] == "先读哪一篇"
    with record.run("清理", run="运行二", agent="小明", role="研究员") as session:

        @session.tool(name="删除", effects="once")
        def delete(name: str) -> str:
            raise AssertionError(name)

        with pytest.raises(hansard.Blocked, match="研究员"):
            delete("全部")


def test_files_of_memory_are_written_listed_and_searched(record: hansard.Record, call: Any):
    """Paths and texts; glob, grep and search take Chinese."""
    memory = record.memory("agent/小明")
    memory.create("笔记/事件溯源.md", "事件一旦写入就不再改变。\n", by="小红", reason="来自论文")
    memory.create("笔记/会议.md", "会议纪要放在最后。\n", by="小红")
    memory.edit("笔记/会议.md", "最后", "开头", by="小红")
    assert memory.view("笔记/会议.md") == "会议纪要放在开头。\n"
    with record.run("整理", run="运行二", agent="小明", role="整理者") as session:
        assert sorted(session.memory.glob("笔记/*.md")) == ["笔记/事件溯源.md", "笔记/会议.md"]
        assert [path for path, *_ in session.memory.grep("写入")] == ["笔记/事件溯源.md"]
        assert [hit.path for hit in session.memory.search("会议纪要").hits] == ["笔记/会议.md"]
    assert "会议纪要" in call("memory", "show", "agent/小明", "笔记/会议.md").out


def test_prompts_and_experiments_are_compared(record: hansard.Record, call: Any):
    """Names of prompts, aliases, experiments, arms, tasks, metrics and judges."""
    record.prompts.add("摘要", "请用一句话总结{文本}。", reason="第一版")
    record.prompts.add("摘要", "请用十个字总结{文本}。", reason="更短")
    record.prompts.alias("摘要@2", "生产", reason="更好")
    assert record.prompts.get("摘要@生产").text == "请用十个字总结{文本}。"
    metric = {"name": "正确", "better": "higher"}
    arms = [{"name": "长", "prompt": "摘要@1"}, {"name": "短", "prompt": "摘要@2"}]
    record.experiments.register("提示词实验", hansard.experiments.plan(arms=arms, metrics=[metric]))
    for task in ("甲", "乙", "丙"):
        for arm in ("长", "短"):
            with record.run("问答", experiment="提示词实验", task=task, arm=arm) as session:
                pass
            record.experiments.score(session.run, {"正确": float(arm == "短")}, by="评审")
    output = call("compare", "提示词实验")
    assert output.code == 0
    assert "短 against 长" in output.out
    assert "摘要" in call("prompt", "report", "摘要").out


@pytest.mark.parametrize(
    ("texts", "expected", "other", "values"),
    [
        (
            ["邀请小明参加晚宴。", "邀请李雷参加晚宴。"],
            "邀请 {{slot}} 参加晚宴 。",
            "邀请韩梅梅参加晚宴。",
            {"slot": "韩梅梅"},
        ),
        (
            ["邀请“小明”参加晚宴。", "邀请“小红”参加晚宴。"],
            "邀请 “ {{slot}} ” 参加晚宴 。",
            "邀请“李雷”参加晚宴。",
            {"slot": "李雷"},
        ),
        (
            ["预订3月5日从北京到上海的机票", "预订4月9日从广州到成都的机票"],
            "预订 {{slot}} 月 {{slot2}} 日从 {{slot3}} 到 {{slot4}} 的机票",
            "预订12月24日从西安到拉萨的机票",
            {"slot": "12", "slot2": "24", "slot3": "西安", "slot4": "拉萨"},
        ),
    ],
)
def test_slots_of_tasks_are_detected_without_spaces(texts, expected, other, values):
    """Character by character; a quoted text is one word, also where values share a character."""
    template = wording(texts)
    assert template.template == expected
    assert template.read(other) == values
    assert template.read("删除全部文件") is None
    assert kinds([*texts, "删除全部文件", other]) == [[0, 1, 3], [2]]


def test_slots_of_actions_have_chinese_names_and_values():
    """A value is replaced inside an unspaced text, and stays part of a longer word elsewhere."""
    targets = ElementTargets(role="button", text="邀请小明参加", name="Ann's Anna")
    entry = CachedAction(
        step_index=0,
        instruction="邀请小明",
        element_id=None,
        method="fill",
        arguments=["小明"],
        frame_index=0,
        xpath=None,
        action_type="actElement",
        success=True,
        message="",
        targets=targets,
    )
    end = ActionsEnd(success=True, duration=0.5)
    cache = ActionCache(actions=[entry], final_state=end, format=FORMAT)
    [made] = with_slots(cache, {"客人": "小明", "guest": "Ann"}).actions
    assert (made.arguments, made.instruction) == (["{{客人}}"], "邀请{{客人}}")
    assert made.targets is not None
    assert (made.targets.text, made.targets.name) == ("邀请{{客人}}参加", "{{guest}}'s Anna")


FORM = """<form onsubmit="event.preventDefault(); said.textContent = guest.value + '会来'">
<label>客人 <input id="guest"></label> <button>邀请</button></form><p id="said"></p>"""


@pytest.mark.timeout(120)
@pytest.mark.asyncio(loop_scope="session")
async def test_an_experience_is_learned_and_replayed(page: Any, site: Any):
    """From three runs on a Chinese page: a fourth guest's name fills the slot, with no model."""
    address = site(FORM)
    async with testing.record_async() as record:
        for guest in ("小明", "李雷", "王芳"):
            await page.goto(address)
            async with record.run("邀请", run=guest, agent="主人", role="主人") as session:
                await session.message("user", f"邀请{guest}参加晚宴。")
                browser = hansard.actions.AsyncBrowser(session, page)
                await browser.act("填写客人", at="#guest", method="fill", arguments=[guest])
                await browser.act("邀请", at="text=邀请")
        learned = await record.experiences.learn("invite", ["小明", "李雷", "王芳"])
        task = "邀请韩梅梅参加晚宴。"
        assert learned.params(task) == {"slot": "韩梅梅"}
        await page.goto(address)
        async with record.run("邀请", run="重放", agent="主人", role="主人") as session:
            browser = hansard.actions.AsyncBrowser(session, page)
            done = await browser.run_experience(learned.confirmed(), task=task, once="allow")
        assert done.success, done
        assert await page.inner_text("#said") == "韩梅梅会来"
