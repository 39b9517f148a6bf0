"""The storage format of a commit, byte for byte: golden files are added and never regenerated."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from hansard.bus import commits, subjects
from hansard.domain.events import Encryption, Tx
from hansard.domain.ids import AgentStream, KeyStream, StreamId
from hansard.domain.label import Confidentiality, Label

FOLDER = Path(__file__).parent / "commits"

LONG = "x" * 200
DIGEST = "==aa20c23e3201834050679e1d88941b9a6fed0557c9a705cb2c315e2e63fd486d"

GOLDEN: dict[str, tuple[str, StreamId]] = {
    "full.v1": (
        "hansard.lab.run.r1.agent.researcher.researcher_1.41",
        AgentStream("r1", "researcher", "researcher_1"),
    ),
    "least.v1": ("hansard.lab.run.r1.board.plan=2Eof=20=2A.1", KeyStream("r1", "plan.of *")),
    "labelled.v1": ("hansard.lab.run.r1.board.plan=2Eof=20=2A.1", KeyStream("r1", "plan.of *")),
    "imported.v1": (
        "hansard.lab.run.r1.agent.assistant.assistant.3",
        AgentStream("r1", "assistant", "assistant"),
    ),
    "long-name.v1": (f"hansard.lab.run.r1.agent.role.{DIGEST}.1", AgentStream("r1", "role", LONG)),
}


def test_every_file_is_read():
    """No golden file is left out."""
    assert {path.stem for path in FOLDER.iterdir()} == set(GOLDEN)


@pytest.mark.parametrize("name", GOLDEN)
def test_bytes(name: str):
    """Decoding and encoding again gives the same bytes, and the stream its subject."""
    subject, stream = GOLDEN[name]
    body = (FOLDER / f"{name}.json").read_bytes()
    decoded, commit = commits.decode(subject, body)
    assert decoded == stream
    assert commits.encode(stream, commit) == body
    assert subjects.subject("lab", stream, commit.version) == subject


def test_full():
    """Every field keeps its meaning."""
    subject, _ = GOLDEN["full.v1"]
    _, commit = commits.decode(subject, (FOLDER / "full.v1.json").read_bytes())
    assert (commit.version, commit.last_version, commit.epoch) == (41, 42, 3)
    assert commit.at == datetime(2026, 11, 21, 2, 33, 20, 366790, tzinfo=UTC)
    assert commit.actor.on_behalf_of == ("lead", "alice@example.org")
    assert commit.tx == Tx("5b0f6f6e-6a32-8c1c-9d6e-3a1c55f9a111", 1, 3)
    assert (commit.causation, commit.correlation) == (
        "019aa3c5-7d3f-7000-8000-000000000001",
        "ticket 4711",
    )
    message, sealed = commit.events
    assert bytes(message.data).startswith('{"text":"naïve'.encode())
    assert b"9007199254740993" in bytes(message.data)
    assert sealed.enc == Encryption("key-7", "A256GCM")


def test_labelled():
    """A label says how confidential a commit is, and whether untrusted input is in it."""
    subject, _ = GOLDEN["labelled.v1"]
    _, commit = commits.decode(subject, (FOLDER / "labelled.v1.json").read_bytes())
    assert commit.label == Label(Confidentiality.SECRET, untrusted=True)
    assert commits.decode(*_least())[1].label is None


def _least() -> tuple[str, bytes]:
    return GOLDEN["least.v1"][0], (FOLDER / "least.v1.json").read_bytes()


def test_least():
    """A missing field has its default."""
    subject, _ = GOLDEN["least.v1"]
    _, commit = commits.decode(subject, (FOLDER / "least.v1.json").read_bytes())
    assert (commit.epoch, commit.tx, commit.causation, commit.stream) == (0, None, None, None)
    assert commit.actor.on_behalf_of == ()
    assert commit.events[0].enc is None
