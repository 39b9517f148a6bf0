"""No effect twice after an edit of the code: calls of an edited tool against its recorded calls."""

import asyncio
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import DID_NOT_HAPPEN, Verdict
from hansard.agents.steps import doubt
from hansard.agents.steps.doubt import EarlierCalls
from hansard.agents.steps.tools import ToolSpec
from hansard.client.record import Record
from hansard.client.session import Session
from tests.cli.support import Call

pytestmark = [pytest.mark.later, pytest.mark.fast(cases=999, slow=0)]

WORKSPACE = "edited-tools"
POLICIES = ["pure", "idempotent", "reconcile", "once"]
ANSWERED, RAN, DIVERGED, MISS, SHADOWED = "answered", "ran", "Diverged", "Miss", "ShadowedEffect"


class World:
    """The effects that happened: those of an idempotent tool with one key are one."""

    def __init__(self) -> None:
        self.runs = 0
        self._keys: set[str] = set()

    def change(self, key: str) -> str:
        """Run the effect of a call."""
        self.runs += 1
        self._keys.add(key or f"run {self.runs}")
        return "sent"

    @property
    def effects(self) -> int:
        """Number of different effects."""
        return len(self._keys)


def _options(policy: str, **options: Any) -> dict[str, Any]:
    if policy == "idempotent":
        return {"effects": policy, "key_argument": "key", **options}
    effects = hansard.reconcile(lambda **_: DID_NOT_HAPPEN) if policy == "reconcile" else policy
    return {"effects": effects, **options}


def recorded(session: Session, policy: str, world: World) -> str:
    """Run the original program."""

    @session.tool(effects="pure")
    def choose(number: int) -> str:
        return f"reader {number}"

    @session.tool(**_options(policy))
    def send(to: str, text: str, copies: int = 1, key: str = "") -> str:
        del to, text, copies
        return world.change(key)

    return send(choose(1), "hi")


def optional_parameter_added(session: Session, policy: str, world: World) -> str:
    """Give the tool another parameter, with a default."""

    @session.tool(**_options(policy))
    def send(to: str, text: str, copies: int = 1, cc: str | None = None, key: str = "") -> str:
        del to, text, copies, cc
        return world.change(key)

    return send(_choose(session)(1), "hi")


def tool_renamed(session: Session, policy: str, world: World, **options: Any) -> str:
    """Rename the tool."""

    @session.tool(**_options(policy, **options))
    def send_mail(to: str, text: str, copies: int = 1, key: str = "") -> str:
        del to, text, copies
        return world.change(key)

    return send_mail(_choose(session)(1), "hi")


def argument_renamed(session: Session, policy: str, world: World) -> str:
    """Rename a parameter."""

    @session.tool(**_options(policy))
    def send(reader: str, text: str, copies: int = 1, key: str = "") -> str:
        del reader, text, copies
        return world.change(key)

    return send(_choose(session)(1), "hi")


def arguments_reordered(session: Session, policy: str, world: World) -> str:
    """Reorder the parameters and pass them by name."""

    @session.tool(**_options(policy))
    def send(*, copies: int = 1, text: str, to: str, key: str = "") -> str:
        del to, text, copies
        return world.change(key)

    return send(text="hi", to=_choose(session)(1))


def earlier_step_edited(session: Session, policy: str, world: World) -> str:
    """Run a program whose tool gets its argument from an edited step."""

    @session.tool(**_options(policy))
    def send(to: str, text: str, copies: int = 1, key: str = "") -> str:
        del to, text, copies
        return world.change(key)

    return send(_choose(session)(2), "hi")


def tool_replaced(session: Session, policy: str, world: World) -> str:
    """Call another tool instead."""

    @session.tool(**_options(policy))
    def post(message: str, key: str = "") -> str:
        del message
        return world.change(key)

    return post(f"hi {_choose(session)(1)}")


def default_changed(session: Session, policy: str, world: World) -> str:
    """Change a parameter's default."""

    @session.tool(**_options(policy))
    def send(to: str, text: str, copies: int = 2, key: str = "") -> str:
        del to, text, copies
        return world.change(key)

    return send(_choose(session)(1), "hi")


def body_changed(session: Session, policy: str, world: World) -> str:
    """Change the tool's body."""

    @session.tool(**_options(policy))
    def send(to: str, text: str, copies: int = 1, key: str = "") -> str:
        assert all([to, text, copies])
        return world.change(key)

    return send(_choose(session)(1), "hi")


def _choose(session: Session) -> Callable[[int], str]:
    @session.tool(effects="pure")
    def choose(number: int) -> str:
        return f"reader {number}"

    return choose


SAME_CALL = [optional_parameter_added, arguments_reordered, default_changed, body_changed]
ANOTHER_CALL = [tool_renamed, argument_renamed, earlier_step_edited, tool_replaced]


@pytest.fixture(autouse=True)
def _own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a process in which no other test has declared tools."""
    monkeypatch.setattr(doubt, "DECLARED", set())


@pytest.fixture(scope="module")
def record(data_dir: Path) -> Iterator[Record]:
    """Yield one record for all cells, each of which has a run of its own."""
    with hansard.connect(workspace=WORKSPACE, data_dir=data_dir) as opened:
        yield opened


def _differing(call: Call, run: str) -> list[Any]:
    """Return the differences found by deriving a run's calls again."""
    derived = call("-w", WORKSPACE, "run", "replay", run, "--json")
    return [line for line in derived.lines if line.get("differs") or line.get("unproven")]


def _outcome(world: World, program: Callable[[], Any]) -> str:
    """Return the outcome of an edited program."""
    runs = world.runs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hansard.errors.ToolChanged)
        try:
            program()
        except hansard.HansardError as error:
            return type(error).__name__
    return RAN if world.runs > runs else ANSWERED


def _session(
    record: Record, run: str, program: Callable[[Session], Any], **options: Any
) -> Callable[[], Any]:
    def opened() -> Any:
        with record.run(run=run, **options) as session:
            return program(session)

    return opened


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("edit", [*SAME_CALL, *ANOTHER_CALL], ids=lambda edit: edit.__name__)
def test_no_edit_repeats_an_effect(record: Record, edit: Any, policy: str):
    """An equal call is answered, another pure one runs, and any other effect stops."""
    world, run = World(), f"{edit.__name__}-{policy}"
    with record.run("edited", run=run) as session:
        recorded(session, policy, world)
    program = partial(edit, policy=policy, world=world)
    outcomes = {
        "strict": _outcome(world, _session(record, run, program, mode="strict")),
        "fork": _outcome(world, _session(record, record.fork(run), program)),
        "live": _outcome(world, _session(record, record.fork(run, effects="live"), program)),
        "resume": _outcome(world, _session(record, run, program)),
    }
    assert outcomes.pop("strict") == MISS  # the source differs
    if edit in SAME_CALL:
        assert set(outcomes.values()) == {ANSWERED}
    elif policy == "pure":
        assert set(outcomes.values()) == {RAN}
    else:
        assert outcomes == {"fork": SHADOWED, "live": DIVERGED, "resume": DIVERGED}
    if policy != "pure":
        assert world.effects == 1


@pytest.mark.parametrize("edit", SAME_CALL, ids=lambda edit: edit.__name__)
def test_records_with_every_argument_in_the_key_still_answer(record, edit, monkeypatch):
    """Earlier versions recorded arguments at their default; such calls are still answered."""
    world, run = World(), f"old-{edit.__name__}"
    with monkeypatch.context() as patch:
        patch.setattr(ToolSpec, "at_default", lambda *_: ())
        with record.run("edited", run=run) as session:
            recorded(session, "once", world)
    program = partial(edit, policy="once", world=world)
    chosen = record.state(run).agent("agent").steps[1].outcome_version
    early = record.fork(run, at=f"agent@{chosen}")  # it has the outcome of its parent
    expected = SHADOWED if edit is default_changed else ANSWERED
    assert _outcome(world, _session(record, early, program)) == expected
    if edit is default_changed:  # its recorded value is part of the key, and differs now
        assert _outcome(world, _session(record, run, program)) == DIVERGED
    else:
        assert _outcome(world, _session(record, run, program)) == ANSWERED
    assert _outcome(
        world, _session(record, run, partial(recorded, policy="once", world=world))
    ) == (ANSWERED)
    assert world.effects == 1


@pytest.mark.parametrize("verdict", [Verdict.REUSE, Verdict.RUN_AGAIN])
def test_what_is_chosen_is_done_once(record: Record, call: Call, verdict: Verdict):
    """`reuse` answers the new call, `run_again` makes its effect, once; both calls are shown."""
    world, run = World(), f"chosen-{verdict.value}"
    with record.run("edited", run=run) as session:
        recorded(session, "once", world)
    program = partial(tool_renamed, policy="once", world=world)
    with pytest.raises(hansard.Diverged) as diverged:
        _session(record, run, program)()
    message = str(diverged.value)
    assert 'on record: send {"to":"reader 1","text":"hi","copies":1,"key":""} after [1]' in message
    assert 'now:       send_mail {"copies":1,"key":"","text":"hi","to":"reader 1"} after' in message
    assert f"run settle {run} agent#2 --reuse or --run-again" in message
    record.settle(run, "agent#2", verdict.value)
    expected = 1 if verdict is Verdict.REUSE else 2
    for _ in range(2):
        assert _session(record, run, program)() == "sent"
        assert _session(record, run, program, mode="strict")() == "sent"
    assert world.effects == expected

    def more(session: Session) -> str:
        program(session)

        @session.tool(name="send_mail")
        def send(to: str) -> str:
            return to

        return send("eve")

    assert _session(record, run, more)() == "eve"  # no recorded effect is left to be repeated
    steps = [*record.state(run).agent("agent").steps.values()][:3]
    assert [(step.tool, step.instead_of) for step in steps][1:] == [
        ("send", None),
        ("send_mail", 2),
    ]
    assert _differing(call, run) == []


def test_a_policy_is_shown_both_calls(record: Record):
    """`settle=` gets the recorded step and the call made now."""
    world, run, shown = World(), "policy", []

    def settle(step):
        shown.append((step.tool, step.diverged, step.now))
        return Verdict.REUSE

    with record.run("edited", run=run) as session:
        recorded(session, "once", world)
    program = partial(tool_replaced, policy="once", world=world)
    with record.run(run=run, settle=settle) as session:
        assert program(session) == "sent"
    assert shown == [("send", True, 'post {"key":"","message":"hi reader 1"} after [1]')]
    assert world.effects == 1


@pytest.mark.parametrize("options", [{"name": "send"}, {"aliases": ["send"]}], ids=str)
def test_a_declaration_says_that_it_is_the_same_tool(record: Record, options: dict[str, Any]):
    """A renamed tool that declares its recorded name is replayed, under any policy."""
    for policy in POLICIES:
        world, run = World(), f"{next(iter(options))}-{policy}"
        with record.run("edited", run=run) as session:
            recorded(session, policy, world)
        program = partial(tool_renamed, policy=policy, world=world, **options)
        for run_id in (run, record.fork(run)):
            assert _outcome(world, _session(record, run_id, program)) == ANSWERED
        assert world.effects == 1


def test_an_alias_keeps_the_key(record: Record, call: Call):
    """An idempotent call after an edited step runs again under its new name with the key it had."""
    world, run = World(), "alias-key"
    with record.run("edited", run=run) as session:
        recorded(session, "idempotent", world)

    def edited(session: Session) -> str:
        @session.tool(effects="idempotent", key_argument="key", aliases=["send"])
        def send_mail(to: str, text: str, copies: int = 1, key: str = "") -> str:
            del to, text, copies
            return world.change(key)

        _choose(session)(2)
        return send_mail("reader 1", "hi")

    assert _outcome(world, _session(record, run, edited)) == RAN
    assert (world.runs, world.effects) == (2, 1)
    assert _outcome(world, _session(record, run, edited)) == ANSWERED
    assert _differing(call, run) == []


def test_another_version_is_another_call(record: Record):
    """Changing `version=` invalidates recorded calls: the effect is made."""
    world, run = World(), "version"
    with record.run("edited", run=run) as session:
        recorded(session, "once", world)

    def edited(session: Session) -> str:
        @session.tool(version="2")
        def send(to: str, text: str) -> str:
            del to, text
            return world.change("")

        return send(_choose(session)(1), "hi")

    assert _outcome(world, _session(record, run, edited)) == RAN
    assert world.effects == 2


def test_the_warning_says_what_will_happen(record: Record):
    """Recorded calls of a tool with effects are reused, others stop; a pure tool runs."""
    for policy, rest in (("once", "stops as Diverged"), ("pure", "any other call runs")):
        world, run = World(), f"warning-{policy}"
        with record.run("edited", run=run) as session:
            recorded(session, policy, world)
        with pytest.warns(hansard.errors.ToolChanged, match=rest):
            _session(record, run, partial(body_changed, policy=policy, world=world))()


# Edits that must or must not stop: calls in loops, in parallel and in bodies


def _sending(session: Session, sent: list[str], name: str = "send") -> Callable[[str], str]:
    @session.tool(name=name)
    def send(to: str) -> str:
        sent.append(to)
        return f"sent {to}"

    return send


def test_a_program_that_goes_on_is_not_stopped(record: Record):
    """Once a scope's recorded effects are replayed, new ones run."""
    sent: list[str] = []

    def program(session: Session, count: int) -> None:
        send = _sending(session, sent)
        for number in range(count):
            send(f"{number}")
            session.gather(*[partial(_each, send, f"{number}{branch}", count) for branch in "ab"])

    with record.run("edited", run="goes-on") as session:
        send = _sending(session, sent)
        send("0")
        session.gather(*[partial(_each, send, f"0{branch}", 1) for branch in "ab"])
    assert sorted(sent) == ["0", "0a0", "0b0"]
    for count in (2, 2):
        with record.run(run="goes-on") as session:
            program(session, count)
    assert len(sent) == len(set(sent)) == 2 * (1 + 2 * 2)


def _each(send: Callable[[str], str], branch: str, count: int) -> None:
    for number in range(count):
        send(f"{branch}{number}")


@pytest.mark.parametrize("name", ["send", "send_mail"])
async def test_calls_side_by_side_come_in_any_order(data_dir: Path, workspace: str, name: str):
    """In a bare `asyncio.gather` a new call may precede recorded ones; a renamed tool stops."""
    sent: list[str] = []

    async def program(session: Any, name: str, late: bool) -> None:
        both, cut = asyncio.Barrier(2), asyncio.Event()

        @session.tool(name=name)
        async def send(to: str) -> str:
            if late:
                await both.wait()
            sent.append(to)
            return to

        async def first() -> None:
            if late:
                await cut.wait()
            await send("1")

        async def second() -> None:
            await asyncio.gather(send("2"), send("3"))
            if late:
                raise KeyError

        await asyncio.gather(first(), second())

    async with hansard.connect_async(workspace=workspace, data_dir=data_dir) as record:
        with pytest.raises(KeyError):
            async with record.run("edited", run="r") as session:
                await program(session, "send", late=True)
        async with record.run(run="r") as session:
            if name == "send":
                await program(session, name, late=False)
            else:
                with pytest.raises(hansard.Diverged):
                    await program(session, name, late=False)
    assert sorted(sent) == (["1", "2", "3"] if name == "send" else ["2", "3"])


@pytest.mark.parametrize("edit", ["renamed", "moved into it", "moved out of it"])
def test_edited_effects_in_bodies_stop_the_run(record: Record, edit: str):
    """An effect moved into or out of a composite's body, or renamed, stops the run."""
    sent: list[str] = []

    def inside(session: Session, name: str) -> None:
        send = _sending(session, sent)

        @session.tool(effects="composite", name=name)
        def deliver() -> str:
            return send("ada")

        deliver()

    def outside(session: Session, _: str) -> None:
        _sending(session, sent)("ada")

    before, after = {
        "renamed": (inside, inside),
        "moved into it": (outside, inside),
        "moved out of it": (inside, outside),
    }[edit]
    run = f"bodies-{edit.replace(' ', '-')}"
    with record.run("edited", run=run) as session:
        before(session, "deliver")
    with pytest.raises(hansard.Diverged, match=r"\(send\) had an effect"):
        _session(record, run, lambda session: after(session, "hand_over"))()
    assert sent == ["ada"]


@pytest.mark.parametrize("edit", ["into", "out of", "after another"])
def test_effects_that_moved_between_branches_stop_the_run(record: Record, edit: str):
    """An effect that moved into, out of or between branches of `session.gather` stops."""
    sent: list[str] = []

    def straight(session: Session) -> None:
        _sending(session, sent)("ada")

    def branched(session: Session) -> None:
        send = _sending(session, sent)
        session.gather(partial(send, "ada"), partial(_choose(session), 1))

    def later(session: Session) -> None:
        session.gather(partial(_choose(session), 1))
        branched(session)

    before, after = {
        "into": (straight, branched),
        "out of": (branched, straight),
        "after another": (branched, later),
    }[edit]
    run = f"branches-{edit.replace(' ', '-')}"
    with record.run("edited", run=run) as session:
        before(session)
    with pytest.raises(hansard.Diverged):
        _session(record, run, after)()
    assert sent == ["ada"]
    again = _session(record, run, before)
    again()
    assert sent == ["ada"]


def test_a_thread_beside_its_parent_is_not_stopped(record: Record):
    """A new call of a thread runs while recorded ones of its parent are open, and conversely."""
    for first in ("thread", "parent"):
        sent: list[str] = []
        go = {"thread": threading.Event(), "parent": threading.Event()}

        def program(session: Session, make: set[str]) -> None:
            send = _sending(session, sent)

            def work(who: str) -> None:
                if who in make:
                    assert go[who].wait(30)
                    send(who)

            beside = session.thread(work, "thread")
            work("parent")
            go["thread"].set()
            beside.wait()
            beside.result()

        second = "parent" if first == "thread" else "thread"
        go[first].set()
        go[second].set()
        run = f"beside-{first}"
        with record.run("edited", run=run) as session:
            program(session, {second})
        go[second].clear()

        def freed(session: Session) -> None:
            timer = threading.Timer(0.3, go[second].set)
            timer.start()
            program(session, {first, second})
            timer.join()

        _session(record, run, freed)()
        assert sorted(sent) == ["parent", "thread"]


def test_a_choice_is_good_for_one_call(record: Record):
    """`run_again` lets one inserted call run; the recorded call after it is settled on its own."""
    sent: list[str] = []

    def program(session: Session, *names: str) -> None:
        send = _sending(session, sent)
        for name in names:
            send(name)

    with record.run("edited", run="inserted") as session:
        program(session, "ada", "bob")
    edited = _session(record, "inserted", lambda session: program(session, "eve", "ada", "bob"))
    for verdict, step, now in (
        ("run_again", 1, 'send {"to":"eve"}'),
        ("reuse", 1, 'send {"to":"ada"}'),
    ):
        with pytest.raises(hansard.Diverged) as diverged:
            edited()
        assert (diverged.value.step.number, now in str(diverged.value)) == (step, True)
        record.settle("inserted", f"agent#{step}", verdict)
    edited()
    assert sent == ["ada", "bob", "eve"]


def test_a_stream_is_an_effect_like_others(record: Record):
    """A tool that gives items is answered with another optional parameter, and stops renamed."""
    sent: list[str] = []

    def program(session: Session, name: str, options: dict[str, Any]) -> list[str]:
        def lines(to: str, **more: str) -> Iterator[str]:
            sent.append(to)
            yield from (to, *more)

        return [*session.tool(name=name)(lines)("ada", **options)]

    with record.run("edited", run="stream") as session:
        assert program(session, "lines", {}) == ["ada"]
    assert _session(record, "stream", lambda session: program(session, "lines", {}))() == ["ada"]
    for name, options in (("rows", {}), ("lines", {"cc": "bob"})):
        with pytest.raises(hansard.Diverged):
            _session(record, "stream", partial(program, name=name, options=options))()
    assert sent == ["ada"]


def test_an_effect_in_doubt_is_settled_first(record: Record):
    """A doubt about the recorded effect is first; one that did not happen stops nothing."""
    sent: list[str] = []

    def program(session: Session, name: str, *, fail: bool) -> str:
        @session.tool(name=name)
        def send(to: str) -> str:
            if fail:
                raise ConnectionResetError
            sent.append(to)
            return to

        return send("ada")

    with pytest.raises(ConnectionError), record.run("edited", run="doubt") as session:
        program(session, "send", fail=True)
    renamed = _session(record, "doubt", partial(program, name="send_mail", fail=False))
    with pytest.raises(hansard.InDoubt):
        renamed()
    record.settle("doubt", "agent#1", "did_not_happen")
    assert renamed() == "ada"
    assert sent == ["ada"]


def test_the_audit_finds_effects_that_were_made_again(record: Record, monkeypatch: Any):
    """`repeated_effects` lists effects that a resume repeated, and none that were decided."""
    world = World()

    def versioned(session: Session, version: str, *readers: str) -> None:
        @session.tool(version=version)
        def send(to: str) -> str:
            return world.change(to)

        for reader in readers:
            send(reader)

    for run in ("version", "went-on"):
        with record.run("edited", run=f"audit-{run}") as session:
            versioned(session, "1", "ada")
    _session(record, "audit-version", lambda s: versioned(s, "2", "ada", "bob"))()
    _session(record, "audit-went-on", lambda s: versioned(s, "1", "ada", "bob"))()
    edits = {"name": tool_renamed, "arguments": earlier_step_edited, "decided": tool_renamed}
    for name, edit in edits.items():
        with record.run("edited", run=f"audit-{name}") as session:
            recorded(session, "once", world)
        with monkeypatch.context() as patch:
            options = {"settle": lambda _: Verdict.RUN_AGAIN}
            if name != "decided":  # as an earlier version resumed it
                patch.setattr(EarlierCalls, "rival", lambda *_: None)
            _session(
                record, f"audit-{name}", partial(edit, policy="once", world=world), **options
            )()
    failures = [OSError("no answer")]

    def retried(session: Session) -> None:
        @session.tool(effects="idempotent")
        def note(number: int) -> int:
            if failures:
                raise failures.pop()
            return number

        note(0)
        note(1)

    with (
        pytest.raises(OSError, match="no answer"),
        record.run("edited", run="audit-retried") as session,
    ):
        retried(session)
    _session(record, "audit-retried", retried)()
    rows = record.sql(
        "SELECT run, kind, agent, step, fact FROM repeated_effects"
        " WHERE run LIKE 'audit-%' ORDER BY run"
    ).rows
    assert [row[:4] for row in rows] == [
        ("audit-arguments", "same tool", "agent", 4),
        ("audit-name", "another tool", "agent", 3),
        ("audit-version", "same tool", "agent", 2),
    ]
    assert rows[2][4] == (
        'send (agent#2) {"to":"ada"} was called in epoch 2 and is completed, though the effect of '
        'send (agent#1) {"to":"ada"} was on record and not replayed'
    )
    findings = record.audit("audit-name").found
    assert [(row["topic"], row["severity"]) for row in findings] == [("effects", "high")]
