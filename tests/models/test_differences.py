"""The nearest recorded request, field by field, and rules for volatile fields."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.domain.errors import BadValue
from hansard.domain.steps import PromptUse
from hansard.ext.models.calibration import Proposal, checked_rule, proposals, read_rules
from hansard.ext.models.differences import Difference, differences, nearest
from hansard.ext.models.messages import Conversation, PromptMatcher
from hansard.ext.models.providers import Facts, Message, Operation, identity_of

CHAT = Operation("openai", "chat.completions")


def asking(text, **more):
    """Return a request with one message."""
    return {"model": "m", "messages": [{"role": "user", "content": text}], **more}


def test_a_miss_names_the_fields_that_differ():
    """The nearest request differs least; long texts show the place where they differ."""
    long = "The same beginning of a long text. " * 4
    recorded = [(3, asking("other", seed=1)), (5, asking(long + "Monday")), (7, asking("third"))]
    near = nearest(asking(long + "Tuesday", seed=2), recorded)
    assert near is not None
    assert near.step == 5
    assert [each.field for each in near.fields] == ["/messages/0/content", "/seed"]
    text = str(near)
    assert 'Monday"' in text
    assert 'Tuesday"' in text
    assert "recorded: (absent)" in text
    assert max(map(len, text.splitlines())) < 100


def test_a_request_that_was_answered_before_is_named():
    """An equal recorded request answered an earlier call: no field differs."""
    near = nearest(asking("x"), [(3, asking("x"))])
    assert near is not None
    assert near.taken
    assert "answered an earlier one" in str(near)
    assert nearest(asking("x"), []) is None


def test_of_equally_near_requests_one_that_answered_no_call_is_named():
    """A request that differs less is named nevertheless."""
    recorded = [(3, asking("a", seed=1)), (5, asking("b", seed=1)), (7, asking("c"))]
    near = nearest(asking("d", seed=1), recorded, {3})
    assert near is not None
    assert near.step == 5
    assert near.summary == (
        'the nearest recorded request, step 5, differs in /messages/0/content (recorded "b", now '
        '"d")'
    )
    near = nearest(asking("a", seed=2), recorded, {3})
    assert near is not None
    assert near.step == 3


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(VALUES, VALUES)
def test_values_differ_in_no_field_if_they_are_equal(one, other):
    """Without a difference values are equal, types included."""
    fields = list(differences(one, other))
    assert bool(fields) is (repr(sort(one)) != repr(sort(other)))
    assert not list(differences(one, one))


def sort(value):
    """Return a value with the fields of its objects in order."""
    if isinstance(value, dict):
        return {name: sort(value[name]) for name in sorted(value)}
    return [sort(each) for each in value] if isinstance(value, list) else value


def test_fields_that_differ_between_two_runs_are_proposed_as_rules():
    """A proposal is a rule that leaves its field out; texts of prompts have no known form."""
    uuid = "0a1b2c3d-0000-4000-8000-00000000000{}"
    pairs = [
        (CHAT, asking("a", metadata={"run": uuid.format(n)}, user=f"u{n}"),
         asking("a", metadata={"run": uuid.format(n + 1)}, user=f"u{n}"))
        for n in range(3)
    ] + [(CHAT, asking("Hello"), asking("Good day"))]  # fmt: skip
    first, second = proposals(pairs)
    assert first == Proposal(
        "openai.chat.completions/metadata/run",
        3,
        f'"{uuid.format(0)}"',
        f'"{uuid.format(1)}"',
        "a UUID",
    )
    assert (second.rule, second.calls, second.looks) == (
        "openai.chat.completions/messages/*/content", 1, "",
    )  # fmt: skip
    for operation, one, other in pairs[:3]:
        assert identity_of(operation, one, [first.rule]) == identity_of(
            operation, other, [first.rule]
        )


def test_a_file_of_rules_is_checked(tmp_path):
    """Comments and empty lines are no rules; what is no pointer is an error that names it."""
    file = tmp_path / "rules"
    file.write_text("# ids\n/metadata/run\n\nopenai.responses/user  # of the test\n")
    assert read_rules(file) == ("/metadata/run", "openai.responses/user")
    for bad in ("metadata", "/", "a b/c"):
        with pytest.raises(BadValue, match="JSON pointer"):
            checked_rule(bad)


def test_a_difference_in_a_list_names_its_index():
    """Missing items and fields are shown as absent."""
    assert list(differences({"a/b": [1]}, {"a/b": [1, 2]})) == [
        Difference("/a~1b/1", "(absent)", "2")
    ]


# ---------------------------------------------------------------- messages and prompts


def calling(messages, answer):
    """Return the facts of a call."""
    return Facts(
        provider="openai", operation="chat.completions",
        messages_in=tuple(messages), messages_out=tuple(answer),
    )  # fmt: skip


def test_each_message_of_a_conversation_is_new_once():
    """A later request repeats earlier messages, the answer in the client's form; none is new."""
    conversation = Conversation()
    system, user = Message("system", "s"), Message("user", "Ping")
    answer = Message(
        "assistant", "", {"refusal": None, "annotations": [], "tool_calls": [{"id": "1"}]}
    )
    copy = Message("assistant", None, {"tool_calls": [{"id": "1"}], "name": None})
    stated = Message("assistant", "", {"tool_calls": [{"id": "1"}]})
    result = Message("tool", "ok", {"tool_call_id": "1"})
    assert conversation.new(calling([system, user], [answer])) == [system, user, stated]
    assert conversation.new(calling([system, user, copy, result], [])) == [result]
    assert conversation.new(calling([system, user, copy, result, user], [])) == [user]
    assert conversation.new(calling([system, user], [])) == []


def test_a_prompt_is_recognised_word_for_word():
    """A message that is a version's text, with any values of its variables, is that version."""
    matcher = PromptMatcher(
        [
            ("plain", 1, "Be brief."),
            ("rag", 4, "Answer {query} from these {{sources}}: {text}."),
            ("short", 1, "{a}: {b}"),
        ]
    )
    rag = Message("user", "Answer Why? from these {sources}: a {b} c.")
    assert matcher.uses([Message("system", "Be brief."), rag, rag]) == (
        PromptUse(prompt="plain", version=1), PromptUse(prompt="rag", version=4),
    )  # fmt: skip
    for other in ("Be brief. ", "be brief.", "Answer Why? from these sources: x.", "x: y"):
        assert matcher.uses([Message("user", other)]) == ()
    assert matcher.uses([Message("assistant", "Be brief.")]) == ()
