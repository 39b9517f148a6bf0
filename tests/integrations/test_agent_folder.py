"""`hansard agent run FOLDER` through deepagents, with a scripted model and a real MCP server."""

import json
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.client.record import Record
from tests.faults._warm import python
from tests.faults.support import Stage
from tests.integrations.hand_written import Provider, calls, text_block
from tests.integrations.packages import forked_with, imported

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _packages() -> None:
    imported("deepagents")


@pytest.fixture(scope="module")
def forked() -> Iterator[None]:
    """Programs find the packages imported."""
    with forked_with("deepagents", "langchain_anthropic"):
        yield


HERE = Path(__file__).parent
PAPERS = HERE / "mcp" / "programs" / "papers.py"
PROGRAM = HERE / "programs" / "folder.py"
BEGUN_S_MAX, GRANT_S_MAX, KILLS_MAX = 90.0, 90.0, 120
ASKED = 4
"""Paid answers of one run: three of the agent's, one of its subagent's."""


def answers(request: dict[str, Any], turn: int) -> list[dict[str, Any]]:
    """Written by hand: the sum by a tool, the mail by another, a subagent's word, a note."""
    if "You count words." in json.dumps(request["system"]):
        return [text_block("3 words")]
    if turn == 0:
        return [
            text_block("I look."),
            calls("add", a=1, b=2),
            calls("send", to="ann", text="3"),
            calls("task", description="count: a b c", subagent_type="counter"),
        ]
    if turn == 1:
        return [calls("edit_file", file_path="/AGENTS.md", old_string="kind.", new_string="brief.")]
    return [text_block("There are 3.")]


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    """Run the model's provider; its SDK finds it by the environment."""
    server = Provider(answers)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "no key")
    yield server
    server.stop()


@pytest.fixture
def sent(tmp_path: Path) -> Path:
    """Return the file of the MCP server's mails, one a line."""
    return tmp_path / "sent.txt"


@pytest.fixture
def papers(sent: Path) -> Iterator[str]:
    """Yield the address of a real MCP server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        fd, port = listener.fileno(), listener.getsockname()[1]
        process = subprocess.Popen([python(), str(PAPERS), str(sent), str(fd)], pass_fds=[fd])
    yield f"http://127.0.0.1:{port}/mcp"
    process.kill()
    process.wait()


@pytest.fixture
def folder(tmp_path: Path, papers: str) -> Path:
    """Return an agent with instructions, a skill, a subagent and two of its server's nine tools."""
    agent = tmp_path / "clerk"
    tools = [{"name": name, "mcp_server_url": papers} for name in ("add", "send")]
    files = {
        "agent.json": json.dumps({"name": "clerk", "model": "anthropic:hand-written"}),
        "AGENTS.md": "Be kind.\n",
        "tools.json": json.dumps(
            {"tools": tools, "interrupt_config": {f"{papers}::send": True}}, indent=1
        ),
        "skills/greet/SKILL.md": "---\nname: greet\ndescription: How to greet.\n---\nHello.\n",
        "subagents/counter/agent.json": json.dumps({"description": "Counts words."}),
        "subagents/counter/AGENTS.md": "You count words.\n",
        "README.md": "No memory.\n",
    }
    for path, text in files.items():
        (agent / path).parent.mkdir(parents=True, exist_ok=True)
        (agent / path).write_text(text)
    return agent


def grant_one(record: Record) -> None:
    """Grant what the agent asks about first: the mail, which `interrupt_config` names."""
    until = time.monotonic() + GRANT_S_MAX
    while time.monotonic() < until:
        for each in record.approvals.list():
            assert each.approval.request.tool == "send"
            record.approvals.grant(each.approval.id, by="ann")
            return
        time.sleep(0.1)


@pytest.mark.timeout(120)
def test_a_folder_is_an_agent_whose_every_action_is_on_record(record, call, provider, folder, sent):
    """Instructions, skills, tools and grants of an agent folder are on record, each paid once."""
    record.memory("agent/clerk").set_policy("off", by="ann", untrusted=["AGENTS.md"])
    rules = folder.parent / "rules.toml"
    rules.write_text('[effects]\nsend = "idempotent"\n')

    def changes_meanwhile(request: dict[str, Any], turn: int) -> list[dict[str, Any]]:
        if turn == 1:
            record.memory("org").create("AGENTS.md", "Sign with Ann.\n", by="ann")
        return answers(request, turn)

    provider.answers = changes_meanwhile
    start = ("agent", "run", folder, "How many?", "--rules", rules, "--json")
    granting = threading.Thread(target=grant_one, args=(record,), daemon=True)
    granting.start()
    ran = call(*start)
    first = ran.lines[0]
    assert "(send) of run" in ran.err
    assert "waits for approval; from another terminal: hansard" in ran.err
    granting.join(GRANT_S_MAX)
    assert first["text"] == "There are 3."
    assert (first["tools"], first["subagents"]) == (["add", "send"], ["counter"])
    assert sent.read_text() == "ann: 3\n"
    assert len(provider.asked) == ASKED
    system = json.dumps(provider.asked[0]["system"])
    assert "Be kind." in system
    assert "How to greet." in system
    names = {tool["name"] for tool in provider.asked[0]["tools"]}
    assert {"add", "send", "task"} <= names
    assert not names & {"fail", "slow", "die", "big", "near"}
    [counter] = [each for each in provider.asked if "count words" in json.dumps(each["system"])]
    assert not {tool["name"] for tool in counter["tools"]} & {"add", "send"}
    assert record.memory("agent/clerk").view("AGENTS.md") == "Be brief.\n"
    assert "org/AGENTS.md: new by ann" in json.dumps(provider.asked[-1]["messages"])
    assert "has changed" not in json.dumps(provider.asked[-2]["messages"])
    tools = Counter(row[0] for row in record.sql("SELECT tool FROM steps").rows)
    assert (tools["model.hand-written"], tools["add"], tools["send"]) == (ASKED, 1, 1)
    assert (tools["mcp:tools/list"], tools["memory.change"]) == (1, 1)
    with pytest.raises(hansard.errors.MemoryInvalid, match=r"tools\.offered: found 'subtract'"):
        record.memory("agent/clerk").edit("tools.json", '"add"', '"subtract"', by="ann")
    again = call(*start, "--run", first["run"]).lines[0]
    assert again["text"] == "There are 3."
    assert again["differs"] == ["AGENTS.md"]
    assert (len(provider.asked), sent.read_text()) == (ASKED, "ann: 3\n")


@pytest.mark.thorough(quick="test_a_folder_is_an_agent_whose_every_action_is_on_record")
@pytest.mark.timeout(120)
def test_an_agent_that_asks_nobody_waits_for_nobody(record, call, provider, folder, sent):
    """`--yolo`: no interrupt and no change of memory waits; the policy says who set it."""
    rules = folder.parent / "rules.toml"
    rules.write_text('[effects]\nsend = "idempotent"\n')
    ran = call("agent", "run", folder, "How many?", "--rules", rules, "--yolo", "--by", "ann")
    assert ran.code == 0, ran.err
    assert "waiting" not in ran.err
    assert (sent.read_text(), record.approvals.list()) == ("ann: 3\n", [])
    assert record.memory("agent/clerk").view("AGENTS.md") == "Be brief.\n"
    assert record.sql("SELECT approval, author FROM memory_policies").rows == [("off", "ann")]


@pytest.mark.thorough(quick="test_a_folder_is_an_agent_whose_every_action_is_on_record")
@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(("when", "step"), [("after", 12), ("before", 4)])
def test_killed_and_gone_on_with_no_answer_on_record_is_paid_for_again(
    stage: Stage, provider: Provider, folder: Path, sent: Path, when: str, step: int, evidence: Any
):
    """Killed again and again it ends as undisturbed; only unrecorded answers are paid twice."""
    tools = json.loads((folder / "tools.json").read_text())
    (folder / "tools.json").write_text(json.dumps({**tools, "interrupt_config": {}}))
    clerk = stage.record.memory("agent/clerk")
    clerk.set_policy("off", by="ann", untrusted=["AGENTS.md"])
    kills = 0
    while True:
        where = str(folder)
        child = stage.start(PROGRAM, number=step, when=when, url=provider.url, folder=where)
        until = time.monotonic() + BEGUN_S_MAX
        while not Path(child.job.marker).exists() and child.process.poll() is None:
            assert time.monotonic() < until
            time.sleep(0.01)
        if child.process.poll() is not None:
            break
        child.kill()
        kills += 1
        assert kills < KILLS_MAX, "it comes to no end"
    report = child.end()
    assert (report.error, report.results) == ("", "There are 3."), report.message
    assert clerk.view("AGENTS.md") == "Be brief.\n"
    assert [each.op for each in clerk.history("AGENTS.md")] == ["created", "edited"]
    assert ASKED <= len(provider.asked) <= ASKED + kills
    assert kills
    assert set(sent.read_text().splitlines()) == {"ann: 3"}
    evidence.record(f"agent.folder.kills.{when}.{step}", kills=kills, asked=len(provider.asked))


def test_what_is_no_agent_is_refused_with_the_remedy(call, tmp_path, folder, monkeypatch):
    """Each mistake in an agent folder is an error with its remedy."""
    empty = tmp_path / "empty"
    empty.mkdir()
    result = call("agent", "run", empty, "x")
    assert (result.code, "neither AGENTS.md nor agent.json" in result.err) == (2, True)
    bad = tmp_path / "bad"
    (bad / "skills" / "x").mkdir(parents=True)
    (bad / "AGENTS.md").write_text("x\n")
    result = call("agent", "run", bad, "x")
    assert (result.code, "provider:model" in result.err) == (2, True)
    (bad / "agent.json").write_text('{"name": "bad-2"}')
    (bad / "skills" / "x" / "SKILL.md").write_text("nothing")
    result = call("agent", "run", bad, "x")
    assert (result.code, "frontmatter.missing" in result.err) == (2, True)
    tools = json.loads((folder / "tools.json").read_text())
    tools["tools"][0]["name"] = "subtract"
    (folder / "tools.json").write_text(json.dumps(tools))
    result = call("agent", "run", folder, "x")
    assert (result.code, "has no tool 'subtract'" in result.err) == (2, True)
    monkeypatch.setitem(sys.modules, "deepagents", None)
    result = call("agent", "run", folder, "x")
    assert (result.code, "pip install '.[agent]'" in result.err) == (2, True)
