"""Generated JSON values, Python values, and histories that the deciders themselves let happen."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from hansard.domain import (
    agent,
    approval,
    board,
    conversation,
    decider,
    experiment,
    principal,
    prompt,
    run,
    steps,
    team,
)
from hansard.domain.decider import fold
from hansard.domain.errors import Refused
from hansard.domain.events import Event
from hansard.domain.memory import files as memory_events
from hansard.domain.memory import space
from hansard.domain.roles import check
from hansard.domain.roles import model as role_events
from hansard.domain.steps import Effects, Failure, Verdict
from hansard.domain.values import SAFE_INT, Secret

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
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
"""Values that JSON keeps exact, and the RFC 8785 oracle takes."""

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
"""Arguments and results of tools: all kinds that have a tag, nested in each other."""

# Histories test order, not payloads: one draw per command, from a small pool of each kind.
_RAWS = [msgspec.Raw(raw) for raw in (b"null", b'{"a":[]}')]
_FAILURES = [Failure("ValueError", "no"), Failure("TimeoutError", "")]


def _requested(number: int, mark: str) -> steps.StepRequested:
    return steps.StepRequested(
        step=number,
        tool="read",
        effects=Effects.ONCE,
        arguments=_RAWS[1],
        call=mark,
        fingerprint=mark,
        after=tuple(range(1, number)),
    )


def _step_events(n: int) -> list[steps.StepEvent]:
    return [
        _requested(n, f"d{n}"),
        _requested(n, "d9"),
        *(steps.StepAttempted(step=n, attempt=i, error=_FAILURES[1]) for i in (1, 2)),
        *(steps.StepYielded(step=n, index=i, items=(raw,)) for i, raw in enumerate(_RAWS)),
        *(steps.StepCompleted(step=n, result=raw, digest=f"{i}") for i, raw in enumerate(_RAWS)),
        steps.StepCompleted(step=n, result=_RAWS[0], digest="", items=1, usage={"cost": 0.5}),
        *(steps.StepFailed(step=n, error=_FAILURES[0], digest="e", safe=s) for s in (True, False)),
        steps.StepBlocked(step=n, rule="r", reason="no"),
        steps.StepInDoubt(step=n, error=_FAILURES[1]),
        *(steps.StepWithheld(step=n, how=how) for how in steps.Withheld),
        *(steps.StepSettled(step=n, verdict=verdict, by="b") for verdict in Verdict),
        steps.StepSettled(step=n, verdict=Verdict.HAPPENED, by="b", result=_RAWS[1], digest="1"),
    ]


FACTS: list[agent.Fact] = [
    *(agent.CheckpointSaved(name=f"c{i}", data=_RAWS[i], fingerprint=f"k{i}") for i in (0, 1)),
    agent.MessageAdded(role="user", content=_RAWS[1], fingerprint="m0", tokens=3),
    agent.MessageAdded(role="assistant", content=_RAWS[0], fingerprint="m1"),
    agent.ResourceAccessed(uri="file:x", operation="read", fingerprint="r0"),
    agent.DecisionMade(question="?", selected="a", fingerprint="d0"),
    conversation.ContextCompacted(
        role="system",
        summary=_RAWS[1],
        fingerprint="c0",
        stands_for=("m0", "m1"),
        digest="d",
        versions=((2, 3),),
    ),
    agent.HandedOff(to="bob", fingerprint="h0", payload=_RAWS[1]),
]
BEGIN = agent.Begin("ada", "writer", "1", "1")
_AGENT_COMMANDS: list[agent.Command] = [
    *(agent.Tell(event) for number in (1, 1, 2, 3) for event in _step_events(number)),
    *(agent.Note(fact) for fact in FACTS),
    *(
        agent.Declare(steps.ToolDeclared(tool=tool, effects=Effects.PURE, source=source))
        for tool in ("read", "send")
        for source in ("a", "b")
    ),
    BEGIN,
    agent.Begin("ada", "reader", "1", "1"),
    agent.Begin("ada", "writer", "2", "1", conversation_id="c", turns_before=2),
    agent.Begin("ada", "writer", "2", "1", purpose="settle"),
    *(
        agent.Refuse(agent.AgentRefused(what="key", name=key, rule="role writer", because="no"))
        for key in ("a", "b")
    ),
    agent.Leave("completed"),
    agent.Leave("failed", _FAILURES[0]),
]
agent_commands = st.sampled_from(_AGENT_COMMANDS)
agent_command_lists = st.lists(agent_commands, min_size=5, max_size=40).map(
    lambda commands: [BEGIN, *(agent.Tell(_requested(n, f"d{n}")) for n in (1, 2)), *commands]
)

START = run.RunStarted(workflow="w", labels={"a": "1"})
_RUN_COMMANDS: list[run.RunEvent] = [
    START,
    run.RunForked(parent="p", at={"life": 1}, labels={"b": "2"}),
    run.RunForked(parent="q", at={"life": 2}),
    *(
        run.AgentJoined(agent=name, role=role)
        for name in ("ada", "bob")
        for role in ("writer", "reader")
    ),
    *(run.RunResumed(agent=name, epoch=epoch) for name in ("ada", "bob") for epoch in (1, 2, 3)),
    *(run.RunAssigned(experiment="e", arm=arm, task="1", trial=0) for arm in "ab"),
    run.RunScored(metrics={"reward": 1.0}, by="judge"),
    run.RunScored(metrics={"reward": 0.0, "cost": 2.5}, by="judge", details=msgspec.Raw(b"[1]")),
    *(
        run.RunAgentLeft(agent=name, outcome=outcome, error=error)
        for name in ("ada", "bob")
        for outcome, error in (("completed", None), ("failed", _FAILURES[0]), ("cancelled", None))
    ),
    run.RunCompleted(),
    run.RunCompleted(because="enough"),
    run.RunFailed(error=_FAILURES[0]),
    run.RunFailed(error=_FAILURES[0], agent="ada"),
    run.RunCancelled(because="late"),
]
run_commands = st.sampled_from(_RUN_COMMANDS)
budget_commands = st.tuples(
    st.sampled_from(["reserve", "spend"]),
    st.sampled_from(["a#1", "a#2", "b#1"]),
    st.floats(0, 5),
    st.just(6.0),
)


_ARMS = (experiment.PlannedArm("plain"), experiment.PlannedArm("bold", 2.0, "p@2", "m", _RAWS[1]))
_EXPERIMENT_COMMANDS: list[experiment.ExperimentEvent] = [
    *(
        experiment.ExperimentRegistered(
            arms=_ARMS[:count], metrics=(experiment.Metric("reward"),), unit=unit
        )
        for count in (1, 2)
        for unit in ("task", "run")
    ),
    *(experiment.ExperimentStopped(because=text) for text in ("", "enough")),
]
experiment_commands = st.sampled_from(_EXPERIMENT_COMMANDS)
import_commands = st.builds(
    run.ImportEnded,
    format=st.just("chat-jsonl"),
    files=st.just(("a.jsonl",)),
    runs=st.sampled_from([0, 5]),
    assumed=st.sampled_from([{}, {"results without an id": 2}]),
)
price_commands = st.builds(
    experiment.PriceStated,
    usage=st.sampled_from(["input_tokens", "output_tokens"]),
    amount=st.sampled_from([0.0, 2.5, 10.0]),
    since=st.sampled_from([datetime(year, 1, 1, tzinfo=UTC) for year in (2024, 2025)]),
)

_PROMPT_TEXTS = ("Answer {query}.", "Answer {query} briefly.", "")
prompt_commands = st.one_of(
    st.builds(
        prompt.PromptVersionAdded,
        version=st.just(0),
        text=st.sampled_from(_PROMPT_TEXTS),
        digest=st.just(""),
        parents=st.sampled_from([(), (1,), (1, 2), (2,), (9,)]),
    ),
    st.builds(
        prompt.PromptAliased,
        alias=st.sampled_from(["production", "next"]),
        version=st.sampled_from([1, 2, None]),
        before=st.sampled_from([1, 2, None]),
    ),
    st.builds(
        prompt.PromptFeedbackGiven,
        version=st.sampled_from([1, 2]),
        text=st.sampled_from(["more", "too_verbose"]),
        rating=st.sampled_from([None, 0.0, 0.5]),
    ),
    st.builds(prompt.PromptRetired, version=st.sampled_from([1, 2])),
)


def prompt_decide(state: prompt.PromptState, event: prompt.PromptEvent) -> Sequence[Any]:
    """Return the event, or none if it lost a race for an alias."""
    try:
        return prompt.decide(state, event)
    except prompt.PromptConflict:
        return ()


_SEES = (
    role_events.RoleRule("mine", roles=("ada*",)),
    role_events.RoleRule("found", ("step.*",), keys=("findings/**",), fields=("result.title",)),
)
_MASKS = (
    role_events.Mask("price", ("step.completed",), ("result.price",), role_events.Masking.HASH),
)
_ROLE_COMMANDS: list[role_events.RoleEvent] = [
    *(role_events.RoleDefined(sees=_SEES[:count]) for count in (0, 1, 2)),
    role_events.RoleDefined(sees=_SEES[1:], masks=_MASKS, may=role_events.May(("search_*",))),
    *(role_events.RoleWithdrawn(because=text) for text in ("", "enough")),
]
role_commands = st.sampled_from(_ROLE_COMMANDS)


def _board_write(kind: Any, **fields: Any) -> st.SearchStrategy[Any]:
    return st.builds(kind, role=st.just("writer"), **fields)


_items = st.sampled_from([b"1", b'"a"', b"[2,null]"]).map(msgspec.Raw)
_versions = st.none() | st.integers(0, 4)
board_commands = st.one_of(
    _board_write(board.ValuePut, value=_items, expected=_versions),
    _board_write(board.KeyRemoved, expected=st.none()),
    _board_write(board.KeyChecked, expected=st.integers(0, 4)),
    _board_write(board.ItemAppended, item=_items),
    _board_write(board.ItemIncluded, item=_items),
    _board_write(board.ItemDiscarded, item=_items),
    _board_write(board.AmountAdded, amount=st.integers(-9, 9)),
    _board_write(
        board.ValueMerged,
        merge=st.sampled_from(["max", "min"]),
        value=st.integers(-9, 9).map(lambda number: msgspec.Raw(b"%d" % number)),
    ),
)


def board_decide(state: board.BoardState, event: board.BoardEvent) -> Sequence[Event]:
    """Return the events of a write to a key; none if it expects another version."""
    try:
        return board.decide("k", state, event, 0)
    except board.BoardConflict:
        return ()


_TASKS: list[team.TaskCommand] = [
    team.TaskAdded(task="a", title="t"),
    team.TaskAdded(task="b", title="t", role="writer", waits_for=("a",)),
    team.TaskAdded(task="", title="t", waits_for_roles=("writer",)),
    *(team.Claim(agent=name, role="writer", lease_ms=1_000) for name in ("ada", "bob")),
    *(team.TaskExtended(task="a", number=number, lease_ms=1_000) for number in (1, 2)),
    *(team.TaskReleased(task="a", number=number) for number in (1, 2)),
    *(team.TaskCompleted(task=name, number=1) for name in ("a", "b")),
    *(team.TaskFailed(task=name, number=1, error=Failure("E", "e")) for name in ("a", "b")),
    *(team.TaskHandedOff(task=name, number=1, agent="bob") for name in ("a", "b")),
    *(team.Reopen(task=name, because=why) for name in ("a", "b") for why in ("", "again")),
]
_claimed = st.just([_TASKS[0], _TASKS[3]])
task_commands = st.tuples(_claimed, st.lists(st.sampled_from(_TASKS), max_size=10)).map(
    lambda both: [*both[0], *both[1]]
)


def task_decide(state: team.TeamState, command: team.TaskCommand) -> Sequence[Event]:
    """Return the events of a command at log time 0; refuse it if the claim was lost."""
    try:
        return team.decide(state, command, 0)
    except team.ClaimLost as lost:
        raise Refused(str(lost)) from lost


_APPROVALS: list[approval.ApprovalEvent] = [
    *(
        approval.ApprovalRequested(
            approval=f"{call}{number}",
            agent="ada",
            role="writer",
            step=1,
            tool="send",
            arguments=_RAWS[1],
            call=call,
            fingerprint="f",
            rule="r",
            timeout_ms=1_000,
        )
        for call in "ab"
        for number in (1, 2)
    ),
    *(approval.ApprovalGranted(approval=name, by=by) for name in ("a1", "b1") for by in ("x", "y")),
    *(approval.ApprovalDenied(approval=name, by="x") for name in ("a1", "b1")),
    *(approval.ApprovalExpired(approval=name) for name in ("a1", "b1")),
]
approval_commands = st.lists(st.sampled_from(_APPROVALS), max_size=12)


def approval_decide(
    state: approval.ApprovalsState, event: approval.ApprovalEvent
) -> Sequence[Event]:
    """Return the events of a command at log time 0."""
    return approval.decide(state, event, 0)


_LOWERED = decider.LabelDeclassified(
    to="untrusted", approver="eve", because="reviewed", before="secret untrusted"
)
_TOKENS = [
    principal.TokenIssued(token=digit * 32, digest=digit * 64, role=role, expires=expires)
    for digit, role, expires in (("1", "writer", None), ("2", "reader", "2026-12-21T00:00:00Z"))
]
_TOKENS[1] = msgspec.structs.replace(_TOKENS[1], on_behalf_of=("alice", "lead"))
_PRINCIPAL_COMMANDS: list[principal.PrincipalEvent] = [
    *(principal.PrincipalRegistered(kind=kind) for kind in principal.PrincipalKind),
    *_TOKENS,
    msgspec.structs.replace(_TOKENS[0], role="reader"),
    *(msgspec.structs.replace(each, on_behalf_of=("lead", "alice")) for each in _TOKENS),
    *(
        principal.TokenRevoked(token=digit * 32, because=why)
        for digit in "123"
        for why in ("", "x")
    ),
    *(
        principal.PrincipalShown(label=label, role="writer", run=run)
        for label, run in (("secret", "r"), ("untrusted", ""))
    ),
    _LOWERED,
]
principal_commands = st.sampled_from(_PRINCIPAL_COMMANDS)


def budget_decide(
    state: approval.BudgetState, command: tuple[str, str, float, float]
) -> Sequence[Event]:
    """Decide either of a budget's two commands."""
    kind, call, amount, limit = command
    if kind == "reserve":
        return approval.reserve(state, call, amount, limit) or ()
    return approval.spend(state, call, amount)


def happened(
    commands: Sequence[Any],
    state: Any,
    fold: Callable[[Any, Sequence[Event]], Any],
    decide: Callable[[Any, Any], Sequence[Event]],
) -> list[Event]:
    """Return the history of commands; refused ones have no events."""
    events: list[Event] = []
    for command in commands:
        try:
            news = decide(state, command)
        except Refused:
            continue
        state = fold(state, news)
        events.extend(news)
    return events


def _happen(commands: st.SearchStrategy[Any], initial: Any, decide: Any) -> Any:
    """Draw the histories that an aggregate's commands lead to."""
    return commands.map(lambda each: happened(each, initial(), decider.fold, decide))


agent_histories = agent_command_lists.map(
    lambda commands: happened(commands, agent.AgentState(), fold, agent.decide)
)
run_histories = st.lists(run_commands, max_size=15).map(
    lambda commands: happened([START, *commands], run.RunState(), fold, run.decide)
)
budget_histories = st.lists(budget_commands, max_size=12).map(
    lambda commands: happened(commands, approval.BudgetState(), decider.fold, budget_decide)
)
_ONE = msgspec.Raw(b"1")
_begun_set = [
    board.ItemIncluded(item=_ONE, role="writer"),
    board.ItemDiscarded(item=_ONE, role="writer"),
]
_board_lists = st.lists(board_commands, max_size=12)
board_histories = (_board_lists | _board_lists.map(lambda more: [*_begun_set, *more])).map(
    lambda commands: happened(commands, board.BoardState(), decider.fold, board_decide)
)


def lowered(histories: st.SearchStrategy[list[Event]]) -> st.SearchStrategy[list[Event]]:
    """Return histories, in some of which the label is lowered."""
    return st.builds(
        lambda events, place: [*events[:place], _LOWERED, *events[place:]] if place else events,
        histories,
        st.integers(0, 12),
    )


experiment_histories = _happen(
    st.lists(experiment_commands, max_size=6), experiment.ExperimentState, experiment.decide
)
role_histories = _happen(st.lists(role_commands, max_size=8), check.RoleState, check.decide)
approval_histories = approval_commands.map(
    lambda commands: happened(
        [_APPROVALS[0], *commands], approval.initial(), decider.fold, approval_decide
    )
)
task_histories = _happen(task_commands, team.TeamState, task_decide)
principal_histories = _happen(
    st.lists(principal_commands, max_size=12), principal.PrincipalState, principal.decide
)
import_histories = _happen(
    st.lists(import_commands, max_size=6), run.ImportState, run.decide_import
)
prompt_histories = _happen(
    st.lists(prompt_commands, max_size=12), prompt.PromptState, prompt_decide
)
price_histories = _happen(
    st.lists(price_commands, max_size=10), experiment.PriceState, experiment.decide_price
)


_MEMORY_TEXTS = st.lists(
    st.sampled_from(["- be brief\n", "- use bullets\n", "\n", "# Rules\n", "last"]), max_size=6
).map("".join)
memory_commands = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["AGENTS.md", "a/b.md", "c.md"]), _MEMORY_TEXTS | st.none()),
        st.tuples(st.just("c.md"), st.just("a/b.md")),
        st.sampled_from([memory_events.MemoryReflected(runs=(run,)) for run in ("r1", "r2")]),
        st.just(
            memory_events.MemoryRejected(problems=(memory_events.Problem("a", 1, "r", "", ""),))
        ),
        st.sampled_from(
            [
                memory_events.MemoryPolicySet(approval=each)
                for each in (memory_events.MemoryApproval.OFF, memory_events.MemoryApproval.ASK)
            ]
        ),
    ),
    max_size=12,
)
"""A path with its new text, or with the path that it moves from; None deletes it."""


def memory_decide(state: space.MemoryState, command: Any) -> Sequence[Event]:
    """Return the events of a text at a path, or of another event of a space."""
    if isinstance(command, memory_events.MemoryReflected) and command.runs[0] in state.reflected:
        return ()
    if not isinstance(command, tuple):
        return space.decide("org", state, command)
    path, text = command
    stood = state.files.get(path)
    if text == "a/b.md":
        other = state.files.get(text)
        if stood is not None or other is None:
            return ()
        change = space.change_of(path, other, other.text)
    else:
        change = space.change_of(path, stood, text)
    files = (change,) if change is not None else ()
    return space.decide("org", state, memory_events.MemoryChanged(files=files))


memory_histories = memory_commands.map(
    lambda commands: happened(commands, space.MemoryState(), fold, memory_decide)
)
