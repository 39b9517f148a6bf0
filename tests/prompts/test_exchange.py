"""A run that goes elsewhere brings the prompts that its calls were given."""

import pytest

import hansard

pytestmark = pytest.mark.slow


def test_an_exported_run_brings_its_prompts(call, record, data_dir, workspace, tmp_path):
    """An export carries its prompts whole; a name that is taken stops the import."""
    record.prompts.add("rag", "Answer {query}.")
    record.prompts.alias("rag@1", "production", reason="the first one")
    record.prompts.add("other", "Of no call.")
    with record.run("w", agent="ada", run="r") as session:

        @session.tool(effects="pure", kind="model")
        def ask(prompt: str) -> str:
            """Ask."""
            return prompt.upper()

        ask(record.prompts.get("rag@production").format(query="this"))
    record.prompts.add("rag", "Later: {query}.")
    file = tmp_path / "r.jsonl"
    assert call("export", "r", "-o", file).code == 0
    there = f"{workspace}-there"
    brought = call("-w", there, "import", "events", file)
    assert brought.code == 0, brought.err
    with hansard.connect(there, data_dir=data_dir) as other:
        imported = other.prompts.get("rag@production")
        assert (imported.version, imported.text) == (1, "Answer {query}.")
        assert other.prompts.get("rag").version == 1
        uses = other.sql("SELECT run, prompt, version, alias FROM prompt_uses").rows
        assert uses == [("r", "rag", 1, "production")]
        with pytest.raises(hansard.NotFound):
            other.prompts.get("other")
    assert call("-w", there, "check").code == 0
    again = tmp_path / "again.jsonl"
    assert call("-w", there, "export", "r", "-o", again).code == 0
    assert again.read_bytes() == file.read_bytes()
    elsewhere = f"{workspace}-else"
    with hansard.connect(elsewhere, data_dir=data_dir) as other:
        other.prompts.add("rag", "Mine.")
    refused = call("-w", elsewhere, "import", "events", file)
    assert refused.code != 0
    assert "rag" in refused.err
    with hansard.connect(elsewhere, data_dir=data_dir) as other:
        assert other.prompts.get("rag").text == "Mine."
        assert list(other.runs()) == []
