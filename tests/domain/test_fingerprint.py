"""Fingerprints: the RFC 8785 form, with the `rfc8785` package as oracle, and distinct calls."""

import json
import struct

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from hansard.domain.fingerprint import (
    call_base,
    call_key,
    canonical,
    digest,
    fingerprint,
    joined,
    number,
)
from tests.domain import strategies


@pytest.mark.slow
@settings(max_examples=max(100, settings().max_examples))
@given(strategies.json_values)
def test_the_canonical_form_is_that_of_rfc_8785(value):
    """Any JSON value (integers within 2^53, as the RFC asks) has the oracle's bytes."""
    assert canonical(value) == rfc8785.dumps(value)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 9)))
def test_keys_are_sorted_by_utf_16(value):
    """Key order is that of UTF-16 code units, which differs from code points beyond U+FFFF."""
    assert canonical(value) == rfc8785.dumps(value)


def test_where_utf_16_and_code_points_disagree():
    """The case the RFC warns of, by name: an emoji sorts before U+FB33."""
    assert list(json.loads(canonical({"\ufb33": 1, "\U0001f600": 2}))) == ["\U0001f600", "\ufb33"]


doubles = st.integers(0, 2**64 - 1).map(
    lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0]
)
finite = doubles.filter(lambda value: value - value == 0)


@settings(max_examples=max(200, settings().max_examples))
@given(st.one_of(finite, st.floats(allow_nan=False, allow_infinity=False)))
def test_numbers_are_written_as_ecmascript_does(value):
    """Doubles of every bit pattern are written as the oracle writes them."""
    assert number(value) == rfc8785.dumps(value).decode()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (-1.5, "-1.5"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.5e21, "1.5e+21"),
        (123456789012345680000.0, "123456789012345680000"),
        (0.000001, "0.000001"),
        (0.0000001, "1e-7"),
        (1.25e-7, "1.25e-7"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (0.1 + 0.2, "0.30000000000000004"),
        (333333333.33333329, "333333333.3333333"),
    ],
)
def test_the_borders_of_the_number_format(value, text):
    """The switches between plain and exponent form are where ECMA-262 puts them."""
    assert number(value) == text


@given(strategies.json_values)
def test_the_canonical_form_is_a_fixed_point(value):
    """The canonical form of a parsed canonical form is the same bytes."""
    assert canonical(json.loads(canonical(value))) == canonical(value)


@pytest.mark.parametrize("value", [b"x", {1}, object(), ("a",)])
def test_only_plain_values_have_a_canonical_form(value):
    """A value that JSON lacks has no canonical form: it must be tagged first."""
    with pytest.raises(TypeError):
        canonical([1.5, value])


@given(st.lists(st.binary(max_size=4), max_size=4), st.lists(st.binary(max_size=4), max_size=4))
def test_the_borders_of_parts_count(one, other):
    """Equal digests mean equal parts: moving a byte over a border is another digest."""
    assert (digest(*one) == digest(*other)) == (one == other)


def test_a_digest_is_24_characters_of_base64url():
    """144 bits: short enough for every step, long enough never to meet by chance."""
    assert len(digest(b"x")) == 24
    assert set(digest(b"x")) <= set(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    )


def test_digests_never_change():
    """A digest is in the record for ever: these bytes are the storage format."""
    assert digest(b"a", b"") == "xIVeqTfZvGcqGPGiMY_W3H3U"
    assert call_base("t", "1", "ada", "", b"{}") == "QXQvd2bzOwcQkSP7ve0V82IJ"


def test_each_part_of_a_call_makes_it_another_call():
    """Tool, version, agent, scope, arguments, occurrence and predecessor distinguish calls."""
    base = ("tool", "v", "agent", "scope", b"{}")
    others = [
        ("tool2", "v", "agent", "scope", b"{}"),
        ("tool", "v2", "agent", "scope", b"{}"),
        ("tool", "v", "agent2", "scope", b"{}"),
        ("tool", "v", "agent", "scope2", b"{}"),
        ("tool", "v", "agent", "scope", b"[]"),
    ]
    keys = {call_key(call_base(*parts), 0) for parts in (base, *others)}
    keys |= {call_key(call_base(*base), 1), fingerprint(call_key(call_base(*base), 0), "head")}
    keys.add(fingerprint(call_key(call_base(*base), 0), "other head"))
    assert len(keys) == len(others) + 4


def test_joining_keeps_the_spawn_order():
    """Heads joined in another order are another head."""
    assert joined("h", ["a", "b"]) != joined("h", ["b", "a"])
    assert joined("h", ["a", "b"]) != joined("h", ["ab"])
    assert joined("h", []) != "h"
