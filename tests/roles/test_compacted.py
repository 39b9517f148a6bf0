"""A summary reveals nothing to a role that may not see its messages."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from tests.cli.support import ran

pytestmark = pytest.mark.later

ROLES = """
[roles.watcher]
clearance = "secret"
sees = [{ name = "all that is written", kinds = ["**"] }]
may = { query = true }
[[roles.watcher.masks]]
name = "not what is said"
kinds = ["message.added"]
fields = ["content"]
how = "drop"
[[roles.watcher.masks]]
name = "nor what calls are given and return"
kinds = ["step.*"]
fields = ["arguments", "result"]
how = "drop"
[roles.auditor]
clearance = "secret"
sees = [{ name = "all", kinds = ["**"] }]
may = { query = true }
[roles.writer]
may = { kinds = ["**"], tools = ["**"] }
"""
SECRET = "the unsayable words"


def brief(messages: list[dict[str, str]]) -> str:
    """Return a summary by a rule in place of a model; it repeats the messages."""
    return messages[0]["content"]


def test_only_who_sees_the_whole_record_sees_the_summary(data_dir, workspace, tmp_path):
    """The watcher sees that messages were compacted, but not which; the auditor sees the
    summary.
    """
    file = tmp_path / "roles.toml"
    file.write_text(ROLES)
    with hansard.connect(workspace, data_dir=data_dir) as record:
        with record.run("w", run="r", agent="ada", role="writer") as session:
            session.message("user", SECRET)
            session.message("user", "and more than that")
            session.compact(brief, keep=1)
            session.decide("Go?", selected="yes")
        record.roles.apply_file(str(file))
        with record.run(run="r", agent="wat", role="watcher") as session:
            shown = msgspec.json.encode(session.view().events).decode()
        assert "context.compacted.v1" in shown
        for word in (SECRET, "stands_for", "digest", "kept", "versions"):
            assert word not in shown.partition("context.compacted.v1")[2].partition("}")[0]
        assert SECRET not in shown
        with record.run(run="r", agent="aud", role="auditor") as session:
            assert msgspec.json.encode(session.view().events).decode().count(SECRET) > 1


@pytest.mark.thorough(quick="test_only_who_sees_the_whole_record_sees_the_summary")
def test_a_roles_tables_have_the_summary_without_its_words(
    data_dir: Path, workspace: str, tmp_path: Path, capsys, monkeypatch
):
    """The role's own file has the row, without its words, ids and figures."""
    file = tmp_path / "roles.toml"
    file.write_text(ROLES)
    with hansard.connect(workspace, data_dir=data_dir) as record:
        with record.run("w", run="r", agent="ada", role="writer") as session:
            session.message("user", SECRET, tokens=9)
            session.message("user", "and more than that", tokens=9)
            session.compact(brief, keep=1, count=lambda _: 9)
        record.roles.apply_file(str(file))
    monkeypatch.setenv("HANSARD_DATA_DIR", str(data_dir))
    monkeypatch.setenv("HANSARD_WORKSPACE", workspace)

    def rows_of(role: str, question: str) -> list[dict[str, Any]]:
        done = ran(capsys, monkeypatch, ["sql", question, "--role", role, "--by", "me", "--json"])
        assert done.code == 0, done.err
        return [line for line in done.lines if "text" in line or "event" in line]

    question = "SELECT text, messages, stands_for, digest, tokens_before FROM compactions"
    [blind] = rows_of("watcher", question)
    assert not any(blind.values())
    [whole] = rows_of("auditor", question)
    assert (whole["text"], whole["messages"], whole["tokens_before"]) == (SECRET, 1, 18)
    assert rows_of("watcher", "SELECT event FROM compacted") == []
