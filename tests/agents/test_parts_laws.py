"""Laws of values stored in parts: read back unchanged at every point; damage is reported."""

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hansard.agents.steps import payloads
from hansard.agents.steps.payloads import Learned, Shared
from hansard.bus.commits import record
from hansard.bus.reads import RunInFull
from hansard.domain import agent, payload
from hansard.domain.agent import AgentState
from hansard.domain.decider import evolve
from hansard.domain.errors import Corrupt
from hansard.domain.events import Actor, Commit
from hansard.domain.ids import AgentStream
from hansard.domain.payload import PartsLine
from hansard.domain.steps import Effects, StepCompleted, StepRequested
from tests.conftest import THOROUGH

GOLDEN = Path(__file__).parents[1] / "golden" / "events"
ADA = AgentStream("r", "writer", "ada")
WORDS = [
    "ask", "the", "same", "question", "again", "über", "日本", "\U0001f600", '"quoted"', "a\\b\n",
]  # fmt: skip

VALUE_CHARACTERS_MAX = 8_000
"""Largest value that others are made of, in characters."""


class WrittenSteps:
    """Steps of an agent, written one after the other, as a session writes them."""

    def __init__(self) -> None:
        self.state = agent.AgentState()
        self.shared = Shared()
        self.events: list[Any] = []
        self.blobs: dict[str, bytes] = {}
        self.pairs: list[tuple[dict[str, Any], Any]] = []

    def step(self, arguments: dict[str, Any], result: Any) -> None:
        """Write a step with arguments and a result."""
        number = len(self.pairs) + 1
        self.pairs.append((arguments, result))
        packed = payloads.pack_arguments(arguments, "tool", self.shared)
        self._tell(
            StepRequested(
                step=number,
                tool="tool",
                effects=Effects.PURE,
                arguments=packed.raw,
                call=f"c{number}",
                fingerprint=f"f{number}",
            ),
            packed,
        )
        gave = payloads.pack(result, "result", "tool", self.shared)
        self._tell(StepCompleted(step=number, result=gave.raw, digest="d"), gave)
        self.shared.learn(number, [*packed.learned, *gave.learned])

    def _tell(self, event: Any, packed: payloads.Packed) -> None:
        self.blobs.update({hashlib.sha256(blob).hexdigest(): blob for blob in packed.blobs})
        evolve(self.state, event)
        self.events.append(event)

    def resume(self) -> None:
        """Forget the shared texts, and load them from the record."""
        self.shared = Shared()
        reader = payloads.Reader(lambda: self.state)
        for number, step in self.state.steps.items():
            texts = [(name, value) for name, value in self.read(reader.arguments(step)).items()]
            texts.append((None, self.read(reader.result(step))))
            for name, value in texts:
                text = msgspec.json.encode(value).decode()
                new = self.shared.find(text, ("tool", name)).new
                self.shared.learn(number, [Learned(name, text, ("tool", name), new)])

    def read(self, fetch: payload.Fetch) -> Any:
        """Drive a fetch."""
        return payload.run_fetch(fetch, lambda sha256, _: self.blobs[sha256])


texts = st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join)
leaves = st.one_of(st.none(), st.booleans(), st.integers(-99, 99), st.floats(-9, 9), texts)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5), st.dictionaries(st.sampled_from("abcd"), inner, max_size=4)
    ),
    max_leaves=12,
)


recipes = st.tuples(
    st.integers(0, 4),
    st.lists(st.integers(0, 99), min_size=1, max_size=4),
    st.integers(0, 99),
    trees,
)
steps = st.lists(st.tuples(recipes, recipes, leaves, st.booleans()), min_size=1, max_size=8)


class EarlierValues:
    """Values made of earlier values, in any structure, and of something new."""

    def __init__(self) -> None:
        self._values: list[Any] = ["It was said at the very beginning, and at some length. " * 12]

    def value(self, recipe: tuple[int, list[int], int, Any]) -> Any:
        """Build a value by a recipe."""
        kind, which, at, fresh = recipe
        some = [self._values[number % len(self._values)] for number in which]
        made: Any = fresh
        match kind:
            case 0:
                made = [*some, fresh]
            case 1:
                made = {"messages": [*some, {"content": fresh}], "b": some[0]}
            case 2:
                made = "".join(map(str, some)) + str(fresh)
            case 3:
                text = json.dumps(some, ensure_ascii=False)
                cut = len(text) * at // 100
                made = text[cut:] + str(fresh) + text[:cut]
            case _:
                pass
        if len(str(made)) < VALUE_CHARACTERS_MAX:
            self._values.append(made)
        return made


@pytest.mark.slow
@given(steps)
@settings(max_examples=settings().max_examples if THOROUGH else 15, deadline=None)
def test_every_value_reads_back_unchanged(drawn: list[Any]):
    """Arguments and results stored by parts read back exactly at every point, in any order."""
    history, values = WrittenSteps(), EarlierValues()
    for prompt, result, small, resumes in drawn:
        history.step({"prompt": values.value(prompt), "k": small}, values.value(result))
        reader = payloads.Reader(lambda: history.state)
        for number in (len(history.pairs), 1):
            step = history.state.steps[number]
            read = (history.read(reader.arguments(step)), history.read(reader.result(step)))
            assert _same(read, history.pairs[number - 1])
        if resumes:
            history.resume()
    _check_in_full(history)


def _check_in_full(history: WrittenSteps) -> None:
    """Check the values of a sequence of events, and of the steps that they make."""
    line = PartsLine()
    for version, event in enumerate(history.events, 1):
        recorded = record(event, "e")
        line.note(recorded.type, version, bytes(recorded.data))
        whole = json.loads(line.whole(recorded.type, version, bytes(recorded.data)))
        arguments, result = history.pairs[event.step - 1]
        read_back = whole["arguments" if isinstance(event, StepRequested) else "result"]
        assert _same(read_back, arguments if isinstance(event, StepRequested) else result)
    payload.in_full(history.state.steps)
    for number, (arguments, result) in enumerate(history.pairs, 1):
        step = history.state.steps[number]
        read = (msgspec.json.decode(step.arguments), msgspec.json.decode(step.result))
        assert _same(read, (arguments, result))


def test_arguments_and_results_read_back_in_full():
    """The law above holds for one history with arguments and results in parts."""
    history = WrittenSteps()
    for n in range(3):
        messages = [f"message {i} " * 40 for i in range(n + 1)]
        history.step({"prompt": messages}, {"said": messages})
    last = history.state.steps[3]
    assert all(payload.MARK in bytes(raw) for raw in (last.arguments, last.result))
    _check_in_full(history)


def _same(read: Any, expected: Any) -> bool:
    return msgspec.json.encode(read) == msgspec.json.encode(expected)


# ---------------------------------------------------------------- the stored form


TEXT = "What was said before. " * 30


def _state(values: dict[int, Any]) -> AgentState:
    """Return an agent of whose steps these are the arguments, as recorded."""
    state = agent.AgentState()
    for number, value in values.items():
        arguments = msgspec.Raw(msgspec.json.encode({"prompt": value}))
        event = StepRequested(
            step=number,
            tool="tool",
            effects=Effects.PURE,
            arguments=arguments,
            call=f"c{number}",
            fingerprint=f"f{number}",
        )
        evolve(state, event)
    return state


def _parts(text: str, *of: Any, **other: Any) -> dict[str, Any]:
    data = text.encode()
    fields = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "of": list(of)}
    return {"$parts": {**fields, **other}}


def _read(state: AgentState, number: int) -> Any:
    reader = payloads.Reader(lambda: state)
    return payload.run_fetch(reader.arguments(state.steps[number]), lambda *_: b"")


def test_the_stored_form_is_read_for_ever():
    """Golden bytes: a prompt and a result that refer to earlier steps, with their full values."""
    state = _state({1: "Begin here. " * 3})
    for name in ("step.requested.v1.full-4.json", "step.completed.v1.full-2.json"):
        data = (GOLDEN / name).read_bytes()
        evolve(state, msgspec.json.decode(data, type=_type_of(name)))
    assert _read(state, 2) == {"model": "m", "prompt": "Begin here. Begin here. And go on — é."}
    reader = payloads.Reader(lambda: state)
    result = payload.run_fetch(reader.result(state.steps[2]), lambda *_: b"")
    assert result == {"said": "Begin here. Begin here. And go on — é.", "ok": True}


def _type_of(name: str) -> Any:
    return StepRequested if "requested" in name else StepCompleted


WHOLE = f'"{TEXT}"'
DAMAGED: dict[str, tuple[dict[int, Any], str]] = {
    "a digest that does not fit": (
        {1: TEXT, 2: _parts(WHOLE, [1, 0, len(WHOLE) - 1, "prompt"], "x")},
        r"'prompt' of step 2: its parts add up to .* with SHA-256",
    ),
    "a step that is not there": (
        {1: TEXT, 2: _parts(WHOLE, [7, 0, 9, "prompt"])},
        r"refers to 'prompt' of step 7, which is not on record",
    ),
    "an argument that is not there": (
        {1: TEXT, 2: _parts(WHOLE, [1, 0, 9, "other"])},
        r"refers to 'other' of step 1, which is not on record",
    ),
    "a result that is not there": (
        {1: TEXT, 2: _parts(WHOLE, [1, 0, 9])},
        r"refers to the result of step 1, which is not on record",
    ),
    "a later step": (
        {1: TEXT, 2: _parts(WHOLE, [3, 0, 9, "prompt"]), 3: TEXT},
        r"'prompt' of step 3, which is not before it",
    ),
    "itself": (
        {1: TEXT, 2: _parts(WHOLE, [2, 0, 9, "prompt"])},
        r"'prompt' of step 2, which is not before it",
    ),
    "more than there is": (
        {1: TEXT, 2: _parts(WHOLE, [1, 0, 10_000, "prompt"], size=20_000)},
        r"up to character 10,000; that has 662",
    ),
    "more than it says": (
        {1: TEXT, 2: _parts(WHOLE, [1, 0, 660, "prompt"], size=10)},
        r"its parts have 660 characters, its text 10 bytes",
    ),
    "a size beyond every value": (
        {1: TEXT, 2: _parts(WHOLE, [1, 0, 9, "prompt"], size=2**40)},
        r"its size is 1,099,511,627,776 bytes",
    ),
    "a range backwards": ({1: TEXT, 2: _parts(WHOLE, [1, 9, 3, "prompt"])}, r"a part is \[1, 9, 3"),
    "a part of another kind": ({1: TEXT, 2: _parts(WHOLE, 7)}, r"a part is 7"),
    "no parts at all": ({1: TEXT, 2: {"$parts": []}}, r"not as Hansard writes them"),
    "a list told by what was appended": (
        {
            1: {"$append": {"to": 0, "count": 0, "digest": "", "items": []}},
            2: _parts(WHOLE, [1, 0, 9, "prompt"]),
        },
        r"it is an extended list",
    ),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_reference_is_corrupt_and_never_wrong_text(damage: str):
    """The error names both values and a command; a mere display keeps the reference."""
    values, pattern = DAMAGED[damage]
    state = _state(values)
    with pytest.raises(Corrupt, match=pattern) as raised:
        _read(state, 2)
    assert "hansard check" in str(raised.value)
    before = bytes(state.steps[2].arguments)
    payload.in_full(state.steps)
    assert bytes(state.steps[2].arguments) == before
    line = PartsLine()
    for number, value in values.items():
        data = msgspec.json.encode({"step": number, "arguments": {"prompt": value}})
        line.note("step.requested.v1", number, data)
    data = msgspec.json.encode({"step": 2, "arguments": {"prompt": values[2]}})
    with pytest.raises(Corrupt, match=pattern):
        line.whole("step.requested.v1", 2, data)


def test_a_bomb_is_refused_by_its_size_and_costs_little():
    """Each of forty texts is twice the one before: the sizes reveal it before anything is built."""
    values: dict[int, Any] = {1: TEXT}
    size = len(WHOLE)
    for number in range(2, 42):
        values[number] = _parts(
            WHOLE, [number - 1, 0, size, "prompt"], [number - 1, 0, size, "prompt"], size=size * 2
        )
        size *= 2
    with pytest.raises(Corrupt, match=r"its size is .* the limit is 268,435,456"):
        _read(_state(values), 41)


def test_ranges_that_multiply_are_bounded(monkeypatch: pytest.MonkeyPatch):
    """A text within the size whose parts lead to ever more of them ends at a bound."""
    monkeypatch.setattr(payload, "RANGES_MAX", 1_000)
    values: dict[int, Any] = {1: "ab"}
    size = 4
    for number in range(2, 16):
        half = [number - 1, 0, size, "prompt"]
        values[number] = _parts("", half, half, size=size * 2)
        size *= 2
    with pytest.raises(Corrupt, match="lead to more than 1,000"):
        _read(_state(values), 15)


def test_reading_costs_what_is_read(rounds):
    """Thousands of prompts in a chain are read without recursion, the last one alone, too."""
    history = WrittenSteps()
    messages: list[str] = []
    for n in range(rounds(300, 1_500)):
        messages.append(f"turn {n}: " + "so it went " * 3)
        history.step({"prompt": messages[-400:]}, None)
    last = history.state.steps[len(history.pairs)]
    assert (
        history.read(payloads.Reader(lambda: history.state).arguments(last))["prompt"]
        == messages[-400:]
    )


def test_events_of_a_history_read_back_in_full():
    """A run's history for the judgement by roles has every value as the agent passed it."""
    history = WrittenSteps()
    for n in range(6):
        history.step({"prompt": [f"message {i} " * 40 for i in range(n + 1)]}, f"reply {n} " * 90)
    in_full = RunInFull()
    for version, event in enumerate(history.events, 1):
        commit = Commit(
            id=f"c{version}",
            version=version,
            at=datetime(2026, 1, 1, tzinfo=UTC),
            actor=Actor("ada"),
            events=(record(event, f"e{version}"),),
        )
        whole = in_full.commit(ADA, commit)
        assert payload.MARK not in bytes(whole.events[0].data)
        assert (whole.id, whole.version) == (commit.id, version)
        assert whole.events[0].id == commit.events[0].id
