"""The storage format of every event type, byte for byte: what was written once is read for ever.

Of each tag there are `<tag>.full.json`, with every field given that it had then, and where fields
have defaults `<tag>.least.json`, with none of them. The files are never regenerated: a new field
adds a file, `<tag>.full-2.json`, and so does a new tag.
"""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from hansard.bus import commits, subjects
from hansard.bus.commits import record, revive
from hansard.bus.slices import installed
from hansard.cli.exchange import Schema, schema
from hansard.domain import run
from hansard.domain.errors import Corrupt, UnknownEvent
from hansard.domain.events import (
    REGISTRY,
    TAG_PATTERN,
    UPCASTERS,
    Encryption,
    Event,
    Recorded,
    Tx,
    event,
)
from hansard.domain.ids import AgentStream, KeyStream, StreamId
from hansard.domain.label import Confidentiality, Label
from tests.schemas import validator

FOLDER = Path(__file__).parent / "events"
FILES = sorted(path.name for path in FOLDER.iterdir())
OURS = {tag: cls for tag, cls in REGISTRY.items() if cls.__module__.startswith("hansard.domain.")}


def _read(name: str) -> Recorded:
    tag = name.removesuffix(".json").rpartition(".")[0]
    return Recorded(tag, "an event", msgspec.Raw((FOLDER / name).read_bytes()))


def test_every_event_type_has_its_golden_bytes():
    """Each registered tag has a full file, and a least one where a field may be left out."""
    expected = {f"{tag}.full.json" for tag in OURS}
    expected |= {
        f"{tag}.least.json"
        for tag, cls in OURS.items()
        if any(not field.required for field in msgspec.structs.fields(cls))
    }
    assert {name for name in FILES if "-" not in name} == expected
    assert {name.rpartition(".full-")[0] for name in FILES if "-" in name} <= set(OURS)


def test_the_bytes_are_read_and_written_as_they_stand():
    """Reviving golden bytes and recording them again gives the same bytes."""
    for name in FILES:
        golden = _read(name)
        event = revive(golden)
        assert event.tag == golden.type
        assert bytes(record(event, "").data) == bytes(golden.data), name


def test_every_field_has_golden_bytes():
    """The newest full file has every field of its type, in order."""
    for tag in OURS:
        fields = [field.encode_name for field in msgspec.structs.fields(REGISTRY[tag])]
        full = [name for name in FILES if name.startswith((f"{tag}.full.", f"{tag}.full-"))]
        fields_of_files = [list(msgspec.json.decode((FOLDER / name).read_bytes())) for name in full]
        assert max(fields_of_files, key=len) == fields, tag


@pytest.mark.parametrize("one", installed(), ids=lambda one: one.name)
def test_the_events_of_slices_have_golden_bytes(one):
    """Each event of a slice of ours, with every field, is read and written as it is stored."""
    for tag in {each.tag for events in one.streams.values() for each in events}:
        data = (FOLDER.with_name("slices") / f"{tag}.json").read_bytes()
        stored = revive(Recorded(tag, "an event", msgspec.Raw(data)))
        assert bytes(record(stored, "").data) == data
        fields = [field.encode_name for field in msgspec.structs.fields(type(stored))]
        assert list(msgspec.json.decode(data)) == fields


def test_a_least_file_has_only_what_must_be_there():
    """An optional field is left out when it has its default."""
    for name in (name for name in FILES if name.endswith(".least.json")):
        golden = _read(name)
        fields = msgspec.structs.fields(REGISTRY[golden.type])
        required = [field.encode_name for field in fields if field.required]
        assert list(msgspec.json.decode(golden.data)) == required, name


def test_a_tag_says_what_happened_and_in_which_version():
    """A tag is versioned, has the common form, and is registered for its type."""
    for tag in OURS:
        assert re.fullmatch(TAG_PATTERN, tag)
        assert REGISTRY[tag].tag == tag


def test_a_tag_is_taken_once():
    """Two types cannot share a tag."""
    with pytest.raises(TypeError, match=r"run\.started\.v1.*taken by RunStarted"):

        @event("run.started.v1")
        class Other(Event, frozen=True, kw_only=True):
            pass


def test_a_field_of_a_newer_writer_is_passed_over():
    """A field that this version does not know does not stop it."""
    newer = Recorded("run.resumed.v1", "e", msgspec.Raw(b'{"agent":"a","epoch":2,"new":1}'))
    assert revive(newer) == run.RunResumed(agent="a", epoch=2)


@pytest.mark.parametrize("data", [b"{}", b"[]", b'{"agent":1,"epoch":2}', b"{", b"", b"null"])
def test_data_that_is_not_its_event_s_is_corrupt(data):
    """Bytes that do not say what their tag says are Corrupt, with the event's id."""
    with pytest.raises(Corrupt, match=r"event e1.*run\.resumed\.v1"):
        revive(Recorded("run.resumed.v1", "e1", msgspec.Raw(data)))


@pytest.mark.parametrize("tag", ["run.resumed.v9", "", "x", "builtins.eval"])
def test_an_unknown_tag_stops_the_reader(tag):
    """A tag that is not registered is UnknownEvent, with the remedy; its data stays bytes."""
    with pytest.raises(UnknownEvent, match="written by a newer version") as unknown:
        revive(Recorded(tag, "e1", msgspec.Raw(b"{}")))
    assert (unknown.value.tag, unknown.value.where) == (tag, "event e1")


def test_encrypted_data_stops_the_reader():
    """Data that a later version encrypted is not taken for plain data."""
    sealed = Recorded("run.completed.v1", "e1", msgspec.Raw(b'"x"'), Encryption("k", "A256GCM"))
    with pytest.raises(UnknownEvent, match="encrypted with A256GCM"):
        revive(sealed)


def _v0(data: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return "run.resumed.v0b", {"agent": data["name"], "n": data["n"]}


def _v0b(data: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return "run.resumed.v1", {"agent": data["agent"], "epoch": data["n"]}


def test_old_events_are_lifted_step_by_step(monkeypatch):
    """An old tag goes through its upcasters to today's type."""
    monkeypatch.setitem(UPCASTERS, "run.resumed.v0", _v0)
    monkeypatch.setitem(UPCASTERS, "run.resumed.v0b", _v0b)
    oldest = Recorded("run.resumed.v0", "e", msgspec.Raw(b'{"name":"a","n":2}'))
    assert revive(oldest) == run.RunResumed(agent="a", epoch=2)
    middle = Recorded("run.resumed.v0b", "e", msgspec.Raw(b'{"agent":"a","n":3}'))
    assert revive(middle) == run.RunResumed(agent="a", epoch=3)


def test_a_registered_tag_may_become_old(monkeypatch):
    """A tag whose type still exists is lifted all the same once it has an upcaster."""
    lift = lambda data: ("run.cancelled.v1", {"because": data["agent"]})  # noqa: E731 -- used once, right below
    monkeypatch.setitem(UPCASTERS, "run.resumed.v1", lift)
    old = Recorded("run.resumed.v1", "e", msgspec.Raw(b'{"agent":"a","epoch":2}'))
    assert revive(old) == run.RunCancelled(because="a")


def test_a_circle_of_upcasters_ends(monkeypatch):
    """Upcasters that lead back to where they began are refused, not followed for ever."""
    monkeypatch.setitem(UPCASTERS, "run.a.v0", lambda data: ("run.b.v0", data))
    monkeypatch.setitem(UPCASTERS, "run.b.v0", lambda data: ("run.a.v0", data))
    with pytest.raises(UnknownEvent):
        revive(Recorded("run.a.v0", "e", msgspec.Raw(b"{}")))


def test_an_upcaster_into_the_unknown_is_refused(monkeypatch):
    """A chain that ends at no known type is UnknownEvent; one whose data does not fit, Corrupt."""
    monkeypatch.setitem(UPCASTERS, "run.a.v0", lambda data: ("run.nowhere.v1", data))
    with pytest.raises(UnknownEvent, match=r"run\.nowhere\.v1"):
        revive(Recorded("run.a.v0", "e", msgspec.Raw(b"{}")))
    monkeypatch.setitem(UPCASTERS, "run.a.v0", lambda data: ("run.resumed.v1", data))
    with pytest.raises(Corrupt):
        revive(Recorded("run.a.v0", "e", msgspec.Raw(b"{}")))


def test_no_upcaster_hides_a_type():
    """Today no tag is old: the first upcaster comes with golden bytes of what it lifts."""
    assert UPCASTERS == {}
    core = {tag: cls for tag, cls in REGISTRY.items() if ".ext." not in cls.__module__}
    assert core == OURS


# ------------------------------------------------------------ schemas


DOCS = Path(__file__).parents[2] / "docs" / "schema"
EVENTS = Path(__file__).parent / "events"


@pytest.mark.parametrize("which", Schema)
def test_what_is_published_is_what_the_types_say(which: Schema):
    """`docs/schema` is what `hansard schema` prints, and is a valid schema."""
    stored = msgspec.json.decode((DOCS / f"{which.value}.schema.json").read_bytes())
    assert stored == schema(which), f"hansard schema {which.value}"
    jsonschema.Draft202012Validator.check_schema(stored)


def test_every_event_of_the_golden_files_is_valid():
    """Every golden event, full or least, is valid by the part of the schema for its tag."""
    seen: set[str] = set()
    for path in sorted(EVENTS.iterdir()):
        tag = path.name.removesuffix(".json").rpartition(".")[0]
        data = msgspec.json.decode(path.read_bytes())
        recorded = data if "type" in data and "id" in data else None
        validator(Schema.EVENTS, tag).validate(recorded or {"type": tag, "id": "e", "data": data})
        seen.add(tag)
    parts = schema(Schema.EVENTS)["$defs"]
    assert seen <= {each["$ref"].rpartition("/")[2] for each in parts["Recorded"]["oneOf"]}
    assert all(parts[tag]["properties"]["type"] == {"const": tag} for tag in seen)
    core = {tag for tag, cls in REGISTRY.items() if cls.__module__.startswith("hansard.domain.")}
    assert core <= seen


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"type": "step.requested.v9"}, "not valid under any"),
        ({"data": {"step": "one"}}, "not valid under any"),
        ({"id": 7}, "not valid under any"),
    ],
)
def test_what_is_no_event_is_not(change: dict[str, Any], fault: str):
    """The schema refuses another tag, other data, and an id that is no text."""
    good = {"type": "agent.left.v1", "id": "e", "data": {"outcome": "completed"}}
    events = validator(Schema.EVENTS, "Recorded")
    events.validate(good)
    with pytest.raises(jsonschema.ValidationError, match=fault):
        events.validate(good | change)


# ------------------------------------------------------------ commits


COMMITS = Path(__file__).parent / "commits"

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
    assert {path.stem for path in COMMITS.iterdir()} == set(GOLDEN)


@pytest.mark.parametrize("name", GOLDEN)
def test_bytes(name: str):
    """Decoding and encoding again gives the same bytes, and the stream its subject."""
    subject, stream = GOLDEN[name]
    body = (COMMITS / f"{name}.json").read_bytes()
    decoded, commit = commits.decode(subject, body)
    assert decoded == stream
    assert commits.encode(stream, commit) == body
    assert subjects.subject("lab", stream, commit.version) == subject


def test_full():
    """Every field keeps its meaning."""
    subject, _ = GOLDEN["full.v1"]
    _, commit = commits.decode(subject, (COMMITS / "full.v1.json").read_bytes())
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
    _, commit = commits.decode(subject, (COMMITS / "labelled.v1.json").read_bytes())
    assert commit.label == Label(Confidentiality.SECRET, untrusted=True)
    assert commits.decode(*_least())[1].label is None


def _least() -> tuple[str, bytes]:
    return GOLDEN["least.v1"][0], (COMMITS / "least.v1.json").read_bytes()


def test_least():
    """A missing field has its default."""
    subject, _ = GOLDEN["least.v1"]
    _, commit = commits.decode(subject, (COMMITS / "least.v1.json").read_bytes())
    assert (commit.epoch, commit.tx, commit.causation, commit.stream) == (0, None, None, None)
    assert commit.actor.on_behalf_of == ()
    assert commit.events[0].enc is None
