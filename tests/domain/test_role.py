"""Rules of a role: patterns, refusals when applied, visibility and its reasons."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.domain.decider import fold
from hansard.domain.errors import BadName, BadValue, Refused
from hansard.domain.events import REGISTRY
from hansard.domain.ids import AgentStream, KeyStream, RunStream, StreamId, WorkspaceStream
from hansard.domain.label import parse
from hansard.domain.roles import check
from hansard.domain.roles.authorize import (
    Trust,
    may_be_trusted,
    may_call,
    may_state,
    may_write,
    reached,
)
from hansard.domain.roles.model import (
    DOT,
    NONE,
    SLASH,
    Mask,
    Masking,
    May,
    RoleDefined,
    RoleRule,
    RoleWithdrawn,
    kind_matches,
    matches,
    read,
)
from hansard.domain.roles.view import Facts, explain, facts, judge, unmet_conditions
from hansard.testing import Decider, decider
from tests.domain import strategies

MINE = RoleDefined(sees=(RoleRule("mine", roles=("writer",)),))
ALL = RoleDefined(sees=(RoleRule("all", ("**",)),), clearance="secret")
AGENT = AgentStream("r", "writer", "ada")


def of(tag: str, **fields) -> Facts:
    """Return the facts of an event in ada's stream."""
    return Facts(**{"tag": tag, "stream": AGENT, "role": "writer", "agent": "ada", **fields})


def a_role() -> Decider:
    """Return a role's decider."""
    return decider(check.RoleState, fold, check.decide)


# ---------------------------------------------------------------- its history


def test_rules_are_replaced_as_a_whole():
    """The same rules again add nothing; others replace all of the old ones."""
    a_role().when(MINE).then(MINE)
    a_role().given(MINE).when(MINE).then()
    a_role().given(MINE).when(ALL).then(ALL)
    a_role().given(MINE).when(ALL).then_state(rules=ALL, withdrawn=None)


def test_a_role_is_withdrawn_once_and_may_come_back():
    """A withdrawn role has no rules; only a defined role can be withdrawn."""
    gone = RoleWithdrawn(because="done")
    a_role().when(gone).then_raises(Refused, saying="it is not defined")
    a_role().given(MINE).when(gone).then_state(rules=None, withdrawn=gone)
    a_role().given(MINE, gone).when(RoleWithdrawn()).then()
    a_role().given(MINE, gone).when(MINE).then(MINE)


@given(st.lists(strategies.role_commands, max_size=6), strategies.role_commands)
def test_a_role_s_command_yields_its_events_once(before, command):
    """Whatever went before, stating a thing twice states it once."""
    events = strategies.happened(before, check.RoleState(), fold, check.decide)
    state = fold(check.RoleState(), events)
    try:
        first = check.decide(state, command)
    except Refused:
        assert isinstance(command, RoleWithdrawn)
        assert not state.version
        return
    assert not check.decide(fold(state, first), command)


# ---------------------------------------------------------------- patterns


@pytest.mark.parametrize(
    ("pattern", "separator", "fits", "others"),
    [
        ("findings/**", SLASH, ["findings/a", "findings/a/b"], ["findings", "findings-old/a", ""]),
        ("findings/*", SLASH, ["findings/a", "findings/"], ["findings", "findings/a/b"]),
        ("a/*/c", SLASH, ["a/b/c", "a//c"], ["a/c", "a/b/b/c", "a/b/c/d"]),
        ("**", SLASH, ["a", "a/b", ""], []),
        ("search_*", DOT, ["search_", "search_web"], ["search", "research_x", "search_a.b"]),
        ("mcp.*.get", DOT, ["mcp.x.get"], ["mcp.get", "mcp.x.y.get", "mcp.x.get.y"]),
        ("*a*b*", NONE, ["ab", "xaxbx", "a/b"], ["ba", "", "b.a"]),
        ("ab*ba", NONE, ["abba", "abxba"], ["aba", "ab"]),
        ("res", NONE, ["res"], ["researcher", "Res", "re"]),
        (r"plan \*", NONE, ["plan *"], ["plan x"]),
        ("a?[bc]{d}", NONE, ["a?[bc]{d}"], ["axb", "a?b"]),
    ],
)
def test_a_pattern_takes_in_whole_segments(pattern, separator, fits, others):
    """Nothing by prefix; a star stays in its segment; only the last `**` takes the rest."""
    read_ = read(pattern, separator)
    assert [name for name in [*fits, *others] if matches(read_, name)] == fits


@given(st.text("ab/*\\", max_size=8), st.lists(st.text("ab", max_size=3), min_size=1, max_size=4))
def test_no_pattern_reaches_over_a_border(pattern, segments):
    """A name that matches a pattern without `**` has exactly as many segments."""
    try:
        compiled = read(pattern, SLASH)
    except BadValue:
        return
    if matches(compiled, "/".join(segments)):
        count = len(compiled.segments)
        assert len(segments) > count if compiled.rest else len(segments) == count


printable = st.characters(exclude_categories=["C", "Z"]) | st.sampled_from(" *./\\")


@given(st.text(printable, min_size=1), st.sampled_from([DOT, SLASH, NONE]))
def test_a_name_is_taken_in_by_itself(name, separator):
    """Escaped, any name is a pattern of that name alone."""
    assert name.isprintable()
    try:
        compiled = read(name.replace("\\", "\\\\").replace("*", "\\*"), separator)
    except BadValue:
        assert separator == DOT  # an empty segment
        return
    assert matches(compiled, name)
    assert not matches(compiled, name + "x")


def test_a_kind_s_version_counts_where_it_is_named():
    """`step.*` holds for every version; a pattern that ends in one, for that one alone."""
    tag = "step.completed.v1"
    fits = ["step.*", "step.completed", "step.completed.v1", "step.**", "**", "*.completed"]
    others = ["step", "step.completed.v2", "step.comp", "*", "step.*.v2", "step.completed.*"]
    assert [each for each in [*fits, *others] if kind_matches(each, tag)] == fits
    assert kind_matches("step.*.v1", tag)


# ---------------------------------------------------------------- broken rules


def rule(**fields) -> RoleDefined:
    """Return a role of one rule."""
    return RoleDefined(sees=(RoleRule("r1", **fields),))


def mask(*kinds: str, fields: tuple[str, ...] = ("result",), sees=("step.*",), **more):
    """Return a role with one rule and one mask."""
    masks = (Mask("m1", kinds or ("step.completed",), fields, **more),)
    return RoleDefined(sees=(RoleRule("r1", sees),), masks=masks)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (rule(), "rule 'r1': it has no matcher; give kinds.* kinds = \\[\"\\*\\*\"\\]"),
        (rule(kinds=()), "kinds of rule 'r1': 0 patterns"),
        (rule(labels={}), "labels of rule 'r1': 0 labels"),
        (rule(kinds=("step.done",)), "'step.done' is no kind of event; there are: step.attempted"),
        (rule(kinds=("stepp.*",)), "'stepp.*' is no kind of event; there are: .*agent.*"),
        (rule(kinds=("*",)), "is no kind of event"),
        (rule(keys=("a/**/b",)), "'\\*\\*' inside or before other segments"),
        (rule(keys=("a**",)), "'\\*\\*' inside or before"),
        (rule(roles=("",)), "roles of rule 'r1': '' is no pattern"),
        (rule(agents=("a\\b",)), "has a backslash before nothing"),
        (rule(agents=("*" + "a*" * 20,)), "has 21 stars"),
        (rule(kinds=("step.*",), fields=()), "fields of rule 'r1': 0 paths"),
        (
            rule(kinds=("step.*",), fields=("reslt",)),
            "no field of step.attempted.* or 3 more kinds",
        ),
        (rule(kinds=("step.failed",), fields=("error.typ",)), "'error.typ' is no field"),
        (rule(kinds=("step.failed",), fields=("step.x",)), "'step.x' is no field"),
        (rule(kinds=("step.*",), fields=("result.**",)), "a path has all that is under it"),
        (rule(kinds=("step.*",), fields=("fingerprint",)), "reveals other events"),
        (rule(kinds=("step.completed",), fields=("digest",)), "a digest of 'result'"),
        (mask("step.don"), "kinds of mask 'm1': 'step.don' is no kind"),
        (mask(roles=()), "roles of mask 'm1': 0 patterns"),
        (mask(fields=("reslt",)), "fields of mask 'm1': 'reslt' is no field"),
        (mask(how=Masking.TRUNCATE), "mask 'm1': how is 'truncate', characters is None"),
        (mask(characters=3), "how is 'drop', characters is 3"),
        (mask(how=Masking.TRUNCATE, characters=0), "characters of mask 'm1': 0; give 1 to"),
        (mask(fields=("step",), how=Masking.TRUNCATE, characters=3), "'step' is no text"),
        (mask("message.added", fields=("content",)), "no rule shows 'content' of message"),
        (
            RoleDefined(sees=(RoleRule("a", ("step.*",)), RoleRule("a", ("run.*",)))),
            "'a' twice; give each rule and mask its own name",
        ),
        (RoleDefined(may=May(tools=("a.**.b",))), "tools of may"),
        (RoleDefined(may=May(kinds=("nope",))), "kinds of may: 'nope' is no kind"),
        (RoleDefined(sees=(RoleRule("", ("step.*",)),)), "rule name ''"),
    ],
)
def test_a_broken_rule_is_refused_when_applied(broken, message):
    """The error has the rule's name, the fault and the remedy; the rule is never used."""
    with pytest.raises((BadValue, BadName), match=message):
        check.decide(check.RoleState(), broken)


# ---------------------------------------------------------------- who sees what


def test_every_matcher_of_a_rule_must_hold():
    """A matcher that fails is named; a missing property matches nothing."""
    entered_rule = RoleRule(
        "r", ("board.*",), ("ana*",), ("bob",), ("findings/**",), {"team": "fin*"}
    )
    key = "findings/a"
    right = Facts(
        tag="board.put.v1",
        stream=KeyStream("r", key),
        role="analyzer",
        agent="bob",
        key=key,
        labels={"team": "finance"},
    )
    assert unmet_conditions(entered_rule, right) == []
    changes: list[tuple[dict[str, Any], str]] = [
        ({"tag": "step.failed.v1"}, "kinds: step.failed.v1 is none of 'board.*'"),
        ({"role": "writer"}, "roles: 'writer' is none of 'ana*'"),
        ({"agent": ""}, "agents: it has none"),
        ({"key": "findings"}, "keys: 'findings' is none of 'findings/**'"),
        ({"labels": {}}, "labels: its run has no 'team'"),
        ({"labels": {"team": "law"}}, "labels: team is 'law', not 'fin*'"),
    ]
    for change, condition in changes:
        assert unmet_conditions(entered_rule, msgspec.structs.replace(right, **change)) == [
            condition
        ]


def test_nothing_is_seen_that_no_rule_allows():
    """Neither without rules, nor with rules that do not match."""
    event = of("step.failed.v1")
    other = rule(roles=("reader",))
    for rules in (None, RoleDefined(), other):
        assert not judge(rules, event).visible
    assert explain(None, event)[0].startswith("not seen: the role has no rules")
    assert explain(other, event) == [
        "not seen: no rule matches, and only events that a rule allows are seen",
        "rule 'r1' does not match: roles: 'writer' is none of 'reader'",
    ]


@pytest.mark.parametrize(
    ("label", "reason"),
    [("internal", "no rule matches"), ("secret", "it is labelled 'secret'"), ("", "no rule")],
)
def test_what_hides_a_labelled_event_is_reported(label, reason):
    """The reason is its label if the role lacks the clearance, else that no rule matches."""
    rules = msgspec.structs.replace(rule(roles=("reader",)), clearance="confidential")
    event = msgspec.structs.replace(of("step.failed.v1"), label=parse(label) if label else None)
    assert reason in explain(rules, event)[0]


@pytest.mark.parametrize(
    ("path", "is_there"),
    [("labels", True), ("labels.team", True), ("labels.team.more", False), ("nothing", False)],
)
def test_a_path_goes_as_deep_as_the_data(path, is_there):
    """A key of a dictionary is one step, and a text has nothing below it."""
    assert bool(reached("run.started.v1", path)) is is_there


def test_who_is_the_author():
    """An agent's stream has that agent as author; other streams a writer that the run knows."""
    roster = {"ada": "writer"}
    where: list[tuple[StreamId, str]] = [
        (AgentStream("r", "reader", "bob"), "somebody"),
        (RunStream("r"), "ada"),
        (RunStream("r"), "person"),
        (KeyStream("r", "k"), "ada"),
        (WorkspaceStream("price", "m"), "ada"),
    ]
    sources = [facts("x", stream, actor, roster, {"l": "1"}) for stream, actor in where]
    assert [(each.role, each.agent, each.key, len(each.labels)) for each in sources] == [
        ("reader", "bob", "", 1),
        ("writer", "ada", "", 1),
        ("", "", "", 1),
        ("writer", "ada", "k", 1),
        ("", "", "", 0),
    ]


def test_several_rules_show_their_fields_together():
    """The first that matches is named; a rule without fields shows all."""
    part = RoleDefined(
        sees=(
            RoleRule("no", ("run.*",)),
            RoleRule("a", ("step.*",), fields=("step",)),
            RoleRule("b", ("step.completed",), fields=("result.x", "step")),
        )
    )
    verdict = judge(part, of("step.completed.v1"))
    assert (verdict.rule, verdict.rules, verdict.fields) == ("a", ("a", "b"), ("step", "result.x"))
    more = RoleDefined(sees=(*part.sees, RoleRule("c", roles=("writer",))))
    assert judge(more, of("step.completed.v1")).fields is None
    assert explain(part, of("step.completed.v1", fields=("step", "digest"))) == [
        "seen: rule 'a' matches",
        "rule 'no' does not match: kinds: step.completed.v1 is none of 'run.*'",
        "rule 'b' matches, too",
        "shown: step, result.x",
        "not shown, since it reveals other events or fields: digest",
    ]


def test_what_a_newer_version_wrote_is_seen_by_who_sees_everything_alone():
    """The meaning of its fields is unknown."""
    newer = of("step.teleported.v1")
    assert judge(ALL, newer).whole
    assert not judge(MINE, newer).visible
    assert "newer version" in explain(MINE, newer)[0]
    masked = mask("step.completed", sees=("**",))
    assert not judge(masked, newer).visible


def test_a_mask_applies_where_all_its_matchers_hold():
    """A mask applies to kinds alone, or to these kinds by some authors."""
    masks = tuple(
        Mask(name, ("step.completed",), ("result",), roles=roles)
        for name, roles in [("all", None), ("mine", ("writer",)), ("other", ("reader",))]
    )
    rules = RoleDefined(sees=ALL.sees, masks=masks)
    by_kind = [judge(rules, of(tag)).masks for tag in ("step.completed.v1", "step.failed.v1")]
    assert by_kind == [masks[:2], ()]
    assert explain(rules, of("step.completed.v1"))[-2:] == [
        "mask 'all': drop result",
        "mask 'mine': drop result",
    ]


@given(
    st.lists(
        st.sampled_from([*MINE.sees, *ALL.sees, RoleRule("s", ("step.*",), fields=("step",))])
    ),
    st.sampled_from(sorted(REGISTRY)),
    st.sampled_from(["writer", "reader", ""]),
)
def test_explaining_and_judging_agree(sees, tag, author):
    """The stated reason is the one that decided; the rules that match fully are named."""
    rules = RoleDefined(
        sees=tuple(msgspec.structs.replace(each, name=f"r{n}") for n, each in enumerate(sees))
    )
    event = of(tag, role=author)
    verdict, lines = judge(rules, event), explain(rules, event)
    assert lines[0].startswith("seen" if verdict.visible else "not seen")
    assert verdict.visible == bool(verdict.rule) == bool(verdict.rules)
    assert verdict.rules == tuple(
        each.name for each in rules.sees if not unmet_conditions(each, event)
    )
    assert all(any(repr(each.name) in line for line in lines) for each in rules.sees)


# ---------------------------------------------------------------- what it may do


def test_a_role_may_do_what_its_rules_allow_and_nothing_else():
    """Tools, kinds and keys by pattern; nothing without rules."""
    rules = RoleDefined(
        sees=(RoleRule("scores", keys=("scores/**",)),),
        may=May(("search_*", "mcp.**"), ("step.*",), ("scores/*",), settle=True, query=False),
    )
    allowed = [
        may_call(rules, "search_web"),
        may_call(rules, "mcp.mail.send"),
        may_state(rules, "step.completed.v1"),
        may_write(rules, "scores/a"),
        may_be_trusted(rules, Trust.SETTLE),
    ]
    refused = [
        may_call(rules, "research"),
        may_call(rules, "mcp"),
        may_call(rules, ""),
        may_state(rules, "run.started.v1"),
        may_write(rules, "scores/a/b"),
        may_write(rules, ""),
        may_be_trusted(rules, Trust.APPROVE),
        may_be_trusted(rules, Trust.QUERY),
    ]
    assert all(each.allowed for each in allowed)
    assert not any(each.allowed for each in refused)
    assert not may_call(None, "search_web").allowed
    assert not may_state(None, "step.completed.v1").allowed


# ---------------------------------------------------------------- files

names = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1)
patterns = names.map(lambda text: text.replace("\\", "\\\\").replace("*", "\\*"))
many = st.none() | st.lists(patterns, min_size=1, max_size=3).map(tuple)
roles = st.builds(
    RoleDefined,
    sees=st.lists(
        st.builds(
            RoleRule,
            name=names,
            kinds=st.sampled_from([("step.*",), ("step.completed", "run.*.v1")]),
            roles=many,
            agents=many,
            labels=st.none() | st.dictionaries(names, patterns, min_size=1, max_size=2),
            fields=st.sampled_from([None, ("result", "result.x.*")]),
        ),
        min_size=1,
        max_size=3,
        unique_by=lambda each: each.name,
    ).map(tuple),
    may=st.builds(May, tools=st.just(("a.*",)), approve=st.booleans(), query=st.booleans()),
    about=strategies.text,
)


@given(st.dictionaries(names, roles, min_size=1, max_size=2))
def test_a_role_written_as_toml_reads_back_the_same(definitions):
    """Any name and any text are kept; defaults are left out."""
    assert check.parse(check.write(definitions)) == definitions


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it has no roles"),
        ("x = [", "it is no TOML"),
        ("y = 1", "it has a field 'y'; it has tables .roles.NAME. alone"),
        ("[roles.a]\nse = 1", "role 'a': it has no field 'se'; its fields are: sees, masks, may"),
        ("[roles.a]\nsees = 1", "sees of role 'a': it is 1"),
        (
            "[[roles.a.sees]]\nkind = 1",
            "sees 1 of role 'a': it has no field 'kind'; .* name, kinds",
        ),
        ("[[roles.a.masks]]\nx = 1", "masks 1 of role 'a': it has no field 'x'"),
        ("[roles.a.may]\ntool = 1", "may of role 'a': it has no field 'tool'; .* tools, kinds"),
        ("[roles.a.may]\napprove = 1", "role 'a': Expected `bool`"),
        ('[[roles.a.sees]]\nname = "n"\nkinds = "step.*"', "Expected `array . null`, got `str`"),
        ('[[roles.a.sees]]\nname = "n"', "role 'a': rule 'n': it has no matcher"),
        ("[roles.a.may]\nquery = true\n[roles.''.may]", "role name ''"),
    ],
)
def test_a_file_is_read_strictly(text, message):
    """An unknown name is reported with the known ones."""
    with pytest.raises((BadValue, BadName), match=message):
        check.parse(text)
