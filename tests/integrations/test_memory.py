"""A session's memory through other people's packages: anthropic's memory tool, deepagents' backend,
LangGraph's store. Each call is a step; what is refused is told to the model.
"""

import pytest

from tests.integrations.packages import imported
from tests.memory.portable.test_harnesses import SKILL

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _packages() -> None:
    imported("deepagents")


@pytest.fixture
def session(record):
    """A session whose own space is changed unasked."""
    record.memory("agent/writer").set_policy("off", by="ann", because="a test")
    with record.run("w", agent="writer", run="r") as session:
        yield session


def steps_of(record, session):
    """The names of the tools of the run's steps."""
    rows = record.sql("SELECT tool FROM steps ORDER BY step").rows
    return [row[0] for row in rows]


@pytest.mark.thorough(
    quick="tests/integrations/test_corrected.py::test_a_model_that_writes_an_invalid_skill_gets_it_right_within_three"
)
def test_anthropics_memory_tool_reads_and_writes_the_agents_files(record, session):
    """By the commands as the model's answer has them; refusals are the tool's result."""
    from anthropic.lib.tools import ToolError  # noqa: PLC0415 -- takes a second

    from hansard.integrations.memory.anthropic_tool_sync import (  # noqa: PLC0415 -- takes a second
        MemoryTool,
    )

    tool = MemoryTool(session.memory, because="told so")
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
    for told, given in (
        ("skill.name.folder", {"path": "/memories/skills/x/SKILL.md", "file_text": SKILL.decode()}),
        ("under /memories", {"path": "/etc/passwd", "file_text": ""}),
        ("'..'", {"path": "/memories/../x", "file_text": ""}),
    ):
        with pytest.raises(ToolError) as refused:
            call("create", **given)
        assert told in str(refused.value.content)
    with pytest.raises(ToolError):
        call("view", "/memories/absent.md")
    with pytest.raises(ToolError):
        tool.clear_all_memory()
    assert {change.because for change in session.memory.history("AGENTS.md")} == {"told so"}


def test_deepagents_reads_and_writes_the_agents_files(record, session):
    """As the protocol says: listings, windows, edits, literal search, globs, whole files."""
    from hansard.integrations.memory.deepagents_backend import (  # noqa: PLC0415 -- takes a second
        MemoryBackend,
    )

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
    found = backend.grep("(a)", glob="*.md")
    assert [(each["path"], each["line"]) for each in found.matches or []] == [("/AGENTS.md", 1)]
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

    from hansard.integrations.memory.langgraph_store import (  # noqa: PLC0415 -- takes a second
        SessionStore,
    )

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
    """Reads count as well."""
    from hansard.integrations.memory.deepagents_backend import (  # noqa: PLC0415 -- takes a second
        MemoryBackend,
    )

    backend = MemoryBackend(session.memory)
    backend.write("/AGENTS.md", "Be brief.\n")
    backend.read("/AGENTS.md")
    assert steps_of(record, session)[-2:] == ["memory.change", "memory.view"]
