"""From a plain script to a run that survives a kill anywhere: each step does what the guide says.

The steps run as processes, as they are. They are killed by SIGKILL at the begin and the end of each
tool's body and at their lines, and started again as a person would.
"""

import itertools
import json
import random
import runpy
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hansard
from tests.examples_migration.support import STEPS, TOOLS, Desk, kill_points

pytestmark = pytest.mark.slow

SCRIPT, RECORDED, RESUMED, CONTEXT, SETTLED = STEPS
UNDISTURBED = ["search", *["read"] * 5, "ask_model", "send"]
"""Tool bodies that run without a kill."""

ALL_FROM = 50
"""Number of rounds from which every begin, end and executed line is a kill point."""

NewDesk = Callable[[], Desk]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Iterator[Path]:
    """Yield a broker's folder that outlives the processes, so that none has to start one."""
    folder = tmp_path_factory.mktemp("data")
    with hansard.connect("migration", data_dir=folder):
        yield folder


@pytest.fixture(scope="module")
def new_desk(data, tmp_path_factory) -> NewDesk:
    """Makes desks: an empty folder and a ticket that none had before."""
    tickets = itertools.count(1)

    def make() -> Desk:
        ticket = str(next(tickets))
        return Desk(tmp_path_factory.mktemp(f"desk-{ticket}"), data, ticket)

    return make


@pytest.fixture(scope="module")
def answer(new_desk) -> str:
    """Return the plain script's output without a kill."""
    return new_desk().start(SCRIPT).out


def _run(desk: Desk) -> str:
    return f"ticket-{desk.ticket}"


def test_there_is_a_plain_script_and_four_steps():
    """Each step is one file, and the first one does not use Hansard."""
    assert [path.name[:5] for path in STEPS] == [f"step{number}" for number in range(5)]
    assert "hansard" not in SCRIPT.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(
            path, marks=() if path in (SCRIPT, SETTLED) else pytest.mark.thorough, id=path.stem
        )
        for path in STEPS
    ],
)
def test_every_step_prints_the_same(example, new_desk, answer):
    """Undisturbed, each step has the script's output; restarted, the same and no new mail."""
    desk = new_desk()
    ended = desk.start(example)
    assert ended.out == answer != ""
    assert ended.bodies == UNDISTURBED
    assert desk.sent() == [
        {"to": "docs@example.org", "ticket": desk.ticket, "text": answer.removesuffix("\n")}
    ]
    assert [path.name for path in desk.folder.iterdir() if path.name.startswith("chat")] == []
    if example not in (SCRIPT, RECORDED):
        again = desk.start(example)
        assert (again.out, again.bodies, len(desk.sent())) == (answer, [], 1)


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("example", [SCRIPT, RECORDED], ids=lambda path: path.stem)
def test_what_starts_over_sends_twice(example, new_desk, answer):
    """Without a resumable run, a kill after the mail sends it again, recorded or not."""
    desk = new_desk()
    killed = desk.start(example, "return send")
    assert (killed.out, killed.bodies) == ("", UNDISTURBED)
    assert desk.start(example).out == answer
    assert (len(desk.sent()), desk.bodies("ask_model")) == (2, 2)


@pytest.mark.thorough
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "example", [pytest.param(each, id=each.stem) for each in (RESUMED, CONTEXT, SETTLED)]
)
def test_killed_anywhere_it_goes_on_and_sends_once(example, new_desk, answer, rounds):
    """After a kill anywhere the answer is the same and one mail is sent."""
    places = new_desk().start(example).places
    points = list(kill_points(places, all_of_them=rounds(1, 200) >= ALL_FROM))
    settled = set()
    for point in points:
        desk = new_desk()
        killed = desk.start(example, point)
        assert killed.places == places[:point]
        ended, in_doubt = desk.finish(example)
        assert (ended.out, len(desk.sent())) == (answer, 1), places[point - 1]
        if in_doubt:
            settled.add(places[point - 1].split(":")[0])
    assert len(points) > 2 * len(TOOLS)
    assert bool(settled) == (example != SETTLED)
    assert settled <= {"call send", "line send", "return send"}


@pytest.mark.thorough(quick="test_a_run_of_one_step_is_finished_by_another")
@pytest.mark.long
@pytest.mark.timeout(900)
def test_killed_from_outside_it_goes_on_and_sends_once(new_desk, answer, rounds):
    """The last step survives two kills at random moments, also inside of Hansard."""
    began = time.monotonic()
    new_desk().start(SETTLED)
    whole = time.monotonic() - began
    draw = random.Random(17)
    for _ in range(rounds(1, 100)):
        desk = new_desk()
        for _ in range(2):
            desk.kill_after(SETTLED, draw.uniform(whole / 3, whole))
        ended, in_doubt = desk.finish(SETTLED)
        assert (ended.out, len(desk.sent()), in_doubt) == (answer, 1, False)


@pytest.mark.parametrize(
    ("begins", "ends"),
    [
        pytest.param(RESUMED, CONTEXT, marks=pytest.mark.thorough),
        pytest.param(CONTEXT, SETTLED, marks=pytest.mark.thorough),
        pytest.param(SETTLED, CONTEXT, marks=pytest.mark.thorough),
        (SETTLED, RESUMED),
    ],
    ids=lambda path: path.stem,
)
def test_a_run_of_one_step_is_finished_by_another(begins, ends, new_desk, answer):
    """An open run is continued by the next step's program, and by the previous one's."""
    desk = new_desk()
    desk.start(begins, "line send:4")
    ended, _ = desk.finish(ends)
    assert (ended.out, len(desk.sent())) == (answer, 1)
    assert desk.bodies("search") == 1


def test_an_effect_out_of_its_chain_stops(data):
    """An effect after skipped calls stops with Diverged."""
    mails: list[str] = []

    def job(*, skip: bool) -> None:
        with (
            hansard.connect("migration", data_dir=data) as record,
            record.run("graph", run="graph", agent="node") as session,
        ):

            @session.tool(effects="pure")
            def look() -> str:
                return "seen"

            @session.tool(effects="once")
            def mail(text: str) -> None:
                mails.append(text)

            if not skip:
                look()
            mail("seen")

    job(skip=False)
    with pytest.raises(hansard.Diverged):
        job(skip=True)
    assert mails == ["seen"]


@pytest.mark.thorough(quick="test_an_effect_out_of_its_chain_stops")
@pytest.mark.parametrize(("example", "asked"), [(RESUMED, 2), (CONTEXT, 1)])
def test_a_state_file_beside_the_record_makes_it_ask_again(example, asked, new_desk, answer):
    """Step 2 with a state file of its own runs a model again; step 3 has one memory."""
    desk = new_desk()
    desk.start(example, "call send")
    ended, _ = desk.finish(example)
    assert ended.out == answer
    assert desk.bodies("ask_model") == asked
    assert len(desk.sent()) == 1


@pytest.mark.thorough(quick="test_what_starts_over_sends_twice")
@pytest.mark.parametrize(
    ("example", "survives"),
    [(SCRIPT, False), (RECORDED, False), (RESUMED, False), (CONTEXT, True), (SETTLED, True)],
)
def test_half_a_state_file_stops_what_relies_on_it(example, survives, new_desk, answer):
    """A kill inside the writing of a state file leaves half of it; step 3 has none to lose."""
    desk = new_desk()
    desk.start(example, "call ask_model")
    half = json.dumps([{"role": "user", "content": "Which of these"}])[:-9]
    (desk.folder / f"chat-{desk.ticket}.json").write_text(half, encoding="utf-8")
    if survives:
        assert desk.start(example).out == answer
    else:
        with pytest.raises(AssertionError, match="JSONDecodeError"):
            desk.start(example)


def test_the_context_of_a_resumed_run_is_on_record_once(new_desk, data):
    """Step 3's chat: the question, five notes, the answer; a kill and a resume add nothing."""
    desk = new_desk()
    desk.start(CONTEXT, "call ask_model")
    desk.start(CONTEXT)
    with hansard.connect("migration", data_dir=data) as record:
        state = record.state(_run(desk)).agent("reader")
    assert [message.role for message in state.messages] == ["user"] * 6 + ["assistant"]
    assert list(state.checkpoints) == ["read"]


def test_a_tool_s_function_can_be_tested_without_a_run():
    """A tool called outside a run raises an error; its function can be called directly."""
    recorded = runpy.run_path(str(RECORDED))
    plain = runpy.run_path(str(SCRIPT))
    with pytest.raises(hansard.ToolError, match="no session is current"):
        recorded["read"]("socketserver")
    assert recorded["read"].__wrapped__("socketserver") == plain["read"]("socketserver")


def test_the_tools_of_every_step_are_the_same():
    """A call's identity does not change between the steps."""
    for example in STEPS:
        text = example.read_text(encoding="utf-8")
        assert [name for name in TOOLS if f"\ndef {name}(" in text] == list(TOOLS)
