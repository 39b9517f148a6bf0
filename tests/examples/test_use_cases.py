"""The three use cases: killed in any stage they reach the same end, with each effect once."""

import itertools
import runpy
import shlex
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from tests.examples.support import (
    PAPER_PIPELINE,
    ROOT,
    SUPPORT_DESK,
    TRADING,
    USE_CASES,
    Desk,
    UseCase,
    mails,
    new_desk,
    orders,
    papers,
)

pytestmark = pytest.mark.slow

ACCESS_KEY = "sk-desk-0123456789"
OPENED_S_MAX = 120
"""Longest time until a started program has an open step, in seconds, including Python's start."""

KILLS = [(case, place) for case in USE_CASES for place in case.places()]
LOOKING = [["runs"], ["run", "trace"], ["run", "show"], ["run", "html"], ["check"]]

NewDesk = Callable[[UseCase], Desk]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Iterator[Path]:
    """Yield a broker's folder that outlives the processes, so that none has to start one."""
    folder = tmp_path_factory.mktemp("data")
    with hansard.connect(data_dir=folder):
        yield folder


@pytest.fixture(scope="module")
def desk(data, tmp_path_factory) -> NewDesk:
    """Makes desks: an empty folder and an empty workspace."""
    texts = tmp_path_factory.mktemp("texts")
    shutil.copytree(ROOT / "docs", texts / "docs")
    shutil.copyfile(ROOT / "README.md", texts / "README.md")
    numbers = itertools.count(1)

    def make(case: UseCase) -> Desk:
        return new_desk(case, tmp_path_factory.mktemp("desk"), texts, data, f"w{next(numbers)}")

    return make


@pytest.fixture(scope="module")
def undisturbed(desk) -> dict[str, tuple[str, Desk, dict[str, Any]]]:
    """Return the output, desk and record of each use case without a kill."""
    outcomes = {}
    for case in USE_CASES:
        quiet = desk(case)
        done = quiet.start()
        assert done.returncode == 0, done.stderr
        outcomes[case.name] = (done.stdout, quiet, quiet.on_record())
    return outcomes


def test_undisturbed_each_does_its_job(undisturbed):
    """Each use case has its effect, and each tool's work begins as often as needed."""
    counted = {
        name: (len(quiet.case.effects(quiet.folder)), list(quiet.work_begun().values()))
        for name, (_, quiet, _) in undisturbed.items()
    }
    assert counted == {
        "trading": (1, [1, 1, 1]),
        "support_desk": (1, [1, 1, 1, 1]),
        "paper_pipeline": (4, [1, 4, 1, 4, 1]),
    }


@pytest.mark.parametrize(
    ("case", "place"),
    [
        pytest.param(
            case,
            place,
            id=f"{case.name}-{place}".replace(" ", "-"),
            marks=pytest.mark.thorough if number % 8 or case is SUPPORT_DESK else (),
        )
        for number, (case, place) in enumerate(KILLS)
    ],
)
def test_killed_in_any_stage_it_goes_on(undisturbed, desk, case, place):
    """Killed and restarted, it prints and records the same, with each effect once."""
    printed, quiet, record = undisturbed[case.name]
    killed = desk(case)
    killed.start(kill_at=place)
    done = killed.start()
    worker = place.partition(" ")[2]
    if worker == "enter_in_book":
        assert done.returncode == 1
        assert " run settle trade-1 execution#1" in done.stderr
        killed.settle()
        done = killed.start()
    assert (done.returncode, done.stdout) == (0, printed), done.stderr
    assert killed.on_record() == record
    if case is SUPPORT_DESK:  # the key of a mail is another in each workspace
        assert [mail["text"] for mail in mails(killed.folder)] == [
            mail["text"] for mail in mails(quiet.folder)
        ]
    else:
        assert case.effects(killed.folder) == case.effects(quiet.folder)
    again = killed.work_begun() - quiet.work_begun()
    assert set(again) <= {worker}, "what was recorded ran again"
    assert again[worker] <= quiet.work_begun()[worker]


@pytest.mark.thorough
def test_an_order_is_settled_by_looking_at_the_book(desk):
    """An order is settled by whether the exchange took it; until then nothing is placed."""
    waiting, taken = desk(TRADING), desk(TRADING)
    orders(waiting.folder)
    book = sqlite3.connect(waiting.folder / "order_book.sqlite")
    with closing(book) as exchange, waiting.connect() as at:
        exchange.execute("BEGIN EXCLUSIVE")
        with waiting.popen() as program:
            _wait_until_open(at, waiting.case.run, "execution")
            program.kill()
        exchange.rollback()
    taken.start(kill_at="return enter_in_book")

    for killed, placed in ((waiting, 0), (taken, 1)):
        for _ in range(2):
            assert "execution#1" in killed.start().stderr
            assert len(orders(killed.folder)) == placed
        killed.settle()
        assert killed.start().returncode == 0
        assert len(orders(killed.folder)) == 1


def _wait_until_open(record: hansard.Record, run: str, agent: str) -> None:
    """Wait until the record shows an open call of an agent."""
    end = time.monotonic() + OPENED_S_MAX
    while time.monotonic() < end:
        if any(known == run for known, _ in record.runs()):
            state = record.state(run).agents.get(agent)
            if state is not None and state.open_steps:
                return
        time.sleep(0.02)
    pytest.fail(f"{agent} of {run} began no call within {OPENED_S_MAX} s")


def test_the_gate_bounds_what_is_ordered(desk, monkeypatch):
    """More than 100 pieces, or a fourth attempt, is refused by name and never placed."""
    trading = desk(TRADING)
    monkeypatch.chdir(trading.folder)
    strategy = runpy.run_path(str(trading.folder / "strategy.py"))
    rules, place_order = strategy["RULES"], strategy["place_order"]
    with (
        hansard.connect(trading.workspace, data_dir=trading.data, gate=rules) as record,
        record.run("bounds", agent="execution", role="trader"),
    ):
        with pytest.raises(hansard.Blocked, match="position limit"):
            place_order("SYN", "buy", 101, 1.0)
        assert [place_order("SYN", "buy", 100, float(limit)) for limit in (1, 2, 3)] == [1, 2, 3]
        with pytest.raises(hansard.Blocked, match="attempts to order"):
            place_order("SYN", "buy", 100, 4.0)
    assert orders(trading.folder) == [("SYN", "buy", 100, float(limit)) for limit in (1, 2, 3)]


def test_a_customer_who_comes_back_is_known(desk):
    """A returning customer's ticket is answered with knowledge of the first one."""
    support = desk(SUPPORT_DESK)
    for ticket in ("1", "2", "2"):
        support.command("python", "desk.py", f"tickets/{ticket}.txt")
    greetings = [mail["text"].splitlines()[0] for mail in mails(support.folder)]
    assert greetings == ["Thank you for asking.", "Thank you for coming back."]


@pytest.mark.thorough
def test_a_secret_in_a_ticket_is_in_no_file(desk, data):
    """The record's files contain the text around the secret, but not the secret."""
    support = desk(SUPPORT_DESK)
    ticket = (support.folder / "tickets" / "1.txt").read_text("utf-8")
    assert ACCESS_KEY in ticket
    support.start()
    shown = support.command("hansard", "run", "context", "ticket-1", "--json")
    assert "secret:access-key" in shown
    files = [path.read_bytes() for path in data.rglob("*") if path.is_file()]
    assert any(b"How do I resume a run without sending" in content for content in files)
    assert not any(ACCESS_KEY.encode() in content for content in files)


def test_what_is_large_is_a_blob(undisturbed):
    """The extracted texts are kept beside the events, and come back whole on resume."""
    _, quiet, _ = undisturbed["paper_pipeline"]
    with quiet.connect() as record:
        steps = record.state(quiet.case.run).agents["librarian"].steps.values()
    assert [step.tool for step in steps if b'"$blob"' in bytes(step.result)] == ["extract"]


def test_the_analysis_is_a_loop_that_goes_on(undisturbed):
    """The loop's progress is on record; all four papers are done at its end."""
    _, quiet, _ = undisturbed["paper_pipeline"]
    with quiet.connect() as record:
        checkpoints = record.state(quiet.case.run).agents["librarian"].checkpoints
    assert msgspec.json.decode(checkpoints["progress:items"].data)["done"] == 4


@pytest.mark.thorough(quick="test_killed_in_any_stage_it_goes_on")
def test_a_fork_summarizes_another_way(desk):
    """`--again` runs the summary and nothing else; killed there, it goes on with the same fork."""
    pipeline = desk(PAPER_PIPELINE)
    early = pipeline.start("--again")
    assert early.returncode == 1
    first = pipeline.start()
    shutil.rmtree(pipeline.folder / "papers")
    pipeline.start("--again", kill_at="return extractive_summary")
    again = pipeline.start("--again")
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout != first.stdout
    assert [pipeline.work_begun(process) for process in (-2, -1)] == [
        Counter({"extractive_summary": 1})
    ] * 2
    assert papers(pipeline.folder) == []
    with pipeline.connect() as record:
        parents = [life.forked and life.forked.parent for _, life in record.runs()]
    assert sorted(parents, key=str) == [None, pipeline.case.run]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=() if case is TRADING else pytest.mark.thorough)
        for case in USE_CASES
    ],
)
def test_the_commands_of_its_readme_run(desk, case):
    """The commands of a README work in order; the last ones inspect the run."""
    reader = desk(case)
    lines = (reader.folder / "README.md").read_text("utf-8").splitlines()
    commands = [shlex.split(line.removeprefix("$ ")) for line in lines if line.startswith("$ ")]
    outputs = [reader.command(*command) for command in commands]
    assert all(outputs)
    looking = [
        command[1 : 1 + len(words)] for command, words in zip(commands[-5:], LOOKING, strict=True)
    ]
    assert looking == LOOKING
    assert "nothing is wrong" in outputs[-1]
    assert list(reader.folder.glob("*.html"))
