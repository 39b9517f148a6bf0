"""A conversation that was compacted has the same window where its runs are imported."""

from pathlib import Path

import hansard
from tests.exchange.support import bring_in, exported


def in_short(messages: list[dict[str, str]]) -> str:
    """A rule in the place of a model."""
    return f"{len(messages)} earlier"


def test_the_window_comes_along(data_dir: Path, workspace: str, tmp_path: Path):
    """A summary's earlier runs are exported with it, and a later run uses the summary."""
    copy = f"{workspace}-copy"
    with hansard.connect(workspace, data_dir=data_dir) as record:
        for run, texts in (("one", "abc"), ("two", "d")):
            with record.run("w", run=run, conversation="c", agent="ada", role="r") as session:
                for text in texts:
                    session.message("user", f"{text}, please, at length")
                if run == "two":
                    session.compact(in_short, keep=2)
        found = record.conversation("c")
    assert [message["content"][:9] for message in found.window] == [
        "2 earlier",
        "c, please",
        "d, please",
    ]
    bring_in(data_dir, copy, tmp_path / "x.jsonl", exported(data_dir, workspace, "two"))
    with hansard.connect(copy, data_dir=data_dir) as record:
        again = record.conversation("c")
        assert (again.window, again.messages) == (found.window, found.messages)
        with record.run("w", run="three", conversation="c", agent="ada", role="r") as session:
            assert session.window() == found.window
            assert session.window(full=True) == found.messages
