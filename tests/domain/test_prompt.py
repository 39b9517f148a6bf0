"""Rules of prompts: versions, parents, aliases, retirement, and filling in variables."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.domain import prompt
from hansard.domain.errors import BadName, BadValue, Refused
from hansard.domain.prompt import (
    PromptAliased,
    PromptConflict,
    PromptFeedbackGiven,
    PromptRetired,
    PromptText,
    PromptVersionAdded,
    digest_of,
    filled_in,
    looks_up,
    resolve,
    split,
    variables,
)
from hansard.domain.steps import NULL, PromptUse
from hansard.testing import Decider, decider
from tests.domain import strategies


def draft(text: str, *parents: int, **fields) -> PromptVersionAdded:
    """Return a version to add."""
    return PromptVersionAdded(version=0, text=text, digest="", parents=parents, **fields)


def added(version: int, text: str, *parents: int, **fields) -> PromptVersionAdded:
    """Return a version's event."""
    digest = digest_of(text, fields.get("model", ""), fields.get("parameters", NULL))
    return PromptVersionAdded(version=version, text=text, digest=digest, parents=parents, **fields)


def a_prompt() -> Decider:
    """Return the prompt's decider."""
    return decider(prompt.initial, prompt.fold, prompt.decide)


first, second = added(1, "a {x}"), added(2, "b {x}", 1)
production = PromptAliased(alias="production", version=1)


def test_versions_are_numbered_and_have_a_parent():
    """A version has the next number; its default parent is the newest; a merge has two."""
    a_prompt().when(draft("a {x}")).then(first)
    a_prompt().given(first).when(draft("b {x}")).then(second)
    a_prompt().given(first, second).when(draft("c", 1, 2)).then(added(3, "c", 1, 2))
    a_prompt().given(first).when(draft("c", 2)).then_raises(Refused, saying="no version 2")
    three = a_prompt().given(first, second).when(draft("c", 1, 2, 3))
    three.then_raises(BadValue, saying="up to 2")


def test_what_changes_nothing_makes_no_version():
    """A text equal to a parent's makes no version; a changed model or parameter does."""
    a_prompt().given(first).when(draft("a {x}")).then()
    a_prompt().given(first, second).when(draft("b {x}", 1)).then()
    a_prompt().given(first, second).when(draft("b {x}", 1, 2)).then()
    a_prompt().given(first, second).when(draft("a {x}")).then()
    a_prompt().given(first, second).when(draft("a {x}", 2)).then(added(3, "a {x}", 2))
    cooler = added(2, "a {x}", 1, parameters=msgspec.Raw(b'{"t":0}'))
    a_prompt().given(first).when(draft("a {x}", parameters=cooler.parameters)).then(cooler)


def test_what_is_retired_is_named_by_no_alias():
    """An aliased version cannot be retired, nor a retired one aliased; repeating adds nothing."""
    retired = PromptRetired(version=1, because="old")
    a_prompt().given(first).when(retired).then(retired)
    a_prompt().given(first, retired).when(retired).then()
    named = a_prompt().given(first, production).when(retired)
    named.then_raises(Refused, saying="alias 'production' names")
    story = a_prompt().given(first, retired).when(production)
    story.then_raises(Refused, saying="version 1 is retired (old)")


@pytest.mark.parametrize("rating", [-0.1, 1.1, float("nan")])
def test_a_rating_is_between_0_and_1(rating):
    """Feedback without a text has one."""
    story = a_prompt().given(first).when(PromptFeedbackGiven(version=1, rating=rating))
    story.then_raises(BadValue, saying="give 0 (not at all) to 1 (fully)")
    feedback = PromptFeedbackGiven(version=1, rating=0.5)
    a_prompt().given(first).when(feedback).then(feedback)
    nothing = a_prompt().given(first).when(PromptFeedbackGiven(version=1))
    nothing.then_raises(BadValue, saying="neither a text nor a rating")


def test_a_huge_text_is_refused():
    """By its bytes as they would be stored, with the remedy."""
    prompt.decide(prompt.initial(), draft("x" * (prompt.TEXT_BYTES_MAX - 2)))
    for text in ("x" * prompt.TEXT_BYTES_MAX, "\x01" * 20_000):
        with pytest.raises(BadValue, match="of at most 65,536; pass long parts as a variable"):
            prompt.decide(prompt.initial(), draft(text))


def test_references():
    """A reference is a version, an alias, or the newest active one; any other is an error."""
    state = prompt.fold(prompt.initial(), [first, second, production, PromptRetired(version=2)])
    assert [resolve(state, which) for which in ("1", "2", "production", "")] == [1, 2, 1, 1]
    with pytest.raises(Refused, match="no alias 'prod': did you mean 'production'"):
        resolve(state, "prod")
    assert split("rag@3") == ("rag", "3")
    assert split("a/b c") == ("a/b c", "")
    for wrong in ("@3", "rag@", "rag@a@b", "", " rag", None, "rag@ x", "a\nb"):
        with pytest.raises(BadName):
            split(wrong)
    assert looks_up("rag@3")
    assert not any(looks_up(text) for text in ("be exact", "rag", "mail a@b.c today", ""))


# ---------------------------------------------------------------- texts

TEXT = 'Say {x} and {y}, {x}: {"a": {"b": 1}} {{z}} {0} {} {x.y} {'


def test_variables_are_names_in_braces_and_nothing_else():
    """JSON is unchanged; doubled braces are literal; values are not parsed."""
    assert variables(TEXT) == ("x", "y")
    filled = filled_in(TEXT, {"x": "{y}", "y": 1.5})
    assert filled == 'Say {y} and 1.5, {y}: {"a": {"b": 1}} {z} {0} {} {x.y} {'


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"x": "1"}, "variable 'y': it is not given; give y=: its variables are x and y"),
        ({"x": "1", "y": "2", "yy": "3"}, "variable 'yy': the prompt does not have it; did you"),
        ({"x": [1], "y": "2"}, r"variable 'x': a list, \[1\]; give a text or a number"),
        ({"x": True, "y": "2"}, "variable 'x': a bool"),
    ],
)
def test_variables_that_are_missing_or_too_many(values, message):
    """Each is an error with the fact and the remedy."""
    with pytest.raises(BadValue, match=message):
        filled_in(TEXT, values)


@given(st.text(), st.text())
def test_a_text_without_variables_is_returned_unchanged(before, value):
    """Whatever is in it; and a value is put in as it is."""
    text = before.replace("{", "(")
    assert filled_in(text, {}) == text
    assert filled_in(text + "{x}", {"x": value}) == text + value


def test_texts_are_collected_from_anywhere_in_a_call():
    """In lists, mappings and records, each once; a text that is made of one is no prompt."""
    use = PromptUse("rag", 3, "production")
    text = PromptText("hi", use)

    class Note(msgspec.Struct):
        body: str

    arguments = {
        "messages": [{"content": text}, Note(text)],
        "n": (1, None, text, b"x", text + "!"),
    }
    assert prompt.uses(prompt.texts_in(arguments)) == (use,)
    assert type(text + "!") is str
    other = PromptUse("style", 1)
    assert prompt.uses(prompt.texts_in({"x": text}), [other, use]) == (other, use)
    assert prompt.uses(prompt.texts_in({"x": "hi"})) == ()


@given(st.lists(strategies.prompt_commands, max_size=12))
def test_a_command_that_was_taken_is_no_news(commands):
    """An accepted command adds no event when repeated, except for feedback."""
    state = prompt.initial()
    for command in commands:
        try:
            events = prompt.decide(state, command)
        except (Refused, PromptConflict):
            continue
        state = prompt.fold(state, events)
        if events and not isinstance(command, PromptFeedbackGiven):
            again = command
            if isinstance(command, PromptVersionAdded):
                again = msgspec.structs.replace(
                    command, parents=state.versions[max(state.versions)].parents
                )
                if not again.parents:
                    continue
            assert prompt.decide(state, again) == ()
        assert set(state.aliases.values()).isdisjoint(state.retired)
        assert sorted(state.versions) == list(range(1, len(state.versions) + 1))
