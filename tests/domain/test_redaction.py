"""Redaction of texts, values and events: no secret is left, and clean data is unchanged."""

import re

import msgspec
import pytest

from hansard import BadValue
from hansard.bus.clock import Clock
from hansard.bus.commits import new_commit, revive
from hansard.bus.log import Append
from hansard.bus.redacted_log import scrubbed
from hansard.domain.events import Actor
from hansard.domain.ids import WorkspaceStream
from hansard.domain.memory.files import MemoryChanged
from hansard.domain.redaction import Redaction
from hansard.domain.steps import Effects, StepCompleted, StepRequested
from hansard.domain.values import Secret

SECRET = "sk-hunter2-hunter2"


def _of(**redact) -> Redaction:
    made = Redaction.of(redact)
    assert made is not None
    return made


def _append(event, stream="s", actor="a") -> Append:
    return Append(WorkspaceStream("memory", stream), new_commit(Clock(), 1, Actor(actor), [event]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SECRET, Secret("key")),
        (f"a {SECRET} b", "a <secret:key> b"),
        ("PIN-1234", Secret("pin")),
        ("my PIN-1234.", "my <secret:pin>."),
        ("nothing", "nothing"),
    ],
)
def test_a_text_is_scrubbed_once(text, expected):
    """A replaced text is not replaced again, even where a pattern matches the marker."""
    redaction = _of(key=SECRET, pin=re.compile(r"PIN-\d{4}"), word=re.compile(r"secret:\w+"))
    scrubbed_text = redaction(text)
    assert scrubbed_text == expected
    if isinstance(scrubbed_text, str):
        assert redaction(scrubbed_text) == scrubbed_text
    assert redaction.text(redaction.text(text)) == redaction.text(text)


@pytest.mark.parametrize("secret", ['a "quoted"\nsecret', "schlüssel-42", "back\\slash"])
def test_a_secret_is_detected_inside_json(secret):
    """A text that is JSON itself has a secret in its escaped form."""
    inner = msgspec.json.encode({"k": secret}).decode()
    clean = _of(key=secret).text(inner)
    assert msgspec.json.decode(clean) == {"k": "<secret:key>"}


def test_every_text_of_an_event_is_scrubbed():
    """Fields, values, keys and bytes of an event hold no secret; a value keeps its structure."""
    event = StepRequested(
        step=1,
        tool="t",
        effects=Effects.PURE,
        arguments=msgspec.Raw(msgspec.json.encode({"a": SECRET, "b": [f"x{SECRET}"], SECRET: 1})),
        call="c" * 24,
        fingerprint="f" * 24,
        key=f"key {SECRET}",
    )
    made = scrubbed(_append(event), _of(key=SECRET)).commit.events[0]
    assert SECRET.encode() not in bytes(made.data)
    scrubbed_event = revive(made)
    assert isinstance(scrubbed_event, StepRequested)
    assert msgspec.json.decode(scrubbed_event.arguments) == {
        "a": {"$secret": "key"},
        "b": ["x<secret:key>"],
        "(secret key)": 1,
    }


def test_clean_events_are_left_alone():
    """An append without a secret is the same object, and one that was scrubbed is the next time."""
    redaction = _of(key=SECRET, pin=re.compile(r"PIN-\d{4}"))
    append = _append(MemoryChanged(files=(), because="why"))
    assert scrubbed(append, redaction) is append
    once = scrubbed(_append(MemoryChanged(files=(), because=f"{SECRET} PIN-0000")), redaction)
    assert scrubbed(once, redaction) is once


def test_a_pattern_spares_what_hansard_generated():
    """A pattern of any long word replaces no id, digest, time or reference of a real event."""
    redaction = _of(token=re.compile(r"[A-Za-z0-9_-]{20,}|\d{4}-\d\d-\d\d"))
    event = StepCompleted(
        step=1,
        result=msgspec.Raw(b'{"$blob":{"sha256":"' + b"a" * 64 + b'","size":3}}'),
        digest="d" * 24,
    )
    append = _append(event)
    assert scrubbed(append, redaction) is append
    when = _append(StepCompleted(step=1, result=msgspec.Raw(b'{"$date":"2026-11-28"}'), digest=""))
    assert scrubbed(when, redaction) is when


@pytest.mark.parametrize("where", ["stream", "actor"])
def test_a_secret_in_an_address_is_refused(where):
    """A secret in a stream's name or an actor is refused, and the error does not repeat it."""
    append = _append(MemoryChanged(files=()), **{where: f"x {SECRET}"})
    with pytest.raises(BadValue, match="secret") as refusal:
        scrubbed(append, _of(key=SECRET))
    assert SECRET not in str(refusal.value)


def test_an_error_shows_no_half_of_a_secret():
    """The quoted text is truncated before secrets are searched in it."""
    redaction = _of(key=SECRET)
    with pytest.raises(BadValue) as refusal, redaction.in_errors():
        raise BadValue("key", f"{'x' + SECRET!r:.14}", "give a number")
    assert SECRET[:7] not in str(refusal.value)
    assert "<secret:key>" in str(refusal.value)
