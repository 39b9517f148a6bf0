"""Placeholders in texts: they are found, reveal no value, and are replaced back exactly."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.domain import placeholders
from hansard.domain.errors import BadValue
from hansard.domain.placeholders import DETECTORS, PLACEHOLDER, hidden, put_back, spans

KEY = b"0123456789abcdef"
FINDS = list(DETECTORS.values())


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ada.lovelace+x@mail.example.org", "EMAIL"),
        ("jürgen@bücher.example", "EMAIL"),
        ("+49 (0)30 123456-78", "PHONE"),
        ("030/1234567", "PHONE"),
        ("(555) 123-4567", "PHONE"),
        ("4111 1111 1111 1111", "CARD"),
        ("378282246310005", "CARD"),
        ("DE89 3704 0044 0532 0130 00", "IBAN"),
        ("gb82west12345698765432", "IBAN"),
        ("sk-proj-" + "a1B2" * 8, "KEY"),
        ("ghp_" + "a1" * 18, "KEY"),
        ("AKIAIOSFODNN7EXAMPLE", "KEY"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "KEY"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----", "KEY"),
    ],
)
def test_a_value_is_detected_whole(text, kind):
    """In the middle of a sentence, and nothing around it."""
    whole = f"Ask about «{text}», please."
    assert spans(whole, FINDS) == [(11, 11 + len(text), kind)]


@pytest.mark.parametrize(
    "text",
    [
        "on 2026-11-24 at 10:58:00.123456",
        "4111 1111 1111 1112",  # no check digit
        "DE88370400440532013000",  # the same
        "user@localhost and @handle",
        "version 1.2.3, 0.5, 12345678",
        "password policies are strict",
        "018f3c5e-7c1b-7a0e-9d2f-0123456789ab",
    ],
)
def test_what_is_none_is_left_alone(text):
    """Dates, numbers without their check digits, handles, versions, ids."""
    assert spans(text, FINDS) == []


def test_what_is_assigned_to_a_secret_name_is_a_key():
    """The value, not the name."""
    made, kinds = hidden('{"api_key": "hunter2hunter2"}', KEY, FINDS, {})
    assert kinds == ["KEY"]
    assert made.startswith('{"api_key": "<KEY_')


def test_equal_values_have_equal_placeholders_under_one_key_alone():
    """A model can match equal values, but nobody without the key can."""
    first, _ = hidden("a@b.co a@b.co c@d.co", KEY, FINDS, {})
    one, two, three = first.split()
    assert one == two != three
    assert hidden("a@b.co", b"f" * 16, FINDS, {})[0] != one


def test_two_values_never_share_a_placeholder():
    """When the digests of two values collide, the second gets another placeholder."""
    known = {placeholders.placeholder(KEY, "EMAIL", "a@b.co", {}): "other"}
    made, _ = hidden("a@b.co", KEY, FINDS, known)
    assert len(known) == 2
    assert put_back(made, known) == "a@b.co"


@pytest.mark.parametrize("span", [(0, 99, "X"), (2, 1, "X"), (0, 1, "small"), (-1, 1, "X")])
def test_a_detector_that_gives_no_part_of_the_text_is_refused(span):
    """The error has the returned span."""
    with pytest.raises(BadValue, match="detector"):
        spans("text", [lambda _: [span]])


_VALUES = st.sampled_from(
    ["ada@example.org", "+49 30 12345678", "4111111111111111", "DE89370400440532013000", "@", "<"]
)
_LIKE = st.just("<EMAIL_0123456789ab>")
_TEXT = st.lists(st.one_of(_VALUES, _LIKE, st.text(max_size=8)), max_size=8).map("".join)


@given(_TEXT)
def test_the_round_trip_is_exact_and_leaves_no_detected_value(text):
    """The round trip holds for any text, including one that resembles a placeholder."""
    known: dict[str, str] = {}
    made, kinds = hidden(text, KEY, FINDS, known)
    assert put_back(made, known) == text
    for begin, end, _ in spans(text, FINDS):
        assert text[begin:end] not in made or text[begin:end] in PLACEHOLDER.sub("", text)
    assert len(kinds) == len(PLACEHOLDER.findall(made))


@given(st.text(alphabet="a@.b0+ -", max_size=3_000))
def test_detectors_take_linear_time(text):
    """No input makes the detectors backtrack."""
    began = time.process_time()
    places = spans(text * 3, FINDS)
    assert time.process_time() - began < 2
    assert places == sorted(places)
