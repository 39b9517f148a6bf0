"""`run settle`, `run fork`, `run resume` and `run replay` with a command."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import hansard
from tests.cli.support import Call, Runs, environment, in_doubt
from tests.faults._warm import python, run

pytestmark = pytest.mark.later

PROGRAM = """
import os, pathlib, sys
import hansard

effects, stop = pathlib.Path(sys.argv[1]), sys.argv[2]

with hansard.connect() as record:
    with record.run("pipeline", agent="worker", role="worker") as session:

        @session.tool(effects="pure")
        def look(n: int) -> int:
            return n + 1

        @session.tool(effects="once")
        def send(to: str) -> str:
            with effects.open("a") as file:
                file.write(to + "\\n")
            return "sent " + to

        @session.tool(effects="once")
        def never(to: str) -> str:
            effects.with_suffix(".never").write_text(session.run)
            os.kill(os.getpid(), 9)

        look(1)
        send("first@example.org")
        if stop == "stop":
            effects.with_suffix(".run").write_text(session.run)
            os.kill(os.getpid(), 9)
        if stop == "doubt":
            never("x")
        look(2)
        print("ended", session.mode.value, session.run)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Write a program that has an effect and can be killed midway."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def killed(program: Path, home: Path, how: str = "stop") -> str:
    """Run the program until it kills itself; its run."""
    effects = program.with_name("effects")
    command = [str(program), str(effects), how]
    done = run(command, cwd=program.parent, env=environment(home), timeout=170)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return effects.with_suffix(".run" if how == "stop" else ".never").read_text()


@pytest.mark.slow
def test_a_killed_program_is_resumed(shell, call, record, program, home):
    """The program continues the same run: recorded calls do not run again."""
    run = killed(program, home)
    effects = program.with_name("effects")
    command = [python(), str(program), str(effects), "go"]
    result = shell("run", "resume", run[:-2], "--", *command)
    assert (result.code, result.out) == (0, f"ended resume {run}\n")
    saved = "2 calls answered from the record, 1 effect not repeated; tokens unknown; money unknown"
    assert f"the resume saved: {saved}" in result.err
    [row, end] = call("savings", run, "--json").lines
    assert (end["kind"], end["position"] > 0) == ("savings", True)
    assert (row["of"], row["calls"], row["effects"], row["cost"]) == (run, 2, 1, None)
    shown = call("savings", run).out
    assert saved in shown
    other = call("savings", run, "--month", "2001-01").out
    assert "no such session went on with a run" in other
    assert f"as of position {end['position']}" in shown
    assert effects.read_text() == "first@example.org\n"
    state, worker = call("run", "show", run, "--json").lines
    assert (state["status"], worker["epoch"]) == ("completed", 2)


@pytest.mark.thorough(quick="exchange/test_replay.py::test_a_run_is_reproduced_offline")
def test_a_run_is_replayed_by_its_program(shell, call, record, program, home):
    """Strict and offline: answered from the record, no effect, nothing recorded."""
    run = killed(program, home)
    effects = program.with_name("effects")
    whole = [python(), str(program), str(effects), "go"]
    assert shell("run", "resume", run, "--", *whole).code == 0
    before = call("run", "show", run, "--json").out
    for mode, flags in (("strict", []), ("offline", ["--offline"])):
        result = shell("run", "replay", run, *flags, "--", *whole)
        assert (result.code, result.out) == (0, f"ended {mode} {run}\n")
        assert f"{mode} replay ended with exit code 0" in result.err
        assert "the replay saved: 3 calls answered from the record, 1 effect" in result.err
    assert effects.read_text() == "first@example.org\n"
    assert call("run", "show", run, "--json").out == before
    other = shell("run", "replay", run, "--", *whole[:-1], "doubt")
    assert other.code == 1
    assert "strict replay met a call that is not on record" in other.err
    idle = shell("run", "replay", run, "--", python(), "-c", "pass")
    assert idle.code == 1
    assert "no session was replayed to its end of worker (3 calls on record)" in idle.err


WRITES = """
import hansard
with hansard.connect() as record, record.run("read", agent="ada", role="writer") as session:
    session.board.put("k", 1)
"""


def test_a_replay_leaves_out_agents_that_only_read(
    shell: Call, record: hansard.Record, tmp_path: Path
):
    """They need no session; an agent that acted does. Both are named."""
    program = tmp_path / "writes.py"
    program.write_text(WRITES)
    with record.run("read", run="read-1", agent="ada", role="writer") as ada:
        ada.board.put("k", 1)
        with record.run("read", run="read-1", agent="bob", role="reader") as bob:
            assert bob.board.get("k") == 1
    replayed = shell("run", "replay", "read-1", "--", python(), str(program))
    assert replayed.code == 0
    assert "not replayed, since it only read the record: bob (1 call on record)" in replayed.err
    idle = shell("run", "replay", "read-1", "--", python(), "-c", "pass")
    assert idle.code == 1
    assert "no session was replayed to its end of ada (1 call on record)" in idle.err


@pytest.mark.slow
def test_doubt_is_settled_from_the_command_line_and_the_run_ends(
    shell: Call, call: Call, record: hansard.Record, program: Path, home: Path
):
    """Resume stops with the command to type; after it was typed, the program ends."""
    run = killed(program, home, "doubt")
    effects = program.with_name("effects")
    command = [python(), str(program), str(effects), "doubt"]
    stopped = shell("run", "resume", run, "--", *command)
    assert stopped.code == 1
    remedy = f" run settle {run} worker#3 --happened RESULT or --did-not-happen"
    assert remedy in stopped.err
    other = in_doubt(record, "other")
    for shows in (["trace", run], ["replay", run], ["diff", run, other]):
        assert "requested, in doubt" in call("run", *shows).out
    assert any(line.get("in_doubt") for line in call("run", "replay", run, "--json").lines)
    moves = [line["a"] or {} for line in call("run", "diff", run, other, "--json").lines[3:-1]]
    assert [move["tool"] for move in moves if move.get("in_doubt")] == ["never"]
    intent = next(each for each in call("trail", run, "--json").lines if each.get("step") == 3)
    result = call("run", "settle", run, intent["address"], "--happened", '"x"', "--by", "me")
    assert result.code == 0
    assert call("run", "trace", run, "--json").lines[-1]["settled_by"] == "me"
    assert "step worker#3 (never) is settled: happened by me, now completed" in result.out
    late = call("run", "settle", run, intent["address"], "--did-not-happen", "--by", "you")
    assert late.code == 2
    assert "it was settled as happened by me at 2" in late.err
    assert f"hansard run resume {run} -- COMMAND" in result.err
    assert shell("run", "resume", run, "--", *command).out == f"ended resume {run}\n"


@pytest.mark.parametrize("point", ["bob@1", "bob#1"])
def test_a_point_of_an_agent_that_is_not_there_names_those_that_are(call, runs, point):
    """A fork at a point of an unknown agent names the run's agents."""
    done = call("run", "fork", runs.team, "--at", point)
    assert (done.code, done.out) == (2, "")
    assert f"agent 'bob' in run {runs.team} was not found: its agents are researcher_1" in done.err


@pytest.mark.parametrize("point", ["99999", "2900-01-01T00:00:00Z"])
@pytest.mark.parametrize("command", ["run fork", "run show", "memory show org x.md"])
def test_a_point_beyond_the_end_of_the_record_is_refused(call, runs, command, point):
    """A position after the newest, and a time in the future, name no state: nothing is shown."""
    words = command.split()
    done = call(*words, *([runs.team] if words[0] == "run" else []), "--at", point)
    assert (done.code, done.out) == (2, "")
    assert f"{point} was not found: the record ends at position " in done.err


STARTS_A_HELPER = """
import os, subprocess, sys
import hansard
if sys.argv[1] == "helper":
    with hansard.Session("helper", workspace="lab") as session:
        names = {"HANSARD_RUN", "HANSARD_MODE", "HANSARD_REPORT"}
        print(session.run, sorted(names & {*os.environ}))
    sys.exit()
with hansard.Session("main", workspace="lab", run="main-1") as session:
    @session.tool(effects="idempotent")
    def start(number: int) -> str:
        command = [PYTHON, __file__, "helper"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    print(start(int(sys.argv[2])), end="")
with hansard.Session("main", workspace="lab") as session:  # the run that is resumed
    print(session.run if sys.argv[2] == "2" else "")
"""


@pytest.mark.slow
def test_what_a_resumed_program_starts_has_a_run_of_its_own(shell, record, tmp_path):
    """All sessions of a program resume the given run; a helper started by a tool does not."""
    program = tmp_path / "program.py"
    program.write_text(STARTS_A_HELPER.replace("PYTHON", repr(python())))
    resume = ("run", "resume", "main-1", "--", python(), str(program), "main")
    with record.run("main", run="main-1"):
        pass
    result = shell(*resume, "2")
    assert result.code == 0, result.err
    helper, again = result.out.splitlines()
    assert helper.endswith(" []")
    assert helper.split()[0] != "main-1" == again


def test_resume_without_a_command_says_how(call: Call, runs: Runs):
    """The error names the program as a label, and nothing runs."""
    result = call("run", "resume", runs.doubt)
    assert result.code == 0
    assert f"hansard run resume {runs.doubt} -- COMMAND" in result.out
    assert "a label, which is never run from the record" in result.out
    assert "sender#1 (send) may need settling first" in result.err


@pytest.mark.slow
def test_a_command_gets_its_settings_and_its_code_is_ours(shell: Call, runs: Runs, home: Path):
    """The environment names run, mode, workspace and data directory; exit codes pass through."""
    code = "import os,sys;[print(k,v) for k,v in os.environ.items() if 'HANSARD' in k];sys.exit(7)"
    result = shell("run", "resume", runs.team, "--", python(), "-c", code)
    assert result.code == 7
    variables = dict(line.split(" ", 1) for line in result.out.splitlines())
    assert (variables["HANSARD_RUN"], variables["HANSARD_MODE"]) == (runs.team, "resume")
    assert variables["HANSARD_WORKSPACE"] == "lab"
    assert variables["HANSARD_DATA_DIR"] == str(home)
    kill = "import os;os.kill(os.getpid(),9)"
    died = shell("run", "resume", runs.team, "--", python(), "-c", kill)
    assert died.code == 137
    assert "the resume saved: not known how many calls" in died.err
    missing = shell("run", "resume", runs.team, "--", "no-such-program")
    assert missing.code == 2
    assert "'no-such-program' cannot be run" in missing.err


def test_a_signal_reaches_the_command(runs: Runs, home: Path):
    """SIGTERM ends the child too: no orphan is left."""
    code = "import os,time;print(os.getpid(),flush=True);time.sleep(60)"
    hansard_command = [sys.executable, "-m", "hansard"]
    parent = subprocess.Popen(
        [*hansard_command, "run", "resume", runs.team, "--", sys.executable, "-c", code],
        env=environment(home),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.terminate()
    assert parent.wait(20) == 128 + signal.SIGTERM
    parent.stdout.close()
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_a_fork_prints_its_id_alone(call: Call, runs: Runs):
    """Stdout has only the id, for scripts; the next command is on stderr."""
    result = call("run", "fork", runs.team, "--at", "researcher_1@6")
    run = result.out.strip()
    assert result.code == 0
    assert len(result.out.splitlines()) == 1
    assert f"hansard run resume {run} -- COMMAND" in result.err
    state, researcher = call("run", "show", run, "--json").lines
    assert state["forked"]["parent"] == runs.team
    assert researcher["steps"] == {"completed": 1, "requested": 1}
    [line] = call("run", "fork", runs.team, "--effects", "live", "--json").lines
    assert (line["parent"], line["effects"]) == (runs.team, "live")
    assert call("run", "fork", runs.team, "--at", "nowhere").code == 2


@pytest.mark.parametrize(
    ("flags", "fact"),
    [
        ([], "none was given"),
        (["--reuse", "--run-again"], "--reuse and --run-again were given"),
        (["--happened", "1", "--did-not-happen"], "--happened and --did-not-happen were given"),
    ],
)
def test_a_step_is_settled_by_exactly_one_verdict(call, runs, flags, fact):
    """None or two are an error that lists all four."""
    result = call("run", "settle", runs.doubt, "1", *flags)
    assert result.code == 2
    assert fact in result.err
    assert "--happened RESULT, --did-not-happen, --reuse, --run-again" in result.err


@pytest.mark.parametrize(
    ("step", "flag", "fact"),
    [
        ("9", "--did-not-happen", "step 9 of 'sender'"),
        ("nobody#1", "--did-not-happen", "agent 'nobody' of run"),
        ("first", "--did-not-happen", "give agent#number"),
        ("1", "--reuse", "has no outcome to reuse"),
    ],
)
def test_a_step_that_cannot_be_settled_so_is_named(call, runs, step, flag, fact):
    """No such step, no such agent, no such verdict for it: nothing is written."""
    before = call("run", "show", runs.doubt, "--json").out
    result = call("run", "settle", runs.doubt, step, flag)
    assert result.code == 2
    assert fact in result.err
    assert call("run", "show", runs.doubt, "--json").out == before


def test_a_step_of_another_run_is_named_with_its_run(call: Call, runs: Runs):
    """An address in another run is reported with that run."""
    address = next(
        row["address"]
        for row in call("trail", runs.settled, "--json").lines
        if row.get("tool") == "send"
    )
    result = call("run", "settle", runs.doubt, address, "--did-not-happen")
    assert result.code == 2
    assert f"{address} is in run {runs.settled}" in result.err
    again = call("run", "settle", runs.settled, address, "--did-not-happen")
    assert "settled as happened by" in again.err


@pytest.mark.fast(cases=3, slow=0)
@pytest.mark.parametrize(
    ("typed", "result"),
    [
        ('{"id": [1, 2.5, null]}', {"id": [1, 2.5, None]}),
        ("sent to nobody", "sent to nobody"),
        ('"quoted"', "quoted"),
        ("null", None),
        ('{"$tuple": [1, {"$set": [2]}]}', {"$tuple": [1, {"$set": [2]}]}),
        ('{"$ref": "#/x"}', {"$map": [["$ref", "#/x"]]}),
        ("NaN", "NaN"),
    ],
)
def test_a_result_is_json_or_text(call: Call, record: hansard.Record, typed: str, result: object):
    """JSON where it is JSON, tagged values as `run trace` shows them; else the text itself."""
    run = in_doubt(record, "typed")
    settled = call("run", "settle", run, "sender#1", "--happened", typed, "--json")
    assert settled.lines == [
        {"run": run, "step": "sender#1", "verdict": "happened", "status": "completed"}
    ]
    [step] = call("run", "trace", run, "--json").lines
    assert step["result"] == result
    assert call("run", "replay", run).code == 0


def test_a_completed_run_has_nothing_to_resume(call: Call, record: hansard.Record):
    """After a settlement in a completed run, the hint says that only a reopened run uses it."""
    with record.run("completed", agent="sender", role="sender") as session:

        @session.tool
        def send(to: str) -> str:
            raise TimeoutError(to)

        for to in "ab":
            with contextlib.suppress(TimeoutError):
                send(to)
    first, second = (call("run", "settle", session.run, each, "--happened", "1") for each in "12")
    assert first.err == "still in doubt: sender#2; settle them too\n"
    assert f"run {session.run} is completed: nothing is left to resume" in second.err


def test_what_did_not_happen_may_run_again(call: Call, record: hansard.Record):
    """The resumed session runs the step by the mended tool, without a warning."""
    run = in_doubt(record, "again")
    assert call("run", "settle", run, "1", "--did-not-happen").code == 0
    with record.run(run=run, agent="sender", role="sender") as session:

        @session.tool
        def send(to: str) -> str:
            return "sent now"

        assert send("x@example.org") == "sent now"
    [step] = call("run", "trace", run, "--json").lines
    assert (step["status"], step["result"]) == ("completed", "sent now")
    assert call("run", "replay", run).code == 0


def test_a_run_is_ended_and_a_task_reopened_by_command(call: Call, record: hansard.Record) -> None:
    """Reason, author and action are on record; a repetition reports the existing state."""
    with record.run("w", run="ended", agent="ada", role="writer") as ada:
        ada.team.add("one")
        with pytest.raises(ValueError, match="no"), ada.team.claimed():
            raise ValueError("no")
        done = call("run", "reopen", "ended", "t1", "--reason", "it is", "--by", "paula")
        assert (done.code, "task t1 of run ended is open" in done.out) == (0, True)
        [line] = call("run", "reopen", "ended", "t1", "--json").lines
        assert (line["run"], line["task"], line["result"]) == ("ended", "t1", False)
        assert "run egress: nothing of run 'ended'" in call("run", "egress", "ended").err
        unknown = call("run", "reopen", "ended", "t9").err
        assert "no task 't9' in run ended: see 'hansard team ended'" in unknown
        assert "at work" in call("run", "show", "ended").out
        assert "ada in ended" in call("status").out
        [run] = [line for line in call("runs", "--json").lines if line["run"] == "ended"]
        assert (run["status"], run["at_work"]) == ("open", ["ada"])
        done = call("run", "cancel", "ended", "--reason", "late")
        assert (done.code, done.out.strip()) == (0, "run ended is cancelled")
        assert "is cancelled already" in call("run", "cancel", "ended").out
        refused = call("run", "finish", "ended")
        assert refused.code
        refusal = "run ended is cancelled and cannot become completed: resume it first with "
        assert f"{refusal}'hansard run resume ended'" in refused.err
    [shown, *_] = call("run", "show", "ended", "--json").lines
    assert (shown["status"], shown["at_work"]) == ("cancelled", [])
    [line] = call("run", "finish", "ended", "--json").lines or [{}]
    assert not line
