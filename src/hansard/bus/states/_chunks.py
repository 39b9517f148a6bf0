"""An agent's state in chunks of 64 versions: what each added to the one before.

A chunk holds what changed, never the whole state, so N versions cost O(N) bytes however many
chunks are kept. Derived and outside the log: made by the first reader that misses one, thrown
away at will. Its layout is named by a digest of this version and the state's fields, so another
version's are not read but made again.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from hansard._version import SERVER_VERSION
from hansard.bus.codec import record, revive
from hansard.domain.agent import AgentState, StatedFact
from hansard.domain.events import Event, Recorded
from hansard.domain.fingerprint import digest
from hansard.domain.refusal import Refusal
from hansard.domain.steps import Failure, Step, ToolDeclared

CHUNK_VERSIONS = 64
"""Versions a chunk: a reader fetches as many commits after one, at most, and each of them costs it
what a chunk costs."""

_PARTS = {"tools", "edited", "steps", "facts", "known", "refused"}


def _layout() -> str:
    kinds = (AgentState, Step, Failure, ToolDeclared)
    names = [f"{kind.__name__}.{name}" for kind in kinds for name in kind.__struct_fields__]
    made_by = f"{SERVER_VERSION} {CHUNK_VERSIONS}"
    return "agent-" + digest(made_by.encode(), *(name.encode() for name in names))[:12]


LAYOUT = _layout()


class _Fact(msgspec.Struct, array_like=True):
    version: int
    tag: str
    data: msgspec.Raw


class Chunk(msgspec.Struct):
    """What the versions after the chunk before added. Ends with a whole commit.

    `version` and `position` are those of that commit's end; `base` the version it follows. What it
    has whole, and not as what was added, is decoded of the last one alone: see `finish`.
    """

    base: int
    version: int
    position: int
    plain: msgspec.Raw
    tools: msgspec.Raw
    steps: list[Step]
    facts: list[_Fact]
    refused: msgspec.Raw = msgspec.Raw(b"{}")
    edited: msgspec.Raw = msgspec.Raw(b"{}")


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Chunk)
_plain = msgspec.json.Decoder(dict[str, int | str | None])
_tools = msgspec.json.Decoder(list[ToolDeclared])
_refused = msgspec.json.Decoder(dict[str, Refusal])
_edited = msgspec.json.Decoder(dict[str, tuple[tuple[int, ToolDeclared], ...]])


def make(before: AgentState, after: AgentState, position: int, events: Iterable[Event]) -> bytes:
    """The chunk that leads from one state to a later one, by the events between them."""
    old = before.steps
    named = dict.fromkeys(getattr(event, "step", None) for event in events)
    steps = [after.steps[number] for number in named if number in after.steps]
    return _encoder.encode(
        Chunk(
            before.version,
            after.version,
            position,
            _raw(
                {
                    name: getattr(after, name)
                    for name in after.__struct_fields__
                    if name not in _PARTS
                }
            ),
            _raw(list(after.tools.values())),
            [step for step in steps if old.get(step.number) is not step],
            [
                _Fact(noted.version, noted.fact.tag, record(noted.fact, "").data)
                for noted in after.facts[len(before.facts) :]
            ],
            _raw(after.refused),
            _raw(after.edited),
        )
    )


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(_encoder.encode(value))


def read(data: bytes) -> Chunk | None:
    """A stored chunk; None where it is not one (it is then made again)."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError:
        return None


def apply(state: AgentState, chunk: Chunk) -> None:
    """Add what a chunk says to a state, which the caller owns: after the last one, `finish` it."""
    state.version = chunk.version
    for step in chunk.steps:
        state.steps[step.number] = step
    for fact in chunk.facts:
        event = revive(Recorded(fact.tag, f"in a snapshot of {state.agent}", fact.data))
        state.facts.append(StatedFact(fact.version, event))  # type: ignore[arg-type] # `make` put a Fact there
        state.known.add(event.fingerprint)  # type: ignore[attr-defined] # as every Fact


def finish(state: AgentState, chunk: Chunk | None) -> bool:
    """Make a state, to which all of some chunks were added, that after the last one (None: there
    was none); False where that is not one.
    """
    if chunk is None:
        return True
    try:
        plain, tools = _plain.decode(chunk.plain), _tools.decode(chunk.tools)
        state.refused = _refused.decode(chunk.refused)
        state.edited = _edited.decode(chunk.edited)
    except msgspec.DecodeError:
        return False
    for name, value in plain.items():
        setattr(state, name, value)
    state.tools = {tool.tool: tool for tool in tools}
    return True
