"""`runs`, `run show`, `run trace` and `status` over real runs."""

import functools
import json
import re

import pytest

import hansard
from hansard.broker import lease as server
from hansard.bus.clock import OS_USER
from hansard.bus.errors import NotFound
from hansard.bus.jetstream.client import Broker, BrokerOptions
from hansard.client import opening
from hansard.domain.ids import RunStream
from hansard.domain.run import RunCompleted
from hansard.settings import load
from tests.cli.planting import commit, plant
from tests.cli.support import BIG, Call, Runs

pytestmark = pytest.mark.later


def test_runs_lists_the_newest_first(call: Call, runs: Runs):
    """A line a run: id, workflow, status, agents, steps and times; the newest on top."""
    lines = call("runs", "--json", "--limit", "0").lines
    by_id = {line["run"]: line for line in lines}
    team = by_id[runs.team]
    assert (team["workflow"], team["status"]) == ("paper-pipeline", "completed")
    assert team["agents"] == {"researcher_1": "researcher", "writer": "writer"}
    assert (team["steps"], team["labels"]) == (14, {"kind": "test"})
    assert team["conversation"] == "talk"
    assert team["began"]["at"] < team["last"]["at"]
    assert team["began"]["clock"] == "log"
    assert by_id[runs.doubt]["open_steps"] == 1
    steps = call("run", "trace", runs.team, "--json").lines
    failed = sum(step.get("status") == "failed" for step in steps)
    assert (team["failed_steps"], team["in_doubt_steps"]) == (failed, 0)
    assert (by_id[runs.doubt]["failed_steps"], by_id[runs.doubt]["in_doubt_steps"]) == (0, 1)
    heading = call("runs", "--limit", "0").out.splitlines()[0]
    assert re.search(r"steps +open +under way +in doubt +failed", heading)
    assert by_id[runs.forked]["forked_from"] == runs.team
    order = [line["run"] for line in lines]
    assert order.index(runs.forked) < order.index(runs.failed) < order.index(runs.team)


def test_runs_can_be_narrowed(call: Call, runs: Runs):
    """`--status` and `--limit` select; the number left out is on stderr."""
    failed = call("runs", "--status", "failed", "--json", "--limit", "0").lines
    assert {line["status"] for line in failed} == {"failed"}
    assert runs.failed in {line["run"] for line in failed}
    one = call("runs", "--limit", "1")
    assert len(one.out.splitlines()) == 2
    assert "--limit 0 shows all" in one.err


@pytest.mark.slow
def test_runs_that_cannot_be_read_are_counted_where_a_filter_leaves_them_out(call, record, home):
    """A run with a damaged life might match the filter, so the list reports it."""
    with hansard.connect(workspace="cut", data_dir=home):
        plant(home, "cut", (RunStream("cut"), commit(3, RunCompleted(), epoch=0)))
        filtered = call("runs", "--status", "completed", workspace="cut")
        assert "1 run could not be read and may match" in filtered.err
        assert "cut" in call("runs", workspace="cut").out


@pytest.mark.parametrize("json", [(), ("--json",)])
def test_filters_are_shown_where_no_run_matches(call: Call, runs: Runs, json: tuple[str, ...]):
    """The filters as they were understood, and of a name that no run has those that there are."""
    narrowed = "--status failed --workflow paper-pipelin --agent researcher_1 --role researcher"
    result = call("runs", *narrowed.split(), "--until", "2020-01-01T00:00:00Z", *json)
    assert (result.code, result.out) == (0, "")
    filters = "status failed, workflow 'paper-pipelin', agent 'researcher_1', role 'researcher'"
    assert f" is: {filters}, begun until 2020-01-01T00:00:00+00:00\n" in result.err
    assert (
        "no run has workflow 'paper-pipelin': did you mean 'paper-pipeline'? there are: "
        in result.err
    )
    wrong = call("runs", "--since", "yesterday", *json)
    assert wrong.code == 2
    assert (
        wrong.err == "error: --since: 'yesterday'; give a time with a zone: 2024-10-01T00:00:00Z\n"
    )
    odd = call("runs", "--status", "odd", *json)
    assert odd.code == 2
    assert "'completed', 'failed'" in odd.err


def test_people_get_a_table_without_escapes(call: Call, runs: Runs):
    """Piped output has no colour, and recorded control characters cannot add any."""
    for arguments in (("runs",), ("run", "show", runs.team), ("run", "trace", runs.team)):
        result = call(*arguments)
        assert result.code == 0
        assert runs.team[:8] in result.out or "researcher_1#1" in result.out
        assert "\x1b" not in result.out + result.err
    assert "ValueError: not \\x1b[31myet" in call("run", "trace", runs.team).out


def test_show_tells_the_state_of_every_agent(call: Call, runs: Runs):
    """Life, roster, and of each agent version, epoch, steps, checkpoints, decisions, tokens."""
    run, researcher, writer = call("run", "show", runs.team, "--json").lines
    assert (run["kind"], run["status"], run["conversation"]) == ("run", "completed", "talk")
    assert researcher["agent"] == "researcher_1"
    assert researcher["steps"] == {"completed": 12, "failed": 1}
    assert researcher["checkpoints"] == {"gathered": {"papers": 3}}
    assert researcher["decisions"][0]["selected"] == "p1"
    assert (researcher["context_tokens"], researcher["turn_number"]) == (3, 1)
    assert researcher["resources"] == [{"uri": "file:///5", "operation": "read"}]
    assert (writer["role"], writer["epoch"], writer["left"]) == ("writer", 1, "completed")
    text = call("run", "show", runs.team).out
    for fact in ("paper-pipeline", "researcher_1", "gathered", "Which first?", "3 tokens"):
        assert fact in text


def test_an_open_step_comes_with_the_command_that_settles_it(call: Call, runs: Runs):
    """A doubt is shown with its remedy."""
    result = call("run", "show", runs.doubt)
    assert "sender#1" in result.out
    assert "TimeoutError: slow" in result.out
    assert f"hansard run settle {runs.doubt} STEP --happened RESULT" in result.err


def test_one_agent_can_be_selected(call: Call, runs: Runs):
    """`--agent` narrows; a name that is not in the run is an error that lists those that are."""
    lines = call("run", "show", runs.team, "--agent", "writer", "--json").lines
    assert [line.get("agent") for line in lines[1:]] == ["writer"]
    result = call("run", "show", runs.team, "--agent", "nobody")
    assert result.code == 2
    assert "its agents at this point are: researcher_1, writer" in result.err


def test_a_forks_snapshots_go_on_from_its_parents(call: Call, runs: Runs, record: hansard.Record):
    """The same point has the same snapshot id in the fork and in its parent."""
    fork = record.fork(runs.doubt)
    with record.run(run=fork, agent="sender", role="sender") as session:

        @session.tool(effects="pure")
        def look() -> int:
            return 1

        look()
    whole = ("--snapshots", "--json")
    parents = call("run", "show", runs.doubt, *whole).lines
    forks = call("run", "show", fork, *whole).lines
    inherited = forks[: len(parents)]
    assert [s["snapshot_id"] for s in inherited] == [s["snapshot_id"] for s in parents]
    assert [s["parent_snapshot"] for s in forks[1:]] == [s["snapshot_id"] for s in forks[:-1]]
    assert [s["moment"] for s in forks[len(parents) :]] == ["before", "after", "final"]


def test_one_snapshot_is_the_state_at_the_point(call: Call, runs: Runs):
    """`--snapshot` is the last link of the chain, indented for people."""
    chain = call("run", "show", runs.doubt, "--snapshots", "--json").lines
    assert json.loads(call("run", "show", runs.doubt, "--snapshot").out) == chain[-1]


def test_trace_nests_steps_under_the_step_around_them(call: Call, runs: Runs):
    """Every call with arguments, result or error, attempts, parent and status, in order."""
    steps = call("run", "trace", runs.team, "--json").lines
    by_tool = {step["tool"]: step for step in steps}
    both = by_tool["both"]
    inside = [step for step in steps if step["parent"] == both["step"]]
    assert [(step["arguments"], step["result"], step["depth"]) for step in inside] == [
        ({"a": 5, "b": 1}, 6, 1),
        ({"a": 5, "b": 2}, 7, 1),
    ]
    assert steps.index(inside[0]) == steps.index(both) + 1
    flaky = by_tool["flaky"]
    assert flaky["result"] == {"$tuple": ["a", {"$set": [1, 2]}]}
    assert [tried["error"]["type"] for tried in flaky["attempts"]] == ["ValueError"]
    assert by_tool["absent"]["error"] == {
        "type": "KeyError",
        "message": "'nowhere'",
        "arguments": ["nowhere"],
    }
    assert steps[-1]["agent"] == "writer"
    text = call("run", "trace", runs.team).out
    assert "└─ add" in text
    assert "attempt 1" in text
    assert "<100,002 bytes>" in text
    assert "items of step" not in text  # a grown value is shown in full


def test_trace_can_be_whole(call: Call, runs: Runs):
    """`--full` fetches large values and puts growing lists together."""
    steps = call("run", "trace", runs.team, "--full", "--json").lines
    assert [s["result"] for s in steps if s["tool"] == "big"] == ["x" * BIG]
    lists = [s["arguments"]["messages"] for s in steps if s["tool"] == "chat"]
    assert [len(messages) for messages in lists] == [1, 2, 3]
    assert "x" * BIG in call("run", "trace", runs.team, "--full").out


def test_a_settled_step_says_by_whom(call: Call, runs: Runs):
    """The verdict is in the trace."""
    [step] = call("run", "trace", runs.settled, "--json").lines
    assert (step["status"], step["verdict"]) == ("completed", "happened")
    assert step["settled_by"] == OS_USER
    assert step["result"] == {"id": 7}
    settled = f"settled by {OS_USER}: happened (the log of the server says so)"
    assert settled in call("run", "trace", runs.settled, "--full").out
    assert f"settled by {OS_USER}: happened" in call("run", "trace", runs.settled).out
    [settlement] = step["settlements"]
    assert (settlement["verdict"], settlement["is_edit"]) == ("happened", False)


def test_an_interrupted_attempt_is_not_called_failed(call: Call, record: hansard.Record):
    """The effect of an interrupted attempt is unknown until somebody settles it, with a reason."""
    pays = functools.partial(record.run, "pay", run="pay-1", agent="a", role="r")
    with pytest.raises(KeyboardInterrupt), pays() as session:
        paid(session, KeyboardInterrupt())
    record.settle("pay-1", "1", "did_not_happen", reason="asked bank", by="eve")
    with pays(mode="resume") as session:
        paid(session, None)
    shown = call("run", "trace", "pay-1").out
    interrupted = shown.index("attempt 1 interrupted, outcome unknown")
    assert interrupted < shown.index("settled by eve: did not happen (asked bank)")
    assert "failed" not in shown


def paid(session: hansard.Session, error: BaseException | None) -> None:
    """Call a tool with an effect that is interrupted, or ends."""

    @session.tool(effects="once")
    def pay(amount: int) -> str:
        if error is not None:
            raise error
        return f"paid {amount}"

    pay(42)


def test_a_blocked_step_names_its_rule(call: Call, runs: Runs):
    """The gate's rule and reason are the result."""
    assert "rule 'deny remove'" in call("run", "trace", runs.failed).out


@pytest.mark.parametrize(
    ("point", "fact"),
    [
        ("yesterday", "point name 'yesterday' is not valid"),
        ("researcher_1@9999", "version 9999 of 'researcher_1'"),
        ("0", "was not found"),
        ("00000000-0000-7000-8000-000000000000", "a commit, event or snapshot"),
        ("-5", "point name '-5' is not valid"),
    ],
)
def test_a_wrong_point_is_reported_with_what_would_be_one(call, runs, point, fact):
    """Exit code 2, one message, no traceback."""
    result = call("run", "show", runs.team, "--at", point)
    assert (result.code, result.out) == (2, "")
    assert fact in result.err
    assert "Traceback" not in result.err


def test_a_run_is_found_by_prefix_or_as_the_last(call: Call, runs: Runs, record: hansard.Record):
    """A prefix that one run has names it; one that several have lists them."""
    with record.run("named", run="zz-one", agent="a", role="r"):
        pass
    with record.run("named", run="zz-two", agent="a", role="r"):
        pass
    assert call("run", "show", "zz-o", "--json").lines[0]["run"] == "zz-one"
    assert call("run", "show", "last", "--json").lines[0]["run"] == "zz-two"
    result = call("run", "show", "zz-")
    assert result.code == 2
    assert "2 runs begin with 'zz-'" in result.err
    assert "zz-one" in result.err
    assert "zz-two" in result.err


@pytest.mark.parametrize("name", ["nothing", "", "*", "../x", "a b", "é" * 300])
def test_a_missing_run_is_reported(call: Call, runs: Runs, name: str):
    """Any text may be a name; an unknown run is an error with a remedy."""
    result = call("run", "trace", name)
    assert result.code == 2
    assert "see 'hansard runs'" in result.err


def test_a_workspace_that_is_not_there_is_not_made(call: Call, runs: Runs):
    """A mistyped workspace is an error that lists those that are, and stays absent."""
    for _ in range(2):
        result = call("runs", "--workspace", "laab")
        assert result.code == 2
        assert "workspace 'laab' was not found: there are: " in result.err
        assert "lab" in result.err.rsplit(":", 1)[1]
    assert call("runs", "-w", "La B").code == 2


def test_an_argument_that_is_not_utf8_is_an_error(call: Call, runs: Runs):
    """Where a command cannot use it, the error names it."""
    result = call("conversation", "show", "\udcff")
    assert result.code == 2
    assert result.err == "error: argument '\\udcff' is not UTF-8: give UTF-8 text\n"


def test_a_data_directory_that_is_not_there_is_not_made(call: Call, tmp_path):
    """Reading starts no broker where there was none."""
    result = call("runs", "--data-dir", str(tmp_path / "no"))
    assert result.code == 2
    assert "hansard up" in result.err
    assert not (tmp_path / "no").exists()


def test_status_states_broker_and_workspace(call: Call, runs: Runs, home):
    """Status shows the broker's address and durability, and the workspace's content."""
    broker, workspace = call("status", "--json").lines
    assert broker["running"]
    assert broker["embedded"]
    assert broker["durability"] == "strict"
    assert broker["data_dir"] == str(home)
    assert broker["pid"] > 1
    assert broker["version"].startswith("2.")
    assert workspace["exists"]
    assert workspace["position"] == workspace["commits"] > 10
    assert workspace["runs"]["completed"] >= 1
    assert {s["name"] for s in workspace["streams"]} == {
        "hansard_log-lab",
        "hansard_blob-lab",
        "hansard_snap-lab",
    }
    text = call("status").out
    assert "strict: an acknowledged commit is on disk\n" in text


def test_status_of_an_outside_broker_is_not_guessed(call: Call, runs: Runs, record, home):
    """Without a system account's login its durability is unknown; passwords are not shown."""
    info = server.peek(home)
    assert info is not None
    login = f"{info.runtime.user}:{info.runtime.password}"
    url = info.url.replace("://", f"://{login}@")
    result = call("status", "--nats", url, "--json")
    broker, workspace = result.lines
    assert (broker["durability"], broker["embedded"], broker["pid"]) == ("unknown", False, None)
    assert workspace["exists"]
    assert info.runtime.password not in result.out + result.err


@pytest.mark.slow
def test_status_starts_no_broker(call: Call, tmp_path):
    """Without a broker it says how to start one; `--start` starts one for this command."""
    (tmp_path / "data").mkdir()
    home = str(tmp_path / "data")
    result = call("status", "--data-dir", home)
    assert result.code == 1
    assert "no broker runs in" in result.out
    assert "hansard up" in result.err
    assert list((tmp_path / "data").iterdir()) == []
    [line] = call("status", "--data-dir", home, "--json").lines
    assert line["running"] is False
    started = call("status", "--data-dir", home, "--start", "--json")
    assert started.code == 0
    broker, workspace = started.lines
    assert broker["durability"] == "strict"
    assert workspace["exists"] is False


async def test_who_reads_has_one_connection_and_makes_nothing(data_dir, workspace, monkeypatch):
    """A workspace is read over one connection, and a missing one is not created."""
    opened: list[str] = []
    opens = Broker.open

    async def counted(options: BrokerOptions) -> Broker:
        opened.append(options.name)
        return await opens(options)

    async with await hansard.connect_async(workspace, data_dir=data_dir) as record:
        async with record.run("w"):
            pass
        monkeypatch.setattr(Broker, "open", counted)
        config = load(data_dir=data_dir, workspace=workspace)
        async with opening.reading(config) as reading:
            assert len(await reading.log.runs()) == 1
        assert len(opened) == 1
        absent = load(data_dir=data_dir, workspace=f"{workspace}-absent")
        for _ in range(2):
            with pytest.raises(NotFound, match="there are"):
                async with opening.reading(absent):
                    pass


def test_an_empty_answer_is_one_sentence(call: Call, record: hansard.Record):
    """No header without a row, no age of nothing, and no error for a server without regions."""
    with record.run("w"):
        pass
    assert call("roles", "show").out == "no role has rules\n"
    assert re.fullmatch(r"no experiences, as of position \d+\n", call("experience", "list").out)
    assert "oldest used" not in call("tiers", "show").err
    shown = call("region", "show")
    assert shown.out.endswith(" in no region: only here\n"), shown.err
    missing = call("-w", "nowhere", "region", "show")
    assert (missing.code, "workspace 'nowhere' was not found" in missing.err) == (2, True)


def test_a_long_name_is_cut_in_its_error(call: Call, record: hansard.Record):
    """The error repeats at most 300 characters of a run that is not there."""
    with record.run("w"):
        pass
    done = call("run", "show", "x" * 5_000)
    assert (done.code, "was not found" in done.err) == (2, True)
    assert 300 < len(done.err) < 500
