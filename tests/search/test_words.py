"""Indexed words of an event, and words of a query."""

import json
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.projections.errors import BadQuery
from hansard.projections.full_text import (
    BEGIN,
    BESIDE_CHARACTERS_MAX,
    END,
    QUERY_CHARACTERS_MAX,
    WORDS_MAX,
    cleaned,
    quoted,
    raw,
    snippet,
    text_of,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def index(*documents: str) -> sqlite3.Connection:
    """Return an index of texts."""
    con = sqlite3.connect(":memory:")
    con.execute("CREATE VIRTUAL TABLE t USING fts5(text, tokenize='unicode61 remove_diacritics 2')")
    con.executemany("INSERT INTO t VALUES (?)", [(each,) for each in documents])
    return con


def strings(value: object) -> list[str]:
    """Return the keys and texts of a JSON value, in order."""
    match value:
        case dict():
            return [each for key, member in value.items() for each in (key, *strings(member))]
        case list():
            return [each for member in value for each in strings(member)]
        case str():
            return [value]
        case _:
            return []


@given(json_values, st.booleans())
def test_every_text_and_key_is_there_and_nothing_else(value, compact):
    """In their order, whatever the JSON; no syntax, no numbers, no words for true and null."""
    data = json.dumps(value, ensure_ascii=compact, separators=(",", ":") if compact else None)
    indexed = text_of(data)
    letters = "".join(char for text in strings(value) for char in cleaned(text) if char.isalnum())
    assert "".join(char for char in indexed if char.isalnum()) == letters


@given(st.lists(texts, min_size=1, max_size=5))
def test_a_quoted_query_is_no_syntax(words):
    """A quoted query never fails, and finds the text equal to it."""
    query = " ".join(words)
    con = index(text_of(json.dumps(query)))
    try:
        match = quoted(query)
    except BadQuery:
        assert not any(char.isalnum() for char in query)
        return
    [[count]] = con.execute("SELECT count(*) FROM t WHERE t MATCH ?", [match]).fetchall()
    is_old = any(char.isascii() and char.isalnum() for char in query)  # SQLite's Unicode is older
    assert count == 1 or not is_old


@pytest.mark.parametrize(
    ("text", "query", "hit"),
    [
        ("Please refund order #W2378156.", "refund w2378156", True),
        ("Please refund order #W2378156.", '"refund order"', True),
        ("Please refund order #W2378156.", '"order refund"', False),
        ("Please refund order #W2378156.", "order refund", True),
        ("a NEAR miss", "NEAR(", True),
        ("one AND two OR three NOT four", "three NOT four AND", True),
        ("run: text: col", "text:col", True),
        ("column {run} : x", "{run} : x", True),
        ("ends*", "ends* ^ - +", True),
        ("x@example.org", "x@example.org", True),
        ("café déjà vu", "cafe DEJA", True),
        ("ÜBER Straße", "über straße", True),
        ("お客様の注文を返金しました", "返金", True),
        ("お客様の注文を返金しました", "金返", False),
        ("Python で注文W23を", "注文W23", True),
        ("환불해 주세요", "환불", True),
        ("Привет, мир", "привет", True),
        ("a\x00b", "a\x00b", True),
        ("zero\u200bwidth", "width", True),
        ('quote " inside', 'quote"', True),
        ('it says ""', '"" says', True),
        ("👍 great", "👍 great", True),
        ("\ud800 half", "half", True),
    ],
)
def test_what_a_query_matches(text, query, hit):
    """Words in any order, phrases in theirs, any script, no operator."""
    rows = index(text_of(json.dumps(text))).execute(
        "SELECT count(*) FROM t WHERE t MATCH ?", [quoted(query)]
    )
    assert rows.fetchone()[0] == int(hit)


@pytest.mark.parametrize(
    "query", ["", "   ", "\x00", "*", "&& || ()", '"', '""', "…", "\u200b", "\ufdd0"]
)
def test_no_word_is_an_error(query):
    """A query without a word is an error, not an empty result."""
    with pytest.raises(BadQuery, match="there is no word in"):
        quoted(query)


@pytest.mark.parametrize("how", [quoted, raw])
def test_a_question_is_bounded(how):
    """A query of a megabyte is refused before the search."""
    with pytest.raises(BadQuery, match=f"at most {QUERY_CHARACTERS_MAX:,}"):
        how("x" * 1_000_000)


def test_words_are_bounded():
    """As many words as allowed are searched, one more is an error."""
    most = " ".join(f"w{n}" for n in range(WORDS_MAX))
    con = index(most)
    assert con.execute("SELECT count(*) FROM t WHERE t MATCH ?", [quoted(most)]).fetchone() == (1,)
    with pytest.raises(BadQuery, match="201 words"):
        quoted(most + " w")


@pytest.mark.parametrize("query", ["*reads", "  *id", "", "\x00"])
def test_commands_of_the_index_are_refused(query):
    """A command of FTS5 itself is never passed to the index."""
    with pytest.raises(BadQuery, match="has no terms"):
        raw(query)


def test_a_deep_or_damaged_payload_is_indexed():
    """No depth of nesting and no bad escape keeps a text out."""
    deep = "[" * 100_000 + '"needle"' + "]" * 100_000
    assert text_of(deep) == "needle; "
    assert text_of(r'{"a":"\q needle"}') == r"a: \q needle; "


def test_a_snippet_tells_where_its_matches_are():
    """Marks are offsets into the text; long parts are cut beside and inside matches."""
    excerpt = snippet(f"…a {BEGIN}漢\u200b字{END} b {BEGIN}{'x' * 5_000}{END}{'y' * 5_000}")
    assert [excerpt.text[a:b] for a, b in excerpt.marks] == ["漢字", "x" * BESIDE_CHARACTERS_MAX]
    assert excerpt.text.startswith("…a 漢字 b xxx")
    assert len(excerpt.text) < 4 * BESIDE_CHARACTERS_MAX
    assert snippet("plain").marks == []
