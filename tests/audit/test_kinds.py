"""Kinds of false figures of an experiment: each is found where planted, and alone."""

import json
import random
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import hansard
from tests.audit.support import Audited
from tests.examples.support import ROOT, USE_CASES, new_desk
from tests.real.support import write

pytestmark = pytest.mark.slow

BEGAN = datetime(2026, 3, 2, 10, tzinfo=UTC)
PRICES = {"input_tokens": 2.0, "output_tokens": 10.0}

Run = dict[str, Any]


def honest(experiment: str, trials: int = 2, days: int = 0) -> list[Run]:
    """Return two arms of ten tasks, each tried a few times in sequence, over some days more."""
    seeded = random.Random(experiment)
    runs: list[Run] = []
    for arm in ("a", "b"):
        began = BEGAN
        for number in range(10 * trials):
            trial, task = divmod(number, 10)
            began += timedelta(seconds=seeded.uniform(1, 90), days=days / (10 * trials))
            at, messages = began, []
            for turn in range(6):
                at += timedelta(seconds=seeded.uniform(0.5, 20))
                read, wrote = seeded.randrange(500, 9_000), seeded.randrange(20, 400)
                answer = {
                    "role": "assistant",
                    "content": f"Answer {turn}: {seeded.randbytes(40).hex()}",
                    "model": "m-1",
                    "usage": {"prompt_tokens": read, "completion_tokens": wrote},
                    "cost": (2 * read + 10 * wrote) / 1e6,
                }
                question = {"role": "user", "content": "And then?"}
                messages.append({**(answer if turn % 2 else question), "timestamp": at.isoformat()})
            runs.append(
                {
                    "run": f"{arm}{number}",
                    "experiment": experiment,
                    "arm": arm,
                    "task": task,
                    "trial": trial,
                    "labels": {"agent_llm": "lab/m-1-20260101"},
                    "messages": messages,
                    "outcome": {"reward": float(seeded.random() < 0.5)},
                }
            )
    return runs


def _of(runs: list[Run], arm: str) -> list[Run]:
    return [run for run in runs if run["arm"] == arm]


def _assistant_messages(run: Run) -> list[dict[str, Any]]:
    return [message for message in run["messages"] if message["role"] == "assistant"]


def _answered_by(model: str, runs: list[Run], declared: str = "m-1") -> None:
    for run in runs:
        run["labels"] = {"agent_llm": declared}
        for message in _assistant_messages(run):
            message["model"] = model
            message["cost"] = None  # it has no price


def _several(runs: list[Run]) -> None:
    for run in runs:
        run["labels"] = {}
    _answered_by("m-2", _of(runs, "b")[3:8], declared="m-2")


def _undeclared(runs: list[Run]) -> None:
    _answered_by("m-2", _of(runs, "b"))


def _simulator(runs: list[Run]) -> None:
    for run in runs:
        run["labels"]["user_llm"] = "gpt-4.1" if run["arm"] == "a" else "gpt-4o"


def _without(runs: list[Run], dropped: Callable[[Run], bool]) -> None:
    runs[:] = [run for run in runs if not dropped(run)]


def _later(by: timedelta, runs: list[Run]) -> None:
    for run in runs:
        for message in run["messages"]:
            when = datetime.fromisoformat(message["timestamp"]) + by
            message["timestamp"] = when.isoformat()


def _early_and_late(runs: list[Run]) -> None:
    _later(timedelta(hours=-30), [runs[17]])
    _later(timedelta(hours=30), [runs[3]])


def _timed(runs: list[Run], when: Callable[[int, int], datetime]) -> None:
    """Set each message's time by the numbers of its run and of itself."""
    for number, run in enumerate(runs):
        for turn, message in enumerate(run["messages"]):
            message["timestamp"] = when(number, turn).isoformat()


def _stepped(runs: list[Run]) -> None:
    """Space the messages by 1.5 seconds, six or five per run."""
    for run in runs[::2]:
        del run["messages"][-1]
    _timed(runs, lambda n, turn: BEGAN + timedelta(minutes=n, seconds=turn * 1.5))


def _copied(one: Run, others: list[Run]) -> None:
    """Make all but one of five answers copies of another run's."""
    extra = [
        {**message, "content": message["content"][::-1]} for message in _assistant_messages(one)[:2]
    ]
    one["messages"] += extra
    for other in others:
        texts = [message["content"] for message in _assistant_messages(one)]
        other["messages"] += [{**message} for message in _assistant_messages(other)[:2]]
        for message, text in zip(
            _assistant_messages(other), [*texts[:4], "another end " * 5], strict=True
        ):
            message["content"] = text


def _copied_short(runs: list[Run]) -> None:
    """Make all answers short, and one conversation equal to those of four tasks."""
    for number, run in enumerate(runs):
        for turn, message in enumerate(run["messages"]):
            message["content"] = f"{number} of {turn}"
    for run in runs[2:5]:
        for message, copied in zip(run["messages"], runs[1]["messages"], strict=True):
            message["content"] = copied["content"]


def _failed(runs: list[Run]) -> None:
    for run in _of(runs, "b")[:12]:
        run["outcome"] = {"reward": 0.0, "error": "no answer"}


def _constant(runs: list[Run]) -> None:
    for run in _of(runs, "b"):
        for message in _assistant_messages(run):
            message["cost"], message["model"] = 0.01, "free"
        run["labels"] = {}


def _negative(runs: list[Run]) -> None:
    _assistant_messages(runs[4])[0].update(cost=-1.0, usage=None)


def _overcharged(runs: list[Run]) -> None:
    _assistant_messages(runs[4])[0]["cost"] *= 1.05


SECONDS = [7.25, 11.5, 3.75, 20.125, 9.5]

PLANTED: dict[str, tuple[Callable[[list[Run]], None], set[str], dict[str, int]]] = {
    "honest": (lambda _: None, set(), {}),
    "days": (lambda _: None, set(), {"days": 4}),
    "several": (_several, {"several models"}, {}),
    "undeclared": (_undeclared, {"undeclared model"}, {}),
    "simulator": (_simulator, {"user simulator"}, {}),
    "lacking": (
        lambda runs: _without(runs, lambda run: run["arm"] == "b" and run["task"] in (2, 5, 6)),
        {"tasks lacking"},
        {},
    ),
    "numbers": (
        lambda runs: _without(runs, lambda run: run["task"] in (2, 5)),
        set(),  # eight tasks are too few to tell
        {},
    ),
    "skip": (
        lambda runs: _without(
            runs, lambda run: run["trial"] == 1 and run["arm"] == "b" and run["task"] in (2, 5)
        ),
        {"trial numbers skip"},
        {"trials": 3},
    ),
    "fewer": (
        lambda runs: _without(
            runs, lambda run: run["trial"] == 1 and run["arm"] == "b" and run["task"] < 7
        ),
        {"fewer trials"},
        {},
    ),
    "differ": (
        lambda runs: _without(runs, lambda run: run["trial"] > 0 and run["arm"] == "b"),
        {"trials differ"},
        {},
    ),
    "late": (lambda runs: _later(timedelta(hours=3), [runs[3], runs[7]]), {"late starts"}, {}),
    "early": (lambda runs: _later(timedelta(hours=-3), [runs[13], runs[17]]), {"early starts"}, {}),
    "early-and-late": (_early_and_late, {"early starts", "late starts"}, {}),
    "short-copies": (_copied_short, {"over tasks"}, {}),
    "over-tasks": (lambda runs: _copied(runs[1], runs[2:5]), {"over tasks"}, {}),
    "over-arms": (lambda runs: _copied(runs[1], [runs[21]]), {"over arms"}, {}),
    "equal": (lambda runs: _timed(runs, lambda _, __: BEGAN), {"all equal"}, {}),
    "round": (
        lambda runs: _timed(
            runs, lambda n, t: BEGAN + timedelta(minutes=n, seconds=10 * (t * (1 + n % 3)))
        ),
        {"all round"},
        {},
    ),
    "future": (
        lambda runs: _later(timedelta(days=40_000), _of(runs, "b")[-1:]),
        {"in the future"},
        {},
    ),
    "backwards": (
        lambda runs: _timed(
            _of(runs, "b")[-1:], lambda n, t: BEGAN + timedelta(minutes=n, seconds=99.5 - 7.25 * t)
        ),
        {"ends before it starts"},
        {},
    ),
    "durations": (
        lambda runs: _timed(
            runs,
            lambda n, t: (
                BEGAN + timedelta(minutes=n, seconds=52.125 if t == 5 else t * SECONDS[n % 5] / 3)
            ),
        ),
        {"constant durations"},
        {},
    ),
    "steps": (_stepped, {"constant steps"}, {}),
    "failures": (_failed, {"uneven"}, {}),
    "constant": (_constant, {"constant"}, {}),
    "negative": (_negative, {"negative"}, {}),
    "overcharged": (_overcharged, {"price"}, {}),
}


def test_each_planted_kind_is_reported_alone(home: Path, tmp_path: Path):
    """Each planted fault is found in its own experiment, and none in honest ones."""
    place = Audited(home, "kinds")
    file = tmp_path / "kinds.jsonl"
    made: list[Run] = []
    for name, (plant, _, shape) in PLANTED.items():
        runs = honest(name, **shape)
        plant(runs)
        made += runs
    with hansard.connect("kinds", data_dir=home) as record:
        record.experiments.price("m-1", PRICES, since=datetime(2020, 1, 1, tzinfo=UTC))
        write(file, made)
        done = place.call("import", "chat-jsonl", str(file))
        assert done.code == 0, done.err
    rows = place.call("audit", "--json").lines[:-1]
    kinds_found = {
        name: {row["what"] for row in rows if row["experiment"] == name} for name in PLANTED
    }
    assert kinds_found == {name: kinds for name, (_, kinds, _) in PLANTED.items()}
    facts = {row["what"]: row["fact"] for row in rows}
    assert "m-1 answered in 15 runs, m-2 answered in 5 runs" in facts["several models"]
    assert "lab/m-1" not in facts["undeclared model"]
    assert "lacks 3 of the 10 tasks: 2, 5, 6" in facts["tasks lacking"]
    assert "stands in 4 runs: also as task 2 under arm a" in facts["over tasks"]
    assert "80 % of the answers are the same" in facts["over arms"]
    assert "12 of the 20 runs of arm b failed" in facts["uneven"]
    assert "its mean is" in facts["tasks lacking"]
    assert "with those that it lacks as failures" in facts["tasks lacking"]
    severities = {row["what"]: row["severity"] for row in rows}
    assert severities["tasks lacking"] == "high"
    assert "1 of the 20 runs of arm a began up to 29.8 hours before" in facts["early starts"]
    following = {row["what"]: row["next"] for row in rows}
    assert following["fewer trials"] == "hansard compare fewer --show tasks"
    assert following["over tasks"].startswith("hansard run diff ")
    output = place.call("audit", "--experiment", "fewer")
    assert "medium  selection in fewer: 1 of this kind" in output.out
    assert "models of" not in output.out


@pytest.mark.thorough(quick="test_each_planted_kind_is_reported_alone")
def test_a_score_is_held_against_the_checks_beside_it(home: Path, tmp_path: Path):
    """Rewards that actions or outputs deny and tasks with numbering gaps are found."""

    def of(task: int, reward: float, stored: float, **checks: float) -> Run:
        contents = {"reward_info": {"reward": stored, "info": checks}}
        return {"task_id": task, "trial": 0, "reward": reward, "info": contents, "traj": []}

    runs = [of(n, 1.0, 1.0, r_actions=1.0) for n in range(12)]
    runs += [of(13, 1.0, 0.0), of(14, 1.0, 1.0, r_actions=0.0), of(15, 1.0, 1.0, r_outputs=0.0)]
    runs += [of(16, 0.0, 0.0, r_outputs=1.0), of(17, 0.0, 0.0, r_actions=0.0)]
    file = tmp_path / "tau.json"
    file.write_text(json.dumps(runs))
    place = Audited(home, "checks")
    with hansard.connect("checks", data_dir=home):
        done = place.call("import", "tau-bench", str(file), "--experiment", "e", "--arm", "a")
        assert done.code == 0, done.err
    rows = place.call("audit", "--json").lines[:-1]
    facts = sorted(
        row["fact"].partition("reward is ")[2] for row in rows if row["topic"] == "scores"
    )
    assert facts == [
        "1.0 in task 13, and its judge says 0.0",
        "1.0 in task 14, and its check r_actions is 0",
        "1.0 in task 15, and its check r_outputs is 0",
    ]
    [gap] = [row for row in rows if row["topic"] != "scores"]
    assert gap["what"] == "task numbers skip"
    assert "17 of the 18 tasks numbered 0 to 17, and no arm has 12" in gap["fact"]


# ------------------------------------------------------------ recorded runs of others


@pytest.mark.thorough
def test_the_use_cases_raise_nothing(home: Path, tmp_path_factory: pytest.TempPathFactory):
    """Each as its README runs it: no row in any view, retries included."""
    place = Audited(home, "cases")
    texts = tmp_path_factory.mktemp("texts")
    shutil.copytree(ROOT / "docs", texts / "docs")
    shutil.copyfile(ROOT / "README.md", texts / "README.md")
    for case in USE_CASES:
        done = new_desk(case, tmp_path_factory.mktemp("desk"), texts, home, "cases").start()
        assert done.returncode == 0, done.stderr
    assert place.findings(0.0001) == {}
    assert place.rows("SELECT * FROM retries") == []
    assert place.value("SELECT count(DISTINCT run) FROM steps") == len(USE_CASES)
    output = place.call("audit")
    assert (output.code, output.err) == (0, "")


@pytest.mark.thorough
@pytest.mark.real
def test_published_runs_raise_what_is_true_of_them(home: Path, real_data: Path):
    """tau-bench and tau2-bench: every call is answered, every cost adds up, starts lie close."""
    place = Audited(home, "published")
    files = {
        **{file.stem: ("tau-bench", file) for file in (real_data / "tau-bench").rglob("*.json")},
        **{
            file.stem: ("tau2-bench", file)
            for file in (real_data / "tau2-bench").rglob("airline_*.json")
        },
    }
    assert len(files) == 5
    with hansard.connect("published", data_dir=home):
        for name, (form, file) in files.items():
            _import(place, form, file, name)
    assert place.findings(0.05) == {}
    assert place.rows("SELECT * FROM retries") == []
    assert place.value("SELECT count(*) FROM runs") == 500


@pytest.mark.thorough(
    quick="tests/audit/test_findings.py::test_each_planted_fault_is_reported_by_its_view_alone"
)
@pytest.mark.real
def test_a_forged_publication_is_detected(home: Path, real_data: Path, tmp_path: Path):
    """A changed cost, a missing answer and a late start are found in their runs alone."""
    [file] = (real_data / "tau2-bench").rglob("airline_claude-sonnet*.json")
    publication = json.loads(file.read_bytes())
    runs = publication["simulations"]
    runs[3]["agent_cost"] += 0.01
    answered = next(i for i, m in enumerate(runs[5]["messages"]) if m["role"] == "tool")
    del runs[5]["messages"][answered]
    runs[7]["start_time"], runs[7]["end_time"] = "2025-11-03T12:00:00", "2025-11-03T12:01:00"
    for message in runs[7]["messages"]:
        message["timestamp"] = "2025-11-03T12:00:00"
    forged = tmp_path / "forged.json"
    forged.write_text(json.dumps(publication))
    place = Audited(home, "forged")
    with hansard.connect("forged", data_dir=home):
        _import(place, "tau2-bench", forged, "forged")
    named = _named(place)
    kinds_by_run = {named[run]: kinds for run, kinds in place.findings().items()}
    assert kinds_by_run == {
        runs[3]["id"]: {("gaps", "cost")},
        runs[5]["id"]: {("gaps", "unanswered call"), ("orphan_intents", "ended")},
        runs[7]["id"]: {("odd_selection", "late starts")},
    }


def _import(place: Audited, form: str, file: Path, name: str) -> None:
    done = place.call("import", form, str(file), "--experiment", name, "--arm", name)
    assert done.code in (0, 1), done.err


def _named(place: Audited) -> dict[str, Any]:
    rows = place.rows("SELECT run, labels->>'source_run' AS name FROM runs")
    return {row["run"]: row["name"] for row in rows}
