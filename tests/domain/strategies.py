"""Generated JSON values, Python values, and histories that the deciders themselves let happen."""

from collections.abc import Callable, Sequence
from datetime import UTC, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from hansard.domain import agent, budget, run, steps
from hansard.domain.errors import Refused
from hansard.domain.events import Event
from hansard.domain.steps import Effects, Failure, Verdict
from hansard.domain.values import SAFE_INT, Secret

text = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
"""Any text that UTF-8 can carry."""

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-SAFE_INT, SAFE_INT),
    st.floats(allow_nan=False, allow_infinity=False),
    text,
)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)
"""What JSON keeps exact, and the RFC 8785 oracle takes."""

_zones = st.sampled_from([None, UTC, timezone(timedelta(hours=5, minutes=30))])
_hashable = st.one_of(
    scalars,
    st.integers(),
    st.binary(max_size=8),
    st.decimals(allow_nan=False),
    st.uuids(),
    st.dates(),
    st.tuples(st.integers(), text),
    st.frozensets(st.integers(0, 9), max_size=3),
)
_special = st.one_of(
    _hashable,
    st.floats(),
    st.integers(-(10**60), 10**60),
    st.binary(max_size=8).map(bytearray),
    st.decimals(),
    st.datetimes(timezones=_zones),
    st.times(timezones=_zones),
    st.timedeltas(),
    st.sets(_hashable, max_size=3),
    st.frozensets(_hashable, max_size=3),
    st.builds(Secret, text),
    st.builds(Path, st.sampled_from(["/a/b", "c", ".", "../d e"])),
    st.sampled_from(["$set", "$tuple", "$blob", "$secret", "$"]).flatmap(
        lambda key: scalars.map(lambda value: {key: value})
    ),
)
python_values = st.recursive(
    _special,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(text, inner, max_size=3),
        st.dictionaries(_hashable, inner, max_size=3),
        st.dictionaries(st.sampled_from(["$x", "$map", "a"]), inner, max_size=2),
    ),
    max_leaves=8,
)
"""What a tool may be given or return: all the kinds that have a tag, nested in each other."""

# Histories are about order, not about payloads: few choices, so that many events come of them.
_words = st.sampled_from(["a", "b", "", "\U0001f4a5"])
raws = st.sampled_from([msgspec.Raw(raw) for raw in (b"null", b"1", b'{"a":[]}', b'"x"')])
failures = st.sampled_from([Failure("ValueError", "no"), Failure("TimeoutError", "")])
_numbers = st.sampled_from([1, 1, 2, 3])
_digests = st.sampled_from(["d1", "d2", "d3"])
_moments = st.sampled_from([0.0, 0.5, 12.0])

step_events = st.one_of(
    st.builds(
        steps.StepRequested,
        step=_numbers,
        tool=st.sampled_from(["read", "send"]),
        effects=st.sampled_from(Effects),
        arguments=raws,
        call=_digests,
        fingerprint=_digests,
        after=st.lists(_numbers, max_size=2).map(tuple),
    ),
    st.builds(
        steps.StepAttempted, step=_numbers, attempt=st.integers(1, 3), error=failures
    ),
    st.builds(
        steps.StepYielded,
        step=_numbers,
        index=st.integers(0, 3),
        items=st.lists(raws, min_size=1, max_size=2).map(tuple),
    ),
    st.builds(
        steps.StepCompleted,
        step=_numbers,
        result=raws,
        digest=_digests,
        duration_ms=_moments,
        usage=st.dictionaries(st.sampled_from(["cost", "input_tokens"]), _moments, max_size=2),
        items=st.none() | st.integers(0, 3),
    ),
    st.builds(
        steps.StepFailed, step=_numbers, error=failures, digest=_digests, safe=st.booleans()
    ),
    st.builds(steps.StepBlocked, step=_numbers, rule=_words, reason=_words),
    st.builds(steps.StepInDoubt, step=_numbers, error=failures),
    st.builds(
        steps.StepSettled,
        step=_numbers,
        verdict=st.sampled_from(Verdict),
        by=_words,
        result=raws,
        digest=_digests,
    ),
)
_marks = st.sampled_from([f"f{i}" for i in range(8)])
facts = st.one_of(
    st.builds(agent.CheckpointSaved, name=_words, data=raws, fingerprint=_marks),
    st.builds(
        agent.MessageAdded,
        role=st.sampled_from(["user", "assistant"]),
        content=raws,
        fingerprint=_marks,
        tokens=st.none() | st.integers(0, 99),
    ),
    st.builds(agent.ResourceAccessed, uri=_words, operation=_words, fingerprint=_marks),
    st.builds(agent.DecisionMade, question=_words, selected=_words, fingerprint=_marks),
    st.builds(agent.HandedOff, to=_words, fingerprint=_marks, payload=raws),
)
_tells = [st.builds(agent.Tell, step_events)] * 6
agent_commands: st.SearchStrategy[agent.Command] = st.one_of(
    *_tells,
    st.builds(agent.Note, facts),
    st.builds(
        agent.Declare,
        st.builds(
            steps.ToolDeclared,
            tool=st.sampled_from(["read", "send"]),
            effects=st.sampled_from(Effects),
            source=_digests,
        ),
    ),
    st.builds(
        agent.Begin,
        agent=st.just("ada"),
        role=st.sampled_from(["writer", "writer", "reader"]),
        server_version=_digests,
        protocol_version=_digests,
        conversation_id=st.none() | _words,
        turns_before=st.integers(0, 3),
        purpose=st.sampled_from(["run", "settle"]),
    ),
    st.builds(agent.Leave, st.sampled_from(["completed", "failed"]), st.none() | failures),
)
_names = st.sampled_from(["ada", "bob", "cy"])
run_commands: st.SearchStrategy[run.RunEvent] = st.one_of(
    st.builds(
        run.RunStarted, workflow=_words, labels=st.dictionaries(_words, _words, max_size=2)
    ),
    st.builds(
        run.RunForked,
        parent=_names,
        at=st.dictionaries(_words, st.integers(1, 9), max_size=2),
        labels=st.dictionaries(_words, _words, max_size=2),
    ),
    st.builds(run.AgentJoined, agent=_names, role=st.sampled_from(["writer", "reader"])),
    st.builds(run.RunResumed, agent=_names, epoch=st.integers(1, 4)),
    st.builds(run.RunCompleted),
    st.builds(run.RunFailed, error=failures),
    st.builds(run.RunCancelled, because=_words),
)
budget_commands = st.tuples(
    st.sampled_from(["reserve", "spend"]), _names, st.floats(0, 5), st.just(20.0)
)

BEGIN = agent.Begin("ada", "writer", "1", "1")
START = run.RunStarted(workflow="w")


def budget_decide(state: budget.BudgetState, command: tuple[str, str, float, float]) -> Sequence[Event]:
    """A budget's two commands behind one name."""
    kind, call, amount, limit = command
    if kind == "reserve":
        return budget.reserve(state, call, amount, limit) or ()
    return budget.spend(state, call, amount)


def happened(
    commands: Sequence[Any],
    state: Any,
    fold: Callable[[Any, Sequence[Event]], Any],
    decide: Callable[[Any, Any], Sequence[Event]],
) -> list[Event]:
    """The history that commands lead to; what is refused did not happen."""
    events: list[Event] = []
    for command in commands:
        try:
            news = decide(state, command)
        except Refused:
            continue
        state = fold(state, news)
        events.extend(news)
    return events


REQUESTS = [
    agent.Tell(
        steps.StepRequested(
            step=number,
            tool="read",
            effects=Effects.ONCE,
            arguments=steps.NULL,
            call=f"c{number}",
            fingerprint=f"d{number}",
        )
    )
    for number in (1, 2)
]
agent_command_lists = st.tuples(
    st.sampled_from([[BEGIN], [BEGIN, *REQUESTS]]), st.lists(agent_commands, min_size=5, max_size=20)
).map(lambda parts: [*parts[0], *parts[1]])
agent_histories = agent_command_lists.map(
    lambda commands: happened(commands, agent.initial(), agent.fold, agent.decide)
)
run_histories = st.lists(run_commands, max_size=12).map(
    lambda commands: happened([START, *commands], run.initial(), run.fold, run.decide)
)
budget_histories = st.lists(budget_commands, max_size=12).map(
    lambda commands: happened(commands, budget.BudgetState(), budget.fold, budget_decide)
)
