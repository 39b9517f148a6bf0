"""A stream that lost its beginning is never read as a shorter one."""

from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

import hansard
from hansard.domain.errors import Corrupt
from hansard.domain.events import Recorded
from hansard.domain.ids import KeyStream, StreamId, WorkspaceStream
from tests.cli.planting import commit, plant

pytestmark = pytest.mark.slow

LATER = Recorded("plan.imagined.v9", str(uuid4()), msgspec.Raw(b"{}"))


def planted(home: Path, stream: StreamId) -> None:
    """A commit whose version 1 is not there."""
    plant(home, "lab", (stream, commit(2, LATER)))


def test_a_stream_without_its_first_version(tmp_path: Path):
    """Of shared state and of what outlives runs; other runs can be read."""
    home = tmp_path / "data"
    with hansard.connect(workspace="lab", data_dir=home, durability="relaxed") as record:
        for run in ("whole", "torn"):
            with record.run("w", run=run, agent="a", role="r") as session:
                session.board.put("plan", "x")
        planted(home, KeyStream("torn", "other"))
        with pytest.raises(Corrupt, match=r"version 1 is missing: position .* has version 2"):
            record.state("torn")
        assert record.state("whole").agents
        record.add_prompt("p", "text")
        planted(home, WorkspaceStream("prompt", "q"))
        with pytest.raises(Corrupt, match="stream prompt/q: version 1 is missing"):
            record.prompts()


def test_a_fork_goes_on_from_its_parent(tmp_path: Path):
    """Its streams begin after the versions that its parent had, and that is no loss."""
    home = tmp_path / "data"
    with hansard.connect(workspace="lab", data_dir=home, durability="relaxed") as record:
        with record.run("w", run="parent", agent="a", role="r") as session:
            session.board.put("plan", "x")
            session.message("user", "hello")
        with record.run(run=record.fork("parent"), agent="a", role="r") as session:
            assert session.board.get("plan") == "x"
            session.board.put("plan", "y")
            session.board.put("new", "z")
        assert record.state(session.run).run == session.run
        with record.run(run=record.fork("parent"), agent="a", role="r") as session:
            session.message("user", "hello")
        planted(home, KeyStream(session.run, "late"))
        with pytest.raises(Corrupt, match=r"version 1 is missing"):
            record.state(session.run)
