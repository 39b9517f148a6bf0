"""Hidden events and values have no influence on anything that a role is shown.

A second run is made from a generated one by changing, leaving out and inserting events that the
role may not see. Both are valid logs; everything that the role gets is equal, byte for byte.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hansard.agents.access import roles as views
from hansard.agents.access.roles import facts_of_run
from hansard.bus.commits import revive
from hansard.bus.log import Stored
from hansard.domain.access import versions
from hansard.domain.errors import BadValue
from hansard.domain.ids import AgentStream, RunStream
from hansard.domain.label import LOWEST, level, parse
from hansard.domain.roles import check as role_check
from hansard.domain.roles import view as role_state
from hansard.domain.roles.model import Mask, Masking, RoleDefined, RoleRule
from hansard.domain.roles.view import judge, served, view
from hansard.state.replay import fold_agent, fold_boards, fold_life
from tests.conftest import THOROUGH
from tests.roles import worlds
from tests.roles.worlds import RUN, Act, build

KEY = bytes(range(32))
EXAMPLES = role_check.parse(
    (Path(__file__).parents[2] / "examples" / "roles.toml").read_text(encoding="utf-8")
)


def all_of(rules: RoleDefined, history: Sequence[Stored]) -> bytes:
    """Return all that a role gets of a run, down to counts, digests and refusals."""
    lines = list(view(rules, facts_of_run(RUN, history), KEY))
    try:
        list(view(rules, facts_of_run(RUN, history), b"short"))
        error = ""
    except BadValue as refused:
        error = str(refused)
    return msgspec.json.encode([lines, role_state.state(lines), served(lines), error])


def seen_of(rules: RoleDefined, history: Sequence[Stored]) -> dict[str, bool]:
    """Return by event id whether a role sees the event."""
    return {each.id: judge(rules, each.facts).visible for each in facts_of_run(RUN, history)}


def data_of(history: Sequence[Stored]) -> dict[str, bytes]:
    """Each event's data, by id."""
    return {each.id: bytes(each.data) for each in facts_of_run(RUN, history)}


def check_valid(history: Sequence[Stored]) -> None:
    """Every stream has its versions and folds."""
    versions: dict[Any, int] = {}
    for stored in history:
        assert stored.commit.version == versions.get(stored.stream, 0) + 1
        versions[stored.stream] = stored.commit.last_version
        for recorded in stored.commit.events:
            revive(recorded)
    fold_life(stored for stored in history if isinstance(stored.stream, RunStream))
    fold_boards(history)
    for stream in versions:
        if isinstance(stream, AgentStream):
            fold_agent(stored for stored in history if stored.stream == stream)


class Looked(msgspec.Struct):
    """A world as a log, with each event's data and whether the role sees it, by id."""

    acts: list[Act]
    seen: dict[str, bool]
    data: dict[str, bytes]


def looked(rules: RoleDefined, acts: list[Act]) -> Looked:
    """Build a world and judge it."""
    history = build(acts)
    return Looked(acts, seen_of(rules, history), data_of(history))


def without_trace(one: Looked, other: Looked) -> bool:
    """Return whether the two worlds differ only in events that the role may not see."""
    first = [each for each in one.seen if one.seen[each]]
    if first != [each for each in other.seen if other.seen[each]]:
        return False
    if len(one.acts) != len(other.acts):
        return True  # inserted or left out: the other events are unchanged
    return not any(one.data[each] != other.data[each] for each in first)


@st.composite
def changed(draw: st.DrawFn, rules: RoleDefined, world: list[Act]) -> list[Act]:
    """Draw a world with some changes, none of them visible to the role."""
    unchanged = looked(rules, world)
    for count in range(draw(st.integers(2, 8))):
        how = draw(st.sampled_from(["add", "remove", "one", "two", "refs", "label"]))
        place = draw(st.integers(0, len(world) - 1)) if world else 0
        before, after = world[:place], world[place + 1 :]
        if how == "add":
            other = draw(worlds.acts(st.just(100 + count)))
            candidate = [*before, other, *world[place:]]
        elif how == "remove" or not world:
            candidate = [*before, *after]
        else:
            other = draw(worlds.acts(st.just(0)))
            edited = msgspec.structs.replace(world[place], **{how: getattr(other, how)})
            candidate = [*before, edited, *after]
        tried = looked(rules, candidate)
        if without_trace(unchanged, tried):
            world, unchanged = candidate, tried
    return world


# ---------------------------------------------------------------- rules

_families = ["**", "step.*", "board.*", "run.*", "agent.*", "view.served", "message.added"]
_single = ["step.completed", "step.failed", "decision.made", "board.put", "run.agent_joined"]
_kinds = st.lists(st.sampled_from([*_families, *_single]), min_size=1, max_size=3, unique=True).map(
    tuple
)
_matchers: dict[str, st.SearchStrategy[Any]] = {
    "roles": st.sampled_from([("researcher",), ("analyzer", "writer"), ("*er",)]),
    "agents": st.sampled_from([("r1",), ("r*", "a1")]),
    "keys": st.sampled_from([("findings/**",), ("findings/a", "secret"), ("scores/*",)]),
    "labels": st.sampled_from([{"team": "x"}, {"team": "y*"}]),
}
_rules = st.one_of(
    st.fixed_dictionaries({"kinds": _kinds}, optional=_matchers),
    st.fixed_dictionaries({"roles": _matchers["roles"]}, optional={"kinds": _kinds}),
    st.fixed_dictionaries({"keys": _matchers["keys"]}),
    st.fixed_dictionaries(
        {
            "kinds": st.just(("step.completed",)),
            "fields": st.sampled_from([("result.title", "step"), ("usage",), ("result",)]),
        },
        optional={"roles": _matchers["roles"]},
    ),
    st.fixed_dictionaries(
        {
            "kinds": st.just(("decision.made",)),
            "fields": st.sampled_from([("question", "inputs"), ("selected", "because", "after")]),
        }
    ),
)
_masks = st.one_of(
    st.fixed_dictionaries(
        {
            "kinds": st.just(("step.completed",)),
            "fields": st.sampled_from([("result",), ("result.title",), ("result.price",)]),
            "how": st.sampled_from([Masking.DROP, Masking.HASH]),
        },
        optional={"roles": _matchers["roles"]},
    ),
    st.just(
        {
            "kinds": ("decision.made",),
            "fields": ("because",),
            "how": Masking.TRUNCATE,
            "characters": 3,
        }
    ),
    st.just({"kinds": ("board.put",), "fields": ("value",), "how": Masking.HASH}),
)


@st.composite
def roles(draw: st.DrawFn) -> RoleDefined:
    """Rules that may be applied."""
    sees = tuple(
        RoleRule(name=f"r{n}", **each)
        for n, each in enumerate(draw(st.lists(_rules, min_size=1, max_size=3)))
    )
    clearance = draw(st.sampled_from(["", "internal", "secret"]))
    made = RoleDefined(sees=sees, clearance=clearance)
    role_check.check(made)
    for n, each in enumerate(draw(st.lists(_masks, max_size=2))):
        masked = msgspec.structs.replace(made, masks=(*made.masks, Mask(name=f"m{n}", **each)))
        try:
            role_check.check(masked)
        except BadValue:  # a mask of what no rule shows
            continue
        made = masked
    return made


# ---------------------------------------------------------------- laws


@pytest.mark.thorough(quick="test_no_role_learns_of_hidden_events")
@given(st.sampled_from(sorted(EXAMPLES)), worlds.worlds, st.data())
def test_an_example_role_learns_nothing_of_hidden_events(name, world, data):
    """No role of examples/roles.toml, the auditor included, sees served views."""
    after = build(data.draw(changed(EXAMPLES[name], world)))
    check_valid(after)
    assert all_of(EXAMPLES[name], after) == all_of(EXAMPLES[name], build(world))


@pytest.mark.slow
@given(roles(), worlds.worlds, st.data())
def test_no_role_learns_of_hidden_events(rules, world, data):
    """Whatever its rules and masks are."""
    after = build(data.draw(changed(rules, world)))
    check_valid(after)
    assert all_of(rules, after) == all_of(rules, build(world))


@pytest.mark.slow
def test_what_is_generated_has_something_to_tell():
    """Generated worlds change, hide and show something of every kind."""
    changes: list[bool] = []
    kinds: set[str] = set()
    seen: set[str] = set()

    @settings(max_examples=100 if THOROUGH else 30)  # shares are judged
    @given(st.sampled_from(["researcher", "analyzer", "writer"]), worlds.worlds, st.data())
    def look(name, world, data):
        after = data.draw(changed(EXAMPLES[name], world))
        one, other = ({each.number: each for each in acts} for acts in (world, after))
        differ = [n for n in one.keys() | other.keys() if one.get(n) != other.get(n)]
        changes.append(bool(differ))
        kinds.update((other.get(n) or one[n]).kind for n in differ)
        lines = view(EXAMPLES[name], facts_of_run(RUN, build(world)), KEY)
        seen.update(line.type for _, line in lines)

    look()
    assert sum(changes) > len(changes) / 3
    assert len(kinds) > len(worlds.KINDS) / 2
    assert {"step.completed.v1", "decision.made.v1", "agent.handed_off.v1"} & seen


def test_what_was_served_is_seen_only_where_a_rule_names_it():
    """A rule for everything excludes served views; one that names them hides references to other
    events.
    """
    world = [Act(0, "r1", "message", one="hello"), Act(1, "r1", "served")]
    everything = RoleDefined(sees=(RoleRule("all", ("**",)),), clearance="secret")
    history = build(world)
    lines = list(view(everything, facts_of_run(RUN, history), KEY))
    assert len(lines) == len(seen_of(everything, history)) - 1
    assert not any(line.type == "view.served.v1" for _, line in lines)
    named = RoleDefined(sees=(RoleRule("reads", ("view.*", "message.*")),))
    role_check.check(named)
    [_, (_, line)] = view(named, facts_of_run(RUN, history), KEY)
    assert json.loads(bytes(line.data)) == {"role": "researcher", "agent": "r1"}
    both = RoleDefined(sees=(RoleRule("all", ("**", "view.served")),), clearance="secret")
    assert len(list(view(both, facts_of_run(RUN, history), KEY))) == len(lines) + 1


@given(roles(), worlds.worlds)
def test_the_ranges_name_what_was_shown(rules, world):
    """The summary's ranges lead back to just the events of the view's lines, in their order."""
    history = build(world)
    made = views.derive_from("x", RUN, history, rules, "", 0, KEY)
    event = made.event("r1")
    named = {(stream, version) for stream, text in event.seen.items() for version in versions(text)}
    ids = [
        recorded.id
        for stored in history
        for index, recorded in enumerate(stored.commit.events)
        if (str(stored.stream), stored.commit.version + index) in named
    ]
    assert ids == [line.id for _, line in made.view.events]
    assert event.events == len(ids)
    assert event.at == history[-1].commit.id


@given(roles(), worlds.worlds)
def test_nobody_sees_what_they_are_not_cleared_for(rules, world):
    """Rules never exceed a role's clearance; untrusted data may be read by all."""
    history = build(world)
    seen = seen_of(rules, history)
    labels = {f"e-{act.number}": parse(act.label) for act in world}
    cleared = msgspec.structs.replace(rules, clearance="secret")
    for each, visible in seen_of(cleared, history).items():
        label = labels.get(each.rpartition("-")[0], LOWEST)
        assert seen[each] == (visible and label.flows_to(level(rules.clearance)))
