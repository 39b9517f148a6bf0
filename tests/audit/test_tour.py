"""The tour of examples/audit.sql: every statement runs, and each shows something."""

from pathlib import Path

import pytest

import hansard
from hansard.domain.ids import AgentStream
from hansard.domain.roles.model import May, RoleDefined, RoleRule
from tests.audit.planted import plant
from tests.audit.support import Audited
from tests.examples.support import TRADING, new_desk
from tests.team.forging import forged, message, message_added, publish

pytestmark = pytest.mark.thorough

TOUR = Path(__file__).parents[2] / "examples" / "audit.sql"


def statements() -> list[tuple[str, str]]:
    """Return each question: the sentence before it, and its SQL."""
    questions = []
    for block in TOUR.read_text(encoding="utf-8").split("\n\n"):
        lines = block.strip().splitlines()
        words = " ".join(line.removeprefix("--").strip() for line in lines if line[:2] == "--")
        sql = "\n".join(line for line in lines if line[:2] != "--")
        if sql:
            questions.append((words, sql.removesuffix(";")))
    return questions


def office(place: Audited) -> None:
    """Record a team with a waiting, a refused and an unanswered agent, and one forged commit."""
    with hansard.connect(place.workspace, data_dir=place.home) as record:
        sees = RoleRule(name="all", kinds=("**",))
        record.roles.apply("clerk", RoleDefined(sees=(sees,), may=May(kinds=("message.added",))))
        asks = [hansard.ask_first(tool="post", timeout_s=0.2)]
        with (
            record.run("office", run="office-1", agent="ada", role="boss", gate=asks) as ada,
            record.run(run="office-1", agent="cyd", role="clerk") as cyd,
        ):
            ada.team.add("Read", task="read")
            ada.team.add("Write", waits_for=["read"], task="write")
            mine = ada.team.claim()
            assert mine is not None
            ada.team.complete(mine)
            ada.team.claim()
            with pytest.raises(hansard.Blocked):
                ada.tool(effects="once", name="post")(lambda: None)()
            with pytest.raises(hansard.Blocked):
                cyd.board.put("plan", 1)
        stream = AgentStream("office-1", "clerk", "cyd")
        version = record.state("office-1").vector[str(stream)] + 1
        made = (stream, forged(version, message_added(), by="ada", epoch=1))
        publish(place.home, message(place.workspace, version, made))


@pytest.fixture(scope="module")
def trade(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """Return the trading example, killed and settled, and runs with one fault each."""
    place = Audited(home, "tour")
    plant(place, tmp_path_factory.mktemp("chats"), honest=False)
    empty = tmp_path_factory.mktemp("texts")
    desk = new_desk(TRADING, tmp_path_factory.mktemp("desk"), empty, home, "tour")
    desk.start(kill_at="return enter_in_book")
    assert desk.start().returncode != 0
    desk.settle()
    done = desk.start()
    assert done.returncode == 0, done.stderr
    office(place)
    return place


@pytest.mark.thorough(quick="audit/test_findings.py::test_every_query_of_the_tour_runs")
def test_every_question_is_answered(trade: Audited):
    """Each answer has rows if such data exists."""
    questions = statements()
    answers = trade.answers(*((sql, []) for _, sql in questions))
    assert [words for (words, _), rows in zip(questions, answers, strict=True) if not rows] == []


def test_the_answers_are_those_of_the_trade(trade: Audited):
    """The settled order is reported as settled; at the decision no order was known."""
    queries = {
        key: next(sql for words, sql in statements() if words.startswith(key))
        for key in ("What did a person do", "What was known when", "Where did somebody")
    }
    person, known, over = trade.answers(*((sql, []) for sql in queries.values()))
    assert [(row["run"], row["what"]) for row in person] == [("trade-1", "settled")]
    assert {row["tool"] for row in known} == {"daily_prices", "moving_average", "judge"}
    assert {row["status"] for row in known} == {"completed"}
    assert [(row["kind"], row["run"]) for row in over] == [("settled", "trade-1")]
    assert "trade-1" not in trade.findings()
