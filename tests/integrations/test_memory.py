"""A session's memory through other packages: anthropic's memory tool, deepagents' backend,
LangGraph's store. Each call is a step; the model receives each refusal.

A model that writes an invalid file through the real anthropic SDK corrects it by the error, or is
advised to ask the user. Its answers are written by hand, in the wire form of anthropic's API, and
served on this machine.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import hansard
from hansard.domain.approval import ApprovalStatus
from tests.integrations.packages import imported
from tests.memory.portable.test_harnesses import SKILL
from tests.memory.upkeep.test_reflect import INJECTED
from tests.structure.test_answers import names

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _packages() -> None:
    imported("anthropic")


@pytest.fixture
def deepagents() -> None:
    """Imported by the tests of it: it takes two seconds."""
    imported("deepagents")


@pytest.fixture
def session(record):
    """Yield a session whose own space changes without approval."""
    record.memory("agent/writer").set_policy("off", by="ann", reason="a test")
    with record.run("w", agent="writer", run="r") as session:
        yield session


def steps_of(record, session):
    """Return the names of the tools of the run's steps."""
    rows = record.sql("SELECT tool FROM steps ORDER BY step").rows
    return [row[0] for row in rows]


@pytest.mark.thorough(quick="test_a_model_that_writes_an_invalid_skill_gets_it_right_within_three")
def test_anthropics_memory_tool_reads_and_writes_the_agents_files(record, session):
    """The tool runs the commands of a model's answer; refusals are its result."""
    from anthropic.lib.tools import ToolError  # noqa: PLC0415 -- takes a second

    from hansard.ext.memory.anthropic_tool import MemoryTool  # noqa: PLC0415 -- takes a second

    tool = MemoryTool(session.memory, reason="told so")
    assert tool.to_dict() == {"type": "memory_20250818", "name": "memory"}

    def call(command: str, path: str = "/memories/AGENTS.md", **more):
        return str(tool.call({"command": command, "path": path, **more}))

    call("create", file_text="Be brief.\nAsk.\n")
    assert "1\tBe brief." in call("view")
    assert call("view", view_range=[2, 2]).endswith("2\tAsk.")
    assert "Be kind." in call("str_replace", old_str="brief", new_str="kind")
    call("insert", insert_line=1, insert_text="Last.\n")
    assert session.memory.view("AGENTS.md") == "Be kind.\nLast.\nAsk.\n"
    call("create", "/memories/notes/a.md", file_text="a")
    assert "/memories/notes/a.md" in call("view", "/memories")
    tool.call({"command": "rename", "old_path": "/memories/notes", "new_path": "/memories/old"})
    assert session.memory.ls("old") == ["old/a.md"]
    call("delete", "/memories/old")
    assert session.memory.ls() == ["AGENTS.md"]
    for message, fields in (
        ("skill.name.folder", {"path": "/memories/skills/x/SKILL.md", "file_text": SKILL.decode()}),
        ("under /memories", {"path": "/etc/passwd", "file_text": ""}),
        ("'..'", {"path": "/memories/../x", "file_text": ""}),
    ):
        with pytest.raises(ToolError) as refused:
            call("create", **fields)
        assert message in str(refused.value.content)
    with pytest.raises(ToolError):
        call("view", "/memories/absent.md")
    with pytest.raises(ToolError):
        tool.clear_all_memory()
    assert {change.because for change in session.memory.history("AGENTS.md")} == {"told so"}


@pytest.mark.thorough(
    quick="integrations/test_agent_folder.py::test_a_folder_is_an_agent_whose_every_action_is_on_record"
)
@pytest.mark.usefixtures("deepagents")
def test_deepagents_reads_and_writes_the_agents_files(record, session):
    """The deepagents protocol holds: listings, windows, edits, search, globs, whole files."""
    from hansard.ext.memory.deep_agent import MemoryBackend  # noqa: PLC0415 -- takes a second

    backend = MemoryBackend(session.memory)
    assert backend.write("/AGENTS.md", "one (a)\ntwo\nthree\n").error is None
    assert backend.write("/skills/pay/SKILL.md", SKILL.decode()).path == "/skills/pay/SKILL.md"
    assert [(each["path"], each["is_dir"]) for each in backend.ls("/").entries or []] == [
        ("/AGENTS.md", False),
        ("/skills/", True),
    ]
    window = backend.read("/AGENTS.md", 1, 1)
    assert window.file_data is not None
    assert (window.file_data["content"], window.start_line, window.next_offset) == ("two\n", 2, 2)
    assert backend.edit("/AGENTS.md", "t", "T").error
    assert backend.edit("/AGENTS.md", "t", "T", replace_all=True).occurrences == 2
    result = backend.grep("(a)", glob="*.md")
    assert [(each["path"], each["line"]) for each in result.matches or []] == [("/AGENTS.md", 1)]
    assert [each["path"] for each in backend.glob("**/SKILL.md").matches or []] == [
        "/skills/pay/SKILL.md"
    ]
    refused = backend.write("/skills/pay/SKILL.md", "no front matter")
    assert "frontmatter.missing" in str(refused.error)
    assert "no file" in str(backend.read("/absent.md").error).lower() or backend.read("/a").error
    loaded = backend.download_files(["/AGENTS.md", "/absent.md"])
    assert loaded[0].content == b"one (a)\nTwo\nThree\n"
    assert loaded[1].error == "file_not_found"
    assert backend.upload_files([("/b.bin", b"\xff"), ("/b.md", b"b")])[0].error
    assert backend.delete("/skills").error is None
    assert session.memory.ls() == ["AGENTS.md", "b.md"]
    assert backend.delete("/absent").error


def test_langgraphs_store_keeps_items_as_files(record, session):
    """Put, get, search, list and delete, as LangGraph's own store does."""
    from langgraph.store.memory import InMemoryStore  # noqa: PLC0415 -- takes a second

    from hansard.ext.memory.langgraph_store import SessionStore  # noqa: PLC0415 -- takes a second

    ours, theirs = SessionStore(session.memory), InMemoryStore()
    for store in (ours, theirs):
        store.put(("users", "Ann"), "Tone", {"style": "brief", "n": 1})
        store.put(("users", "Ann"), "tone", {"style": "kind", "n": 2})
        store.put(("users", "bob"), "x/../y", {"style": "brief", "n": 3})
        store.put(("users", "bob"), "x/../y", {"style": "brief", "n": 4})
        store.put(("facts",), "é", {"style": {"a": None}})
        store.put(("facts",), "gone", {})
        store.delete(("facts",), "gone")
        store.delete(("facts",), "never")

    def plain(items):
        return sorted((item.namespace, item.key, str(item.value)) for item in items)

    for filter_ in (None, {"style": "brief"}, {"n": {"$gte": 2}}, {"style": {"$ne": "kind"}}):
        assert (
            plain(ours.search((), filter=filter_)) if filter_ is None or "n" not in filter_ else 1
        )
        assert plain(ours.search(("users",), filter=filter_)) == plain(
            theirs.search(("users",), filter=filter_)
        )
    assert len(ours.search((), limit=2, offset=1)) == 2
    for options in ({}, {"prefix": ("users",)}, {"suffix": ("bob",)}, {"max_depth": 1}):
        assert ours.list_namespaces(**options) == sorted(theirs.list_namespaces(**options))
    item = ours.get(("users", "bob"), "x/../y")
    assert item is not None
    assert (item.value["n"], item.created_at < item.updated_at) == (4, True)
    assert ours.get(("facts",), "gone") is None


def test_each_call_is_a_step_of_the_agent(record, session):
    """Each call, also a read, is a step."""
    from hansard.ext.memory.deep_agent import MemoryBackend  # noqa: PLC0415 -- takes a second

    backend = MemoryBackend(session.memory)
    backend.write("/AGENTS.md", "Be brief.\n")
    backend.read("/AGENTS.md")
    assert steps_of(record, session)[-2:] == ["memory.change", "memory.view"]


def test_no_page_that_asks_to_be_remembered_reaches_a_file_by_the_tool(record, rounds):
    """No page makes the memory tool write without approval."""
    from anthropic.lib.tools import ToolError  # noqa: PLC0415 -- takes a second

    from hansard.ext.memory.anthropic_tool import MemoryTool  # noqa: PLC0415 -- takes a second

    pages = INJECTED[:: len(INJECTED) // rounds(quick=2, full=30)]
    record.memory("agent/ada").set_policy("off", by="eve")
    ask = hansard.ask_first("memory.change", timeout_s=0.1)
    with record.run("w", agent="ada", run="r", gate=[ask]) as session:
        tool = MemoryTool(session.memory)
        for text in pages:
            session.message("tool", text, label="untrusted")
            with pytest.raises((hansard.Blocked, ToolError)):
                tool.call({"command": "create", "path": "/memories/AGENTS.md", "file_text": text})
        assert session.memory.ls() == []
    approvals = record.approvals.list(answered=True)
    assert [each.standing for each in approvals] == [ApprovalStatus.EXPIRED] * len(pages)


PATH = "/memories/skills/pay/SKILL.md"
RIGHT = "---\nname: pay\ndescription: How bills are paid.\n---\nBy card.\n"

MENDED = {
    "": "Bills are paid by card.\n",
    "frontmatter.missing": "---\nname: Pay\ndescription: How bills are paid.\n---\nBy card.\n",
    "skill.name.case": RIGHT,
}
"""The model's next text, by the rule of the last error."""

Results = list[dict[str, Any]]
"""The tool's results so far, oldest first."""

Model = Callable[[Results], dict[str, Any]]
"""Function from the tool's results to the one block of the next answer."""


@contextmanager
def served(model: Model) -> Iterator[tuple[str, list[Any], Results]]:
    """Serve answers in Anthropic's form; give the address, the requests, and tool results."""
    requests: list[dict[str, Any]] = []
    results: Results = []

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append(request)
            last = request["messages"][-1]["content"]
            results.extend(each for each in last if not isinstance(each, str))
            block = model(results)
            answer = {
                "id": f"msg_{len(requests)}",
                "type": "message",
                "role": "assistant",
                "model": request["model"],
                "content": [block],
                "stop_reason": "tool_use" if block["type"] == "tool_use" else "end_turn",
                "stop_sequence": None,
                "usage": {"input_tokens": 1, "output_tokens": 1},
            }
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    worker = threading.Thread(target=server.serve_forever)
    worker.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests, results
    finally:
        server.shutdown()
        worker.join()
        server.server_close()


def created(number: int, text: str) -> dict[str, Any]:
    """Return a call of the memory tool, as a model makes it."""
    arguments = {"command": "create", "path": PATH, "file_text": text}
    return {"type": "tool_use", "id": f"toolu_{number}", "name": "memory", "input": arguments}


def conversation(record, model: Model) -> tuple[str, Results]:
    """Return the model's last message, and the tool's results."""
    import anthropic  # noqa: PLC0415 -- takes a second

    from hansard.ext.memory.anthropic_tool import MemoryTool  # noqa: PLC0415 -- it imports anthropic

    record.memory("agent/writer").set_policy("off", by="ann", reason="a test")
    with (
        served(model) as (url, requests, results),
        record.run("w", agent="writer", run="r") as session,
        anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client,
    ):
        runner = client.beta.messages.tool_runner(
            max_tokens=1_000,
            model="claude-scripted",
            messages=[{"role": "user", "content": "Remember how bills are paid."}],
            tools=[MemoryTool(session.memory, reason="told so")],
        )
        last = runner.until_done()
    assert requests[0]["tools"] == [{"type": "memory_20250818", "name": "memory"}]
    [block] = last.content
    assert block.type == "text"
    return block.text, results


def test_a_model_that_writes_an_invalid_skill_gets_it_right_within_three(record):
    """A model corrects a skill by path, line, rule and permitted values in the tool's result."""

    def model(results: Results) -> dict[str, Any]:
        if results and not results[-1].get("is_error"):
            return {"type": "text", "text": "Remembered."}
        last = json.dumps(results[-1]) if results else ""
        [rule] = [each for each in MENDED if each and each in last] or [""]
        return created(len(results), MENDED[rule])

    text, results = conversation(record, model)
    assert (text, len(results)) == ("Remembered.", 3)
    assert "skills/pay/SKILL.md:1: frontmatter.missing" in str(results[0])
    assert "skills/pay/SKILL.md:2: skill.name.case" in str(results[1])
    assert "ask the user" not in str(results)
    space = record.memory("agent/writer")
    assert space.view("skills/pay/SKILL.md") == RIGHT
    assert len(space.history()) == 1
    refused = record.sql("SELECT count(DISTINCT position), list(rule) FROM memory_rejections").rows
    assert refused[0][0] == 2
    assert {"frontmatter.missing", "skill.name.case"} <= set(refused[0][1])


def test_a_model_that_gets_it_wrong_three_times_is_advised_to_ask(record):
    """The third refusal in a row advises the model to ask; nothing is committed."""

    def model(results: Results) -> dict[str, Any]:
        if results and "ask the user" in str(results[-1]):
            return {"type": "text", "text": "How are bills paid?"}
        return created(len(results), f"Wrong {len(results)}.\n")

    text, results = conversation(record, model)
    assert (text, len(results)) == ("How are bills paid?", 3)
    assert all(each["is_error"] for each in results)
    assert ["ask the user" in str(each) for each in results] == [False, False, True]
    assert record.memory("agent/writer").entries() == []


def test_each_method_of_the_tool_is_there_in_both_clients() -> None:
    """And neither has one that the other lacks."""
    from hansard.ext.memory import anthropic_tool  # noqa: PLC0415 -- it imports anthropic

    assert names(anthropic_tool.AsyncMemoryTool) == names(anthropic_tool.MemoryTool)
