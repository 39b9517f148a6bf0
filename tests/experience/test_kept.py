"""Kept experiences: their versions, permitted use, and SQL tables."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hansard
from hansard.agents.artifacts import experiences as store
from hansard.agents.artifacts import versions
from hansard.client.record import Record
from hansard.domain.errors import BadValue, Refused
from hansard.domain.experience import distil, experience
from hansard.domain.experience.distil import Wording
from hansard.domain.experience.experience import (
    EXPERIENCES,
    FAILURES_MAX,
    ExperienceAbout,
    ExperienceConfirmed,
    ExperienceDistilled,
    ExperienceHealed,
    ExperienceInstalled,
    ExperienceReplayed,
    ExperienceRetired,
    ExperienceStanding,
)
from hansard.inspect.experience import slot_values_like
from tests.cli.support import Call, environment
from tests.experience import journeys, killed
from tests.experience.parties import FORM, GUESTS, learned, sent
from tests.experience.test_doing import done
from tests.experience.test_learning import EIGHT
from tests.faults._warm import ROOT, run

PROGRAM = Path(journeys.__file__)

RAW = msgspec.Raw(b"{}")


def about(checks: int = 0) -> ExperienceAbout:
    """Return the searchable description of a version."""
    return ExperienceAbout(description="d", task="t", level=3, checks=checks)


def replay(version: int, step: int, *, success: bool) -> ExperienceReplayed:
    """Return the event of one replay."""
    return ExperienceReplayed(
        version=version, run="r", agent="a", step=step, success=success, checks=1
    )


def installed(version: int) -> ExperienceInstalled:
    """Return the event of a version from a pack."""
    return ExperienceInstalled(
        version=version, digest="i", content=RAW, about=about(1), bundle="", key="k"
    )


experience_events = st.one_of(
    st.builds(
        lambda n: ExperienceDistilled(version=0, digest=f"d{n}", content=RAW, about=about()),
        st.integers(0, 1),
    ),
    st.builds(
        lambda n, parent: ExperienceConfirmed(
            version=0, digest=f"c{n}", content=RAW, about=about(1), parent=parent
        ),
        st.integers(0, 1),
        st.integers(1, 6),
    ),
    st.builds(
        lambda n, parent: ExperienceHealed(
            version=0, digest=f"h{n}", content=RAW, about=about(1), parent=parent, node="n1"
        ),
        st.integers(0, 1),
        st.integers(1, 6),
    ),
    st.just(installed(1)),
    st.builds(
        lambda version, step, success: replay(version, step, success=success),
        st.integers(1, 6),
        st.integers(1, 20),
        st.booleans(),
    ),
    st.just(ExperienceRetired(version=0)),
)


@given(st.lists(experience_events, max_size=14))
def test_in_any_order_of_events_no_version_changes_and_nothing_untrusted_may_act(events):
    """Versions have no hole and never change; foreign ones need a person's confirmation."""
    state = experience.initial()
    for event in events:
        if isinstance(event, ExperienceInstalled):  # a copy's first event
            state = state if state.versions else experience.fold(state, [event])
            continue
        try:
            made = experience.decide(state, event)
        except Refused:
            continue
        after = experience.fold(state, made)
        assert sorted(after.versions) == list(range(1, after.newest + 1))
        assert all(after.versions[number] == each for number, each in state.versions.items())
        if not isinstance(event, ExperienceConfirmed):
            assert not experience.decide(after, event)
        state = after
    for number, each in state.versions.items():
        if isinstance(each, ExperienceInstalled) or (
            isinstance(each, ExperienceHealed) and each.parent in state.untrusted
        ):
            with pytest.raises(Refused, match=r"pack|retired"):
                experience.demand_usable(state, "x", number)


def test_what_failed_in_a_row_is_quarantined_until_somebody_looked():
    """A success in between counts from the beginning; a new version, or a person, ends it."""
    first = ExperienceConfirmed(version=1, digest="c", content=RAW, about=about(1), parent=1)
    state = experience.fold(experience.initial(), [first])
    outcomes = [False] * (FAILURES_MAX - 1) + [True] + [False] * FAILURES_MAX
    for step, success in enumerate(outcomes):
        experience.demand_usable(state, "x", 1)
        state = experience.fold(state, experience.decide(state, replay(1, step, success=success)))
    assert state.standing_of(1) is ExperienceStanding.QUARANTINED
    with pytest.raises(Refused, match=r"failed 3 times in a row.*confirm it"):
        experience.demand_usable(state, "x", 1)
    [confirmed] = experience.decide(state, msgspec.structs.replace(first, version=0))
    state = experience.fold(state, [confirmed])
    assert (state.newest, state.standing_of(2)) == (2, ExperienceStanding.CONFIRMED)
    experience.demand_usable(state, "x", 2)
    [retired] = experience.decide(state, ExperienceRetired(version=0, because="the page is gone"))
    state = experience.fold(state, [retired])
    with pytest.raises(Refused, match="the page is gone"):
        experience.demand_usable(state, "x", 2)


def invite(record: Record) -> experience.Experience:
    """Keep and confirm an experience, as its second version."""
    [distilled] = distil.distilled(EIGHT)
    learnt = experience.made("invite", distilled, description="Invites a guest to a party")
    assert record.experiences.keep(learnt) == record.experiences.keep(learnt) == 1
    assert record.experiences.confirm("invite") == record.experiences.confirm("invite") == 2
    assert record.experiences.keep(learnt) == 2
    return learnt


def replays(record: Record, version: int, *results: tuple[int, bool]) -> None:
    """Record the results of replays, twice each, as a resumed run does."""
    for step, success in (*results, *results):
        stated = ExperienceReplayed(
            version=version, run="r1", agent="ada", step=step, success=success, checks=9
        )
        record._portal.run(
            versions.change(record.workspace, experience.EXPERIENCES, "invite", stated, by="ada")
        )


def healed(record: Record, learnt: experience.Experience) -> None:
    """Record the next version, with the first node's element elsewhere."""
    first, *rest = learnt.procedure.nodes
    entry = msgspec.structs.replace(first.action, instruction="elsewhere")
    nodes = (msgspec.structs.replace(first, action=entry), *rest)
    before = record._portal.run(store.get(record.workspace, "invite"))
    moved = msgspec.structs.replace(
        before.experience, procedure=msgspec.structs.replace(learnt.procedure, nodes=nodes)
    )
    heal = store.heal(record.workspace, before, moved, "n1", reason="gone", run="r1", by="ada")
    assert record._portal.run(heal).version == before.version + 1


@pytest.mark.slow
def test_an_experience_is_kept_confirmed_and_found(record: Record, call: Call):
    """Every version can be read; list and `find` give its use and certainty."""
    learnt = invite(record)
    wording = msgspec.structs.replace(learnt.wording, parts=("Buy for", "invite", "now"))
    other = msgspec.structs.replace(
        learnt, name="buy", description="Buys a ticket", wording=wording
    )
    assert record.experiences.keep(other) == 1
    twin = msgspec.structs.replace(learnt, name="twin", description="Invites a guest to a party")
    assert record.experiences.keep(twin) == 1
    first = record.experiences.get("invite", 1)
    assert (first.procedure, first.version, first.checks) == (learnt.procedure, 1, ())
    assert record.experiences.get("invite").checks
    replays(record, 2, (1, True), (2, True), (3, True), (4, False))
    buy, listed, _ = record.experiences.list().experiences
    assert buy.standing == ExperienceStanding.GUIDES
    assert listed.standing == ExperienceStanding.CONFIRMED
    assert (listed.replays, listed.successes) == (4, 3)
    assert listed.success_low == pytest.approx(0.3006, abs=1e-4)  # as statsmodels has it
    hit, *_ = record.experiences.find('Invite "Barbara" and send it.').hits
    assert (hit.experience, hit.params, hit.duplicates) == (
        "invite", {"invite": "Barbara"}, ["twin"],
    )  # fmt: skip
    assert "3 of 4 replays succeeded: at least 30% (Wilson, 95 %)" in hit.why
    [hit] = record.experiences.find("ticket", tools=["browser.act"]).hits
    assert (hit.experience, hit.params, hit.score > 0) == ("buy", None, True)
    assert "never replayed" in hit.why
    assert record.experiences.find("ticket", tools=["mail.send"]).hits == []
    assert record.experiences.find(address="guests.example").hits == []
    assert "at least 30%" in call("experience", "find", "guest party").out
    assert "confirmed" in call("experience", "list").out
    assert "was not found" in call("experience", "show", "none").err
    with pytest.raises(hansard.NotFound, match="experience list"):
        record.experiences.get("none")
    with pytest.raises(BadValue, match="the query is empty"):
        record.experiences.find()


def _recorded_by_another(record: Record) -> list[tuple[str, str]]:
    """Plant a doing without checks and one from a pack; return the audit's findings."""

    def append(name: str, event: ExperienceReplayed | ExperienceInstalled) -> None:
        stream = experience.EXPERIENCES.stream(name)
        record._portal.run(record.workspace.repository.append(stream, "ada", event))

    append("invite", msgspec.structs.replace(replay(2, 2, success=True), checks=0))
    invited = record._portal.run(store.get(record.workspace, "invite"))
    content = record._portal.run(store.packed(record.workspace, invited.content))
    stated = msgspec.structs.replace(installed(1), digest=invited.digest, content=content)
    append("theirs", stated)
    append("theirs", replay(1, 3, success=True))
    return record.sql(ODD).rows


ODD = "SELECT kind, fact FROM odd_experiences ORDER BY ALL"


@pytest.mark.slow
def test_the_audit_finds_what_was_done_without_checks_or_by_what_nobody_confirmed(record):
    """Only another program can do either; a later confirmation does not hide it."""
    invite(record)
    replays(record, 2, (1, True))
    findings = _recorded_by_another(record)
    assert [kind for kind, _ in findings] == [
        "replay of what nobody confirmed",
        "replay without checks",
    ]
    assert "experience theirs is from a pack" in findings[0][1]
    assert "experience invite was done without check functions" in findings[1][1]
    _, theirs = record.experiences.list().experiences
    record.experiences.confirm("theirs", digest=theirs.digest)
    assert record.sql(ODD).rows == findings


def test_what_left_a_run_is_shown_in_order(record: Record, call: Call):
    """Calls of models and tools are listed in order with their arguments; messages are not."""

    @hansard.tool(effects="idempotent")
    def post(text: str) -> str:
        return text

    @hansard.tool(effects="pure", kind="model")
    def ask(question: str) -> str:
        return "yes"

    with record.run("posts", run="r1", agent="ada", role="agent") as session:
        session.message("user", "Post it.")
        ask("may I?")
        post("hello")
    calls = [(each.kind, each.destination) for each in record.egress("r1")]
    assert calls == [("model", "ask"), ("tool", "post")]
    shown = call("run", "egress", "r1").out
    assert shown.index("may I?") < shown.index("hello")
    lines = [json.loads(line) for line in call("run", "egress", "r1", "--json").out.splitlines()]
    assert [each["type"] for each in lines] == ["sent", "sent"]
    assert lines[1]["arguments"] == {"text": "hello"}
    assert "was not found" in call("run", "egress", "r2").err


def test_a_task_is_worded_like_its_own_or_not():
    """`find` reads the same slot values as the experience itself."""
    [distilled] = distil.distilled(EIGHT)
    for text in ('Invite "B" and send it.', "Invite B", "", 'Invite "" and send it.'):
        assert slot_values_like(distilled.wording.template, text) == distilled.wording.read(text)


async def test_what_runs_with_a_label_taught_has_it(data_dir, workspace):
    """Versions, replays, retirement and their users have the label of the learned runs."""
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        runs = [await journeys.booked(record, "Ulm"), await journeys.booked(record, "Bern")]
        await journeys.kept(record, "journey", runs)
        runs[1] = await journeys.booked(record, "Linz", label="secret")
        await journeys.kept(record, "plan", runs)
        assert (await journeys.again(record, "plan", "first")).success
        await record.experiences.retire("plan")
        labels = {}
        for name in ("journey", "plan"):
            stored = (await versions.read(record.workspace, experience.EXPERIENCES, name)).commits
            labels[name] = {str(each.commit.label or "") for each in stored}
        assert labels == {"journey": {""}, "plan": {"secret"}}
        assert (await record.state("first")).agents["host"].label == "secret"


@pytest.mark.slow
async def test_what_was_killed_and_never_went_on_is_shown_without_an_outcome(data_dir, workspace):
    """A killed replay has no outcome until it is resumed; its cost counts."""

    def launched(killed: str) -> int:
        arguments = [str(PROGRAM), str(data_dir), workspace, "second", killed]
        return run(
            arguments, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=60
        ).returncode

    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        runs = [await journeys.booked(record, city) for city in ("Ulm", "Bern")]
        await journeys.kept(record, "journey", runs)
        assert (await journeys.again(record, "journey", "first")).success
        assert launched("yes") == -signal.SIGKILL

        async def counts_of_replays() -> tuple[int, int, int]:
            [kept_now] = (await record.experiences.list()).experiences
            [saved] = (await record.sql("FROM experience_savings('journey')")).dicts()
            counts = (kept_now.replays, kept_now.successes, kept_now.unfinished)
            assert counts == (saved["replays"], saved["successes"], saved["unfinished"])
            return counts

        assert await counts_of_replays() == (1, 1, 1)
        rows = (await record.sql("SELECT experience, version, run FROM unfinished_replays")).rows
        assert rows == [("journey", 2, "second")]
        [hit] = (await record.experiences.find(journeys.TASK)).hits
        assert "1 without a recorded outcome" in hit.why
        assert (await journeys.again(record, "journey", "second")).success
        assert await counts_of_replays() == (2, 2, 0)


async def test_what_is_done_by_name_is_on_record_of_it_once(data_dir, workspace):
    """Each run records its end once, resumed or not; the unconfirmed is refused first."""
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        runs = [await journeys.booked(record, city) for city in ("Ulm", "Bern")]
        await record.experiences.keep(await record.experiences.learn("journey", runs))
        with pytest.raises(Refused, match="may guide, not act"):
            await journeys.again(record, "journey", "a")
        assert await record.experiences.confirm("journey") == 2
        for _ in range(2):
            assert (await journeys.again(record, "journey", "b")).success
        history = await versions.read(record.workspace, experience.EXPERIENCES, "journey")
        state, stored = history.state, history.commits
        assert state.replays == {("b", "host", 2)}
        assert [event.type for each in stored for event in each.commit.events].count(
            "experience.replayed.v1"
        ) == 1


def move(record: Record, run: str, task: str, *values: str) -> str:
    """Move something by a tool in a run; return its id."""
    with record.run("move", run=run, agent="ada", role="mover") as session:
        session.message("user", task)

        @session.tool(name="move", effects="once")
        def moves(what: str, whom: str) -> str:
            return f"{what} {whom}"

        moves(what=values[0], whom=values[1])
    return run


MOVES = {
    "english": (
        ("Move Ada New York to the list.", "Ada", "New York"),
        ("Move Alan Ulm to the list.", "Alan", "Ulm"),
    ),
    "chinese": (("把小明上海移到名单。", "小明", "上海"), ("把李雷北京移到名单。", "李雷", "北京")),
}


@pytest.mark.parametrize(
    ("language", "template"),
    [
        ("english", "Move {{what}} {{where}} to the list ."),
        ("chinese", "把 {{what}} {{where}} 移到名单 。"),
    ],
)
def test_adjacent_values_are_learned_from_params(record, call, language, template):
    """Each run's values are slots by name; without them the error names `params=`."""
    runs = [move(record, f"r{at}", *each) for at, each in enumerate(MOVES[language])]
    with pytest.raises(BadValue, match=r"adjacent values.*params="):
        record.experiences.learn("move", runs)
    params = {
        run: {"what": what, "where": where}
        for run, (_, what, where) in zip(runs, MOVES[language], strict=True)
    }
    learnt = record.experiences.learn("move", runs, params=params)
    assert learnt.wording.template == template
    [node] = learnt.procedure.nodes
    assert node.action.action_params == {"what": "{{what}}", "whom": "{{where}}"}
    assert learnt.procedure.slots == ("what", "where")
    assert experience.read(experience.files(learnt)) == learnt
    options = [f"{run}/{name}={value}" for run in runs for name, value in params[run].items()]
    report = call(
        "experience", "distil", "move", *runs, *(x for o in options for x in ("--param", o))
    )
    assert (report.code, record.experiences.get("move").wording) == (0, learnt.wording)


def test_params_that_do_not_fit_the_runs_are_refused(record: Record):
    """Unknown values, names, runs or orders, and one value for two slots, are refused."""
    runs = [move(record, f"r{at}", *each) for at, each in enumerate(MOVES["english"])]
    good = {"r0": {"what": "Ada", "where": "New York"}, "r1": {"what": "Alan", "where": "Ulm"}}
    wrong: tuple[tuple[Any, str], ...] = (
        ({"r1": {"what": "Alan", "where": "Mars"}}, r"params\['r1'\]\['where'\].*'Mars'.*neither"),
        ({"r1": {"what": "Alan"}}, r"params\['r1'\].*what.*where"),
        ({"r1": {}}, r"params\['r1'\].*no slot"),
        ({"r1": {"what": "Ulm", "where": "Alan"}}, r"params\['r1'\].*another order"),
        ({"r2": good["r1"]}, r"params\['r2'\].*not among the runs"),
        ({"r1": {"what": "Ulm", "where": "Ulm"}}, r"params\['r1'\].*'Ulm'.*what and where"),
        ({"r1": {"what": "Alan", "where": 3}}, r"params\['where'\].*3"),
    )
    for changed, fact in wrong:
        with pytest.raises(BadValue, match=fact):
            record.experiences.learn("move", runs, params=good | changed)


def test_adjacent_slots_are_read_from_a_task_where_each_value_is_a_word():
    """Adjacent slots are read only if each value is one word; ambiguous readings are rejected."""
    wording = Wording(parts=("Move", "what", "", "where", "to the list ."))
    assert wording.read("Move Ada Ulm to the list.") == {"what": "Ada", "where": "Ulm"}
    assert wording.read("Move Ada New York to the list.") is None
    assert wording.read("Move Ada to the list.") is None
    assert slot_values_like(wording.template, "Move Ada Ulm to the list.") == {
        "what": "Ada",
        "where": "Ulm",
    }
    again = Wording(parts=("从", "起点", "到", "终点", "再回", "起点", ""))
    assert again.slots == ("起点", "终点")
    assert again.read("从上海到北京再回上海") == {"起点": "上海", "终点": "北京"}
    assert again.read("从上海到北京再回广州") is None
    assert slot_values_like(again.template, "从上海到北京再回上海") == again.read(
        "从上海到北京再回上海"
    )


@pytest.mark.later
@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("what", ["confirm", "retire"])
def test_a_write_that_is_killed_is_there_whole_or_not_at_all(what: str, where: str, tmp_path: Path):
    """SIGKILL around a commit: done again, all is there once."""
    data = tmp_path / "data"

    def done(kill: str) -> int:
        arguments = ["-m", killed.__name__, str(data), "w", what, kill]
        return run(arguments, env=environment(data), timeout=120, cwd=ROOT).returncode

    with hansard.connect("w", data_dir=data) as record:
        [distilled] = distil.distilled(EIGHT)
        record.experiences.keep(experience.made("invite", distilled))

        def commits() -> int:
            find = versions.find(record.workspace, experience.EXPERIENCES, "invite")
            return len(record._portal.run(find).commits)

        assert done(where) == -signal.SIGKILL
        assert commits() == 1 + (where == "after")
        assert done("never") == 0
        assert commits() == 2


# ------------------------------------------------------------ replays of a kept experience


TWICE = FORM.replace("<form", "<button type=button>Invite</button><form")
"""A form with two buttons of one name, so that no recorded way is unique."""


def names_the_last(question: str) -> str:
    """Answer as a key by hand: the last of the buttons with the name."""
    lines = [each for each in question.splitlines() if each.endswith("> Invite")]
    return json.dumps({"id": lines[-1].split()[0]})


async def confirmed(record, taught):
    """Keep and confirm an experience, as its second version."""
    await record.experiences.keep(taught)
    return await record.experiences.confirm("invite-a-guest")


async def changes(record):
    """Return the recorded changes of the experience, in order."""
    return [each.change for each in (await record.experiences.log("invite-a-guest")).changes]


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="session")
async def test_what_a_model_found_is_the_next_version_and_no_model_is_called_again(
    page, site, data_dir, workspace
):
    """The element becomes the node's, unconfirmed, which the audit reports."""
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        await confirmed(record, await learned(record, page, site(FORM), GUESTS[::2]))
        twice = site(TWICE, "twice.html")
        run, result = await done(record, page, twice, "invite-a-guest", fallback=names_the_last)
        assert (result.success, result.model_calls, len(result.healed)) == (True, 1, 1), (
            result.error
        )
        history = await versions.read(record.workspace, EXPERIENCES, "invite-a-guest")
        state = history.state
        heal = state.versions[3]
        assert isinstance(heal, ExperienceHealed)
        assert (heal.parent, heal.run, [heal.node]) == (2, run, result.healed)
        assert await changes(record) == ["distilled", "confirmed", "healed", "replayed"]
        now = await record.experiences.get("invite-a-guest")
        assert now.checks
        assert now.procedure != (await record.experiences.get("invite-a-guest", 2)).procedure
        _, result = await done(record, page, twice, "invite-a-guest", fallback=names_the_last)
        assert (result.success, result.model_calls, result.healed) == (True, 0, []), result.error
        assert await sent(page) == 1
        unseen = "SELECT count(*) FROM odd_experiences WHERE kind = 'heal unreviewed'"
        assert (await record.sql(unseen)).rows == [(1,)]


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.thorough(
    quick="tests/experience/test_doing.py::test_a_function_goes_on_with_tools_and_is_learned_from_where_enabled"
)
async def test_what_was_done_freely_is_kept_where_that_is_asked_for(
    page, site, data_dir, workspace
):
    """Free actions become the next version, which may guide, but not act until confirmed."""
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        await confirmed(record, await learned(record, page, site(FORM), GUESTS[:3]))
        moved = site(FORM.replace(">Invite<", ">Ask<"), "moved.html")

        async def freely(browser, guide):
            await browser.act("ask", at="text=Ask")

        name = "invite-a-guest"
        _, result = await done(record, page, moved, name, freely, learn="keep")
        assert (result.success, result.not_learned) == (True, "")
        assert await changes(record) == ["distilled", "confirmed", "replayed", "distilled"]
        third = await record.experiences.get(name, 3)
        assert (third.sources, third.checks) == (result.learned.sources, ())
        with pytest.raises(hansard.errors.Refused, match="may guide, not act"):
            await done(record, page, moved, name)
        assert await record.experiences.confirm(name) == 4
