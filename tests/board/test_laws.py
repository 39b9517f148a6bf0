"""Laws of a key: commuting writes, protection by version, and existence."""

import copy
import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.domain import board
from hansard.domain.board import (
    INLINE_BYTES_MAX,
    ITEMS_MAX,
    LABELS_MAX,
    TTL_MS_MAX,
    AmountAdded,
    BoardConflict,
    BoardState,
    ItemAppended,
    ItemDiscarded,
    ItemIncluded,
    KeyChecked,
    KeyRemoved,
    ValueMerged,
    ValuePut,
    decide,
)
from hansard.domain.conversation import RunJoined
from hansard.domain.decider import By, fold
from hansard.domain.errors import BadName, BadValue, Refused
from hansard.domain.fingerprint import canonical
from hansard.domain.values import SAFE_INT, dump
from tests.domain.strategies import json_values, scalars, text

ROLE = "writer"
objects = st.dictionaries(
    st.sampled_from("abc"),
    st.recursive(
        scalars,
        lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=3,
)
numbers = st.integers(-SAFE_INT, SAFE_INT) | st.floats(allow_nan=False, allow_infinity=False)
ints = st.integers(-SAFE_INT, SAFE_INT)


def _merged(name, values):
    return [ValueMerged(merge=name, value=dump(value), role=ROLE) for value in values]


commuting = st.one_of(
    st.lists(ints.map(lambda n: AmountAdded(amount=n, role=ROLE)), max_size=6),
    st.lists(json_values.map(lambda v: ItemIncluded(item=dump(v), role=ROLE)), max_size=6),
    st.lists(text.map(lambda v: ItemDiscarded(item=dump(v), role=ROLE)), max_size=6),
    st.sampled_from(["max", "min"]).flatmap(
        lambda name: (st.lists(numbers, max_size=6) | st.lists(text, max_size=6)).map(
            lambda values: _merged(name, values)
        )
    ),
    st.lists(objects, max_size=6).map(lambda values: _merged("union", values)),
)
"""Writes of one kind that carry no expectation and whose order must not matter."""

writes = st.one_of(
    st.builds(
        ValuePut,
        value=json_values.map(dump),
        role=st.just(ROLE),
        ttl_ms=st.none() | st.integers(1, 100),
        expected=st.none() | st.integers(0, 6),
    ),
    json_values.map(lambda v: ItemAppended(item=dump(v), role=ROLE)),
    ints.map(lambda n: AmountAdded(amount=n, role=ROLE)),
    st.sampled_from("ab").map(lambda v: ItemIncluded(item=dump(v), role=ROLE)),
    st.sampled_from("ab").map(lambda v: ItemDiscarded(item=dump(v), role=ROLE)),
    objects.map(lambda v: _merged("union", [v])[0]),
    st.builds(KeyRemoved, role=st.just(ROLE), expected=st.none() | st.integers(0, 6)),
    st.integers(0, 6).map(lambda n: KeyChecked(role=ROLE, expected=n)),
)
"""Any write to one key."""

MS = 1_000_000


def _history(commands):
    """Return the states and events of a list of writes, 10 ms of the log's time apart."""
    state, history = BoardState(), []
    for n, write in enumerate(commands):
        try:
            events = decide("k", state, write, n * 10 * MS)
        except (BoardConflict, Refused, BadValue):
            continue
        by = By(f"a{n % 3}", n * 10 * MS, f"e{n}")
        history += [(event, by) for event in events]
        state = fold(state, events, by)
    return state, history


@given(commuting, st.data())
def test_what_commutes_gives_equal_states_in_any_order(events, data):
    """Adds, includes, discards and merges of one kind: every order leads to one state."""
    start = fold(BoardState(), [ItemIncluded(item=dump(v), role=ROLE) for v in ("a", "b")])
    begin = start if any(isinstance(event, ItemDiscarded) for event in events) else BoardState()
    other = data.draw(st.permutations(events))
    assert fold(begin, events) == fold(begin, other)


@given(objects, objects, objects)
def test_union_is_a_join(one, two, three):
    """Union is commutative and associative, and a value joined twice counts once."""

    def union(a, b):
        return board.joined("union", a, b)

    def same(a, b):
        return canonical(a) == canonical(b)

    assert same(union(one, two), union(two, one))
    assert same(union(union(one, two), three), union(one, union(two, three)))
    assert same(union(one, one), one)


@given(st.lists(writes, max_size=25), st.data())
def test_folding_leaves_its_argument_unchanged(commands, data):
    """At each k the fold of the first k events is the state that was, and none changes later."""
    _, history = _history(commands)
    cut = data.draw(st.integers(0, len(history)))
    before = BoardState()
    for event, by in history[:cut]:
        before = fold(before, [event], by)
    kept = copy.deepcopy(before)
    after = before
    for event, by in history[cut:]:
        after = fold(after, [event], by)
    assert before == kept
    assert (before.version, after.version) == (cut, len(history))


@given(st.lists(writes, max_size=25))
def test_what_is_there_has_the_version_of_the_event_that_changed_it(commands):
    """A key's version is that of its last change, or 0; any other expectation is refused."""
    state, history = _history(commands)
    now = len(commands) * 10 * MS
    changes = [n for n, (event, _) in enumerate(history, 1) if not isinstance(event, KeyChecked)]
    version = state.version_at(now)
    assert version in (0, *changes[-1:])
    assert (version == 0) == state.absent(now)
    for expected in range(len(history) + 2):
        check = KeyChecked(role=ROLE, expected=expected)
        if expected == version:
            assert decide("k", state, check, now) == (check,)
        else:
            with pytest.raises(BoardConflict):
                decide("k", state, check, now)


@given(st.lists(writes, max_size=25))
def test_a_kind_is_fixed_until_the_key_is_removed_or_expires(commands):
    """Two events of different kinds have a removal or an expiry between them."""
    _, history = _history(commands)
    state = BoardState()
    for event, by in history:
        before, absent = state.kind, state.absent(by.stamp)
        state = fold(state, [event], by)
        if before is not None and state.kind is not None and before is not state.kind:
            assert absent
            assert isinstance(event, ValuePut) or event.anew


@given(json_values, st.integers(1, TTL_MS_MAX), st.integers(0, 10**18))
def test_a_put_is_there_until_its_time_and_not_at_it(value, ttl_ms, stamp):
    """With time to live L it is absent from T + L on, and counts as never put."""
    put = ValuePut(value=dump(value), role=ROLE, ttl_ms=ttl_ms)
    state = fold(BoardState(), [put], By("ada", stamp, "e"))
    end = stamp + ttl_ms * MS
    assert (state.version_at(end - 1), state.version_at(end)) == (1, 0)
    add = AmountAdded(amount=3, role=ROLE)
    with pytest.raises(Refused, match="holds a value, not a counter"):
        decide("k", state, add, end - 1)
    [addition] = decide("k", state, add, end)
    after = fold(state, [addition], By("bob", end, "f"))
    assert (after.plain, after.version_at(end), after.expires) == (3, 2, None)


@pytest.mark.slow
@given(st.lists(writes, max_size=25))
def test_a_key_restored_from_what_it_holds_goes_on_alike(commands):
    """`restored` gives a state that holds the same and takes further writes alike."""
    state, _ = _history(commands)
    if state.kind is None:
        return
    again = board.restored(state.kind, state.plain, state.changed)
    assert canonical(again.plain) == canonical(state.plain)
    assert again.size == state.size
    remove = KeyRemoved(role=ROLE, expected=state.changed)
    assert decide("k", again, remove, 0) == (remove,)


def test_a_conflict_names_everything():
    """The refusal has the key, both versions, both values cut short, author and event."""
    theirs = fold(BoardState(), [ValuePut(value=dump("x" * 500), role=ROLE)], By("bob", 0, "e7"))
    mine = ValuePut(value=dump([1, 2]), role=ROLE, expected=0)
    with pytest.raises(BoardConflict, match=r"key 'k' is at version 1, not 0") as conflict:
        decide("k", theirs, mine, 0)
    error = conflict.value
    assert (error.key, error.expected, error.found) == ("k", 0, 1)
    assert (error.mine, error.author, error.event) == ("[1,2]", "bob", "e7")
    assert error.theirs.startswith('"xxx')
    assert len(error.theirs) < 200
    absent = KeyRemoved(role=ROLE, expected=4)
    with pytest.raises(BoardConflict, match="at version 0, not 4: it holds nothing"):
        decide("k", BoardState(), absent, 0)


def test_nothing_new_is_no_event():
    """An unchanged value is not written again."""
    state = fold(BoardState(), [ItemIncluded(item=dump("a"), role=ROLE)])
    largest = fold(BoardState(), _merged("max", [5]))
    assert decide("k", state, ItemIncluded(item=dump("a"), role=ROLE), 0) == ()
    assert decide("k", state, ItemDiscarded(item=dump("b"), role=ROLE), 0) == ()
    assert decide("k", largest, _merged("max", [4])[0], 0) == ()
    assert decide("k", BoardState(), KeyRemoved(role=ROLE), 0) == ()


_ONE = dump(1)


@pytest.mark.parametrize(
    ("state", "command", "words"),
    [
        (BoardState(), ValuePut(value=_ONE, role=ROLE, ttl_ms=0), "time to live of 0 ms"),
        (BoardState(), ValuePut(value=_ONE, role=ROLE, ttl_ms=TTL_MS_MAX + 1), "ten years"),
        (
            BoardState(),
            ValuePut(value=_ONE, role=ROLE, labels={str(n): "" for n in range(LABELS_MAX + 1)}),
            "33 labels",
        ),
        (BoardState(), ValuePut(value=_ONE, role=ROLE, labels={"a": "x" * 201}), "1 labels"),
        (
            BoardState(),
            ValuePut(value=dump("x" * INLINE_BYTES_MAX), role=ROLE),
            "use several keys, or hand values over by reference",
        ),
        (
            BoardState(kind=board.KeyKind.LIST, items=[_ONE] * ITEMS_MAX, changed=1),
            ItemAppended(item=_ONE, role=ROLE),
            "10,001 items, the limit is 10,000",
        ),
        (BoardState(), AmountAdded(amount=2**60, role=ROLE), "add less than"),
        (BoardState(), _merged("max", [True])[0], "give a number"),
        (BoardState(), _merged("union", [[1]])[0], "give a dict"),
        (BoardState(), _merged("sum", [1])[0], "use max, min, union"),
        (fold(BoardState(), _merged("min", [1])), _merged("min", ["a"])[0], "cannot be compared"),
    ],
)
def test_what_is_too_much_is_refused_with_its_bound(state, command, words):
    """Each bound has an error with the fact and the limit; no event is made."""
    with pytest.raises(BadValue, match=words):
        decide("k", state, command, 0)


def test_a_kind_is_not_written_as_another():
    """Each kind's write to a key of another kind is refused, with the remedy."""
    firsts = [
        ValuePut(value=_ONE, role=ROLE),
        ItemAppended(item=_ONE, role=ROLE),
        AmountAdded(amount=1, role=ROLE),
        ItemIncluded(item=_ONE, role=ROLE),
        *(_merged(name, [1 if name != "union" else {}])[0] for name in board.NAMES),
    ]
    for one, other in itertools.permutations(firsts, 2):
        with pytest.raises(Refused, match="remove it first, or use another key"):
            decide("k", fold(BoardState(), [one]), other, 0)


def test_a_key_of_a_budget_is_refused():
    """Budgets are kept under keys of their own, which no agent may write."""
    with pytest.raises(BadName, match="hold the run's budgets"):
        board.key_name("budget calls")
    assert board.key_name("budgets") == "budgets"


def test_an_event_of_another_aggregate_is_refused():
    """An event that does not belong to a board stops the fold and is named."""
    with pytest.raises(Refused, match=r"conversation\.run_joined\.v1"):
        fold(BoardState(), [RunJoined(run="r")])


def test_a_counter_is_exact_beyond_what_json_keeps():
    """A counter over 2**53 keeps every digit."""
    state = fold(BoardState(), [AmountAdded(amount=SAFE_INT, role=ROLE)] * 3)
    assert state.plain == {"$int": str(3 * SAFE_INT)}
    assert msgspec.json.decode(canonical(state.plain)) == state.plain


def test_what_is_compared_is_recorded_in_one_form():
    """Equal items and numbers are equal texts in the record: 1.0 is 1, keys are in order."""
    include = ItemIncluded(item=msgspec.Raw(b'{"b":1.0,"a":2}'), role=ROLE)
    events = decide("k", BoardState(), include, 0)
    assert events == (ItemIncluded(item=msgspec.Raw(b'{"a":2,"b":1}'), role=ROLE),)
    most = ValueMerged(merge="max", value=msgspec.Raw(b"1.0"), role=ROLE)
    events = decide("k", BoardState(), most, 0)
    assert events == (ValueMerged(merge="max", value=msgspec.Raw(b"1"), role=ROLE),)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [("sum", 1, "use max, min, union"), ("max", [1], "give a number"), ("max", "a", "compared")],
)
def test_a_merge_that_none_decides_stops_the_fold(name, value, words):
    """A foreign record whose values cannot be merged is a named Hansard error."""
    begin = fold(BoardState(), _merged("max", [3]))
    with pytest.raises(BadValue, match=words):
        fold(begin, _merged(name, [value]))
