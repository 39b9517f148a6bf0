"""`hansard bisect`: the first step of a run after which a check fails."""

import asyncio
import itertools
import sys
from pathlib import Path

import pytest

import hansard
from hansard.domain.errors import BadValue
from hansard.inspect.bisect import Condition, Outcome, Relation, Verdict, search
from tests.cli.support import Call
from tests.faults._warm import python

pytestmark = pytest.mark.later

STEPS = 9
TOTAL = "json.load(sys.stdin)['life']['board'].get('total', {}).get('value', 0)"


@pytest.fixture(scope="module")
def run(record: hansard.Record) -> str:
    """Make a run that counts up on the board, and ends with a message; return its id."""
    with record.run("sums", agent="adder", role="adder") as session:

        @session.tool(effects="pure")
        def price(n: int) -> int:
            return n * n

        for n in range(1, STEPS + 1):
            session.board.put("total", price(n))
        session.message("assistant", "finished")
        return session.run


def check(code: str) -> str:
    """Return the check that runs Python code: its exit code is that of `exit(...)`."""
    return f'{sys.executable} -c "import json, os, sys; {code}"'


@pytest.mark.parametrize(
    ("first", "expected"), [(1, "adder#2"), (25, "adder#10"), (81, "adder#18")]
)
def test_the_first_bad_step_is_found(call: Call, run, first, expected):
    """At most 2 + log2 of the states are checked; its call and the difference are shown."""
    made = call("bisect", run, "--check", check(f"exit({TOTAL} >= {first})"), "--json")
    assert made.code == 0
    head, step, *rest = made.lines
    assert (head["outcome"], head["states"], head["bad"]["after"]) == ("found", 20, [expected])
    assert (step["step"], step["tool"], step["arguments"]["value"]) == (
        expected,
        "board.put",
        first,
    )
    probes = [line for line in rest if line.get("kind") == "probe"]
    assert len(probes) == head["checked"] <= 2 + 5
    assert {probe["verdict"] for probe in probes} == {"good", "bad"}
    assert any(line.get("path") == ["board", "total", "value"] for line in rest) == (first > 1)
    assert "once the check fails, it fails after every later step" in head["assumed"]


def test_people_see_the_call_the_difference_and_the_assumption(call: Call, run):
    """The table has each probe; the text names the step and a way to go on there."""
    made = call("bisect", run, "--check", check(f"exit({TOTAL} >= 25)"))
    assert "The check fails first after adder#10." in made.out
    assert "board.put" in made.out
    assert "16 → 25" in made.out
    assert "assumed: once the check fails" in made.err + made.out
    assert f"hansard run fork {run} --at" in made.err + made.out


def test_a_check_gets_the_state_and_its_names(call: Call, run, tmp_path: Path):
    """The file is what stdin has; the point can be used with other commands; no run is resumed."""
    log = tmp_path / "log"
    code = (
        "a = json.load(sys.stdin); b = json.load(open(os.environ['HANSARD_BISECT_STATE'])); "
        "e = os.environ; assert a == b and a['run'] == e['HANSARD_BISECT_RUN']; "
        "assert str(a['position']) == e['HANSARD_BISECT_AT'] and 'HANSARD_RUN' not in e; "
        f"print(e['HANSARD_BISECT_STEP'], file=open('{log}', 'a')); "
        "exit('adder#4' in [f'adder#{n}' for n in a['agents'].get('adder', {}).get('steps', {})])"
    )
    made = call("bisect", run, "--check", check(code), "--json")
    assert made.lines[0]["bad"]["after"] == ["adder#4"], made.err
    steps = log.read_text().splitlines()
    assert steps[:2] == ["", ""]
    assert len(steps) == made.lines[0]["checked"]
    assert set(steps[2:]) <= {f"adder#{n}" for n in range(1, 19)}


def test_skipped_states_leave_several_steps(call: Call, run):
    """Exit code 125 skips a state: the answer names the steps that remain."""
    code = f"t = {TOTAL}; exit(125 if 16 <= t < 36 else t >= 36)"
    made = call("bisect", run, "--check", check(code), "--json")
    head, *rest = made.lines
    assert (made.code, head["outcome"]) == (0, "among skipped steps")
    names = [line["step"] for line in rest if line.get("kind") == "step"]
    assert names == [f"adder#{n}" for n in range(8, 13)]


@pytest.mark.parametrize(
    ("code", "exit_code", "text"),
    [
        ("exit(0)", 1, "passes at the end of the run: there is no step to find. 1 of 20 states"),
        ("exit(3)", 1, "fails at the beginning of the run already"),
        ("exit(125)", 2, "the check skips the end of the run (exit code 125)"),
        ("print('no'); exit(200)", 2, "the check ended with 200 after the end of the run"),
        ("os.kill(os.getpid(), 9)", 2, "its last line: (none)"),
        ("import time; time.sleep(99)", 2, "did not end within 1 s: see --timeout"),
    ],
)
def test_no_step_is_found_for_a_stated_reason(call: Call, run, code, exit_code, text):
    """A check that always passes or fails ends with 1; one that cannot be used with 2."""
    made = call("bisect", run, "--timeout", "1", "--check", f"exec {check(code)}")
    assert made.code == exit_code
    assert text in made.out + made.err


def test_a_run_without_steps_and_an_unknown_agent_are_errors(call: Call, record, run):
    """Both errors name what is missing."""
    with record.run("empty", agent="ada", role="writer") as session:
        empty = session.run
    assert "has no step with an outcome" in call("bisect", empty, "--check", "true").err
    made = call("bisect", run, "--check", "true", "--agent", "nobody")
    assert (made.code, "agent 'nobody'" in made.err) == (2, True)


PROGRAM = """
import pathlib, sys, hansard

with hansard.connect() as record, record.run("mails", agent="ada", role="writer") as session:

    @session.tool(effects="pure")
    def draft(n: int) -> str:
        return f"draft {n}" if n < 3 or pathlib.Path(sys.argv[2]).exists() else "spam"

    @session.tool(effects="once")
    def send(text: str) -> str:
        with open(sys.argv[1], "a") as file:
            file.write(text + "\\\\n")
        return "sent " + text

    texts = [draft(n) for n in range(5)]
    session.board.put("mail", send(" ".join(texts)))
"""


def test_a_program_goes_on_in_forks_without_effects(call: Call, record, shell, tmp_path: Path):
    """With a command each state is forked; the step with the recorded fault is found, and no mail
    is sent again. The forks have a label.
    """
    sent, repaired = tmp_path / "sent", tmp_path / "repaired"
    program = tmp_path / "mails.py"
    program.write_text(PROGRAM.replace("\\\\n", "\\n"))
    command = [python(), program, sent, repaired]
    before = {run for run, _ in record.runs()}
    made = shell("run", "resume", _begun(record), "--", *map(str, command))
    assert made.code == 0, made.err
    [run] = {run for run, _ in record.runs(workflow="mails")} - before
    repaired.touch()
    judge = check("exit('spam' in json.dumps(json.load(sys.stdin)['agents']['ada']['steps']))")
    made = call("bisect", run, "--check", judge, "--json", "--", *map(str, command))
    head, step, *rest = made.lines
    assert (head["outcome"], head["bad"]["after"], step["result"]) == ("found", ["ada#4"], "spam")
    assert sent.read_text().count("\n") == 1
    forks = [line["fork"] for line in rest if line.get("kind") == "probe"]
    assert all(record.state(fork).life.labels["bisect"] == run for fork in forks)
    assert len(set(forks)) == head["checked"]


def _begun(record: hansard.Record) -> str:
    with record.run("mails", agent="ada", role="writer") as session:
        return session.run


@pytest.mark.parametrize("last", range(1, 8))
def test_the_search_is_right_for_every_first_bad_state(last: int):
    """For all places of the first bad state and all sets of skipped ones between the ends."""
    for bad in range(1, last + 1):
        inner = range(1, last)
        for skipped in itertools.chain.from_iterable(
            itertools.combinations(inner, size) for size in range(len(inner) + 1)
        ):
            probed: list[int] = []

            async def probe(number: int, bad: int = bad, skips: tuple[int, ...] = skipped):
                probed.append(number)  # noqa: B023 -- called at once
                if number in skips:
                    return Verdict.SKIPPED
                return Verdict.BAD if number >= bad else Verdict.GOOD

            outcome, low, high = asyncio.run(search(last, probe))
            judged = [n for n in range(last + 1) if n not in skipped]
            assert high == min(n for n in judged if n >= bad)
            assert low == max(n for n in judged if n < bad)
            assert (outcome is Outcome.FOUND) == (high - low == 1)
            assert len(probed) == len(set(probed))


NAMED = """
import pathlib, sys, hansard

OPENS

    @session.tool(effects="once")
    def pay(n: int) -> str:
        with open(sys.argv[1], "a") as file:
            file.write(f"{n} ")
        return f"paid {n}"

    for n in range(3):
        pay(n)
    pay(len(sys.argv))
"""
OPENINGS = {
    "session": 'with hansard.Session("eff", run=NAME) as session:',
    "record": 'with hansard.connect() as record, record.run("eff", run=NAME) as session:',
    "connect": 'with hansard.connect(run=NAME) as record, record.run("eff") as session:',
}


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("opens", OPENINGS)
def test_a_program_that_names_another_run_is_refused_before_it_does_anything(
    call: Call, record, shell, tmp_path: Path, opens
):
    """It would have real effects in the original instead of the fork; both names are in the error,
    and the search ends with an error instead of a verdict.
    """
    paid, program, name = tmp_path / "paid", tmp_path / "eff.py", f"eff-{opens}"
    program.write_text(NAMED.replace("OPENS", OPENINGS[opens].replace("NAME", repr(name))))
    command = [python(), str(program), str(paid)]
    with record.run("eff", run=name):
        pass
    same = shell("run", "resume", name, "--", *command)
    assert (same.code, paid.read_text()) == (0, "0 1 2 2 "), same.err
    before = record.state(name).agent("agent").version
    fork = record.fork(name)
    resumed = shell("run", "resume", fork, "--", *command, "more")
    assert resumed.code == 1
    assert f"run='{name}' was given, but this process was started to continue" in resumed.err
    assert f"run '{fork}' (HANSARD_RUN)" in resumed.err
    judged = call("bisect", name, "--check", "true", "--", *command, "more")
    assert judged.code == 2
    assert "ended with exit code 1 without a session in fork" in judged.err
    assert "there is nothing to judge" in judged.err
    assert (paid.read_text(), record.state(name).agent("agent").version) == ("0 1 2 2 ", before)


def test_a_command_that_joins_no_fork_ends_the_search(call: Call, run):
    """Exit code 0 without a session is no verdict."""
    made = call("bisect", run, "--check", "true", "--", sys.executable, "-c", "print('idle')")
    assert made.code == 2
    assert "without a session in fork" in made.err
    assert "its last line: idle" in made.err


@pytest.mark.parametrize(
    ("pointer", "test", "value", "holds"),
    [
        ("/life/status", Relation.EQUALS, "open", True),
        ("/life/status", Relation.DIFFERS, "open", False),
        ("/life/a~1b", Relation.EXISTS, None, True),
        ("/life/list/1", Relation.EQUALS, 2, True),
        ("/life/list/2", Relation.EXISTS, None, False),
        ("/life/list/2", Relation.MISSING, None, True),
        ("", Relation.CONTAINS, "deep", True),
        ("", Relation.LACKS, "deep", False),
        ("/life/list", Relation.CONTAINS, 2, True),
        ("/life/amount", Relation.BELOW, 2, True),
        ("/life/amount", Relation.ABOVE, 2, False),
        ("/life/status", Relation.ABOVE, 2, False),
    ],
)
def test_a_condition_tests_one_value_of_a_state(
    pointer: str, test: Relation, value: object, holds: bool
):
    """A pointer names the value; a missing value and an unfit type do not hold."""
    life = {"status": "open", "a/b": 1, "list": [1, 2], "amount": 1.5, "text": ["so deep"]}
    condition = Condition(pointer=pointer, test=test, value=value)
    assert condition.holds({"life": life}) is holds


def test_a_pointer_begins_with_a_slash():
    """Anything else is refused, with the remedy."""
    with pytest.raises(BadValue, match="begin it with '/'"):
        Condition(pointer="life", test=Relation.EXISTS).holds({})
