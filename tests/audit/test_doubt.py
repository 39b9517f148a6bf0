"""The calls in doubt are the same for the next start, `runs`, `run show`, the audit and SQL."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import hansard
from hansard.errors import HansardError, InDoubt, NotDone
from tests.audit.planted import kill
from tests.audit.support import Audited
from tests.cli.test_page import data_of

RAISED = (ValueError, LookupError, RuntimeError, OSError)

Body = Callable[[hansard.Session], None]


def _once(error: Exception) -> Body:
    """Call a tool that raises an error, which ends the session."""

    def body(session: hansard.Session) -> None:
        @session.tool
        def send(to: str) -> str:
            raise error

        send("x")

    return body


def _idempotent(session: hansard.Session) -> None:
    @session.tool(effects="idempotent")
    def put(to: str) -> str:
        message = "it may simply run again"
        raise ValueError(message)

    put("x")


def _cut_off(session: hansard.Session) -> None:
    @session.tool(effects="idempotent", kind="model")
    def ask(text: str) -> str:
        message = "the provider went silent"
        raise TimeoutError(message)

    ask("x")


def _reconciled(session: hansard.Session) -> None:
    def ask(to: str) -> hansard.Happened:
        message = "the world does not answer"
        raise LookupError(message)

    @session.tool(effects=hansard.reconcile(ask))
    def book(to: str) -> str:
        message = "broken"
        raise ValueError(message)

    book("x")


def _handled(session: hansard.Session) -> None:
    """Catch the error and continue: the agent saw it, and a replay raises it again."""

    @session.tool(effects="pure")
    def add(a: int) -> int:
        return a + 1

    with contextlib.suppress(ValueError):
        _once(ValueError("seen"))(session)
    add(1)
    message = "later"
    raise RuntimeError(message)


def _noted(session: hansard.Session) -> None:
    """Catch the error and decide on it: nothing but a fact follows the call."""
    with contextlib.suppress(ValueError):
        _once(ValueError("seen"))(session)
    session.checkpoint("after")
    message = "later"
    raise RuntimeError(message)


BODIES: dict[str, tuple[Body, bool]] = {
    "plain": (_once(ValueError("no such account")), True),
    "timeout": (_once(TimeoutError("no answer")), True),
    "reconciled": (_reconciled, True),
    "safe": (_once(NotDone("refused")), False),
    "idempotent": (_idempotent, False),
    "handled": (_handled, False),
    "noted": (_noted, False),
}


@pytest.fixture(scope="module")
def doubts(home: Path) -> Audited:
    """Make a run of each kind, one of a killed process, and a fork of one in doubt."""
    place = Audited(home, "doubts")
    with hansard.connect(place.workspace, data_dir=home) as record:
        for run, (body, _) in BODIES.items():
            with contextlib.suppress(Exception), record.run("w", run=run, agent="a") as session:
                body(session)
        with contextlib.suppress(ValueError), record.run("w", run="said", agent="a") as session:
            _once(ValueError("settled later"))(session)
        record.settle("said", "a#1", "did_not_happen")
        with contextlib.suppress(TimeoutError), record.run("w", run="model", agent="a") as session:
            _cut_off(session)
    kill(place, "killed")
    return place


def _expected() -> dict[str, int]:
    counts = {run: int(is_in_doubt) for run, (_, is_in_doubt) in BODIES.items()}
    return {**counts, "said": 0, "killed": 1}


def test_runs_counts_calls_in_doubt(doubts: Audited):
    """A plain error of a `once` tool counts, and so does the call of a killed process."""
    lines = map(json.loads, doubts.call("runs", "--json").out.splitlines())
    counts = {run["run"]: run["in_doubt_steps"] for run in lines}
    assert {run: counts[run] for run in _expected()} == _expected()


def test_the_audit_and_its_view_list_calls_in_doubt(doubts: Audited):
    """`audit --kind intents` and `orphan_intents` have each of them and no other."""
    rows = doubts.rows("SELECT run, kind, fact FROM orphan_intents")
    due = {run for run, count in _expected().items() if count}
    assert {row["run"] for row in rows} & {*_expected()} == due
    [plain] = [row for row in rows if row["run"] == "plain"]
    assert plain["kind"] == "in doubt"
    assert "ValueError: no such account" in plain["fact"]
    lines = doubts.call("audit", "--kind", "intents", "--json").out.splitlines()
    findings = [each for each in map(json.loads, lines) if each["kind"] == "finding"]
    assert {each["run"] for each in findings} & {*_expected()} == due


def test_a_call_that_a_resume_repeats_is_rated_low(doubts: Audited):
    """The macro `findings` and `hansard audit` agree: a model's call needs no decision."""
    query = "SELECT severity, command, fact FROM findings(0.1) WHERE run = 'model'"
    [row] = doubts.rows(query)
    assert row["severity"] == "low"
    assert row["command"] == "hansard run resume {run} -- COMMAND"
    assert row["fact"].endswith("; its effects allow to repeat it: a resume does")
    lines = map(json.loads, doubts.call("audit", "model", "--json").out.splitlines())
    [finding] = [each for each in lines if each["kind"] == "finding"]
    assert [finding["severity"], finding["fact"]] == [row["severity"], row["fact"]]


def test_a_run_shows_its_calls_in_doubt(doubts: Audited):
    """`run show` lists them as open, so that the command that settles them is at hand."""
    for run, count in _expected().items():
        lines = map(json.loads, doubts.call("run", "show", run, "--json").out.splitlines())
        [agent] = [line for line in lines if line["kind"] == "agent"]
        assert len(agent["open_steps"]) == count, run


def test_the_page_of_a_run_marks_calls_in_doubt(doubts: Audited, tmp_path: Path):
    """The newest event of the call has that status, which the header of the page counts."""
    for run, count in _expected().items():
        path = tmp_path / f"{run}.html"
        assert doubts.call("run", "html", run, "-o", str(path)).code == 0
        data = data_of(path.read_bytes())
        statuses = [data["statuses"][number] for number in data["events"]["status"] if number >= 0]
        assert statuses.count("in_doubt") >= count, run
        assert bool(count) == ("in_doubt" in statuses), run


def test_the_next_start_stops_at_the_same_calls(doubts: Audited):
    """The kernel raises InDoubt for those, and for none of the others."""
    with hansard.connect(doubts.workspace, data_dir=doubts.home) as record:
        for run, (body, is_in_doubt) in BODIES.items():
            fork = record.fork(run, effects="live")
            error: BaseException | None = None
            try:
                with record.run("w", run=fork, agent="a") as session:
                    body(session)
            except (*RAISED, HansardError) as raised:
                error = raised
            assert isinstance(error, InDoubt) == is_in_doubt, (run, error)
