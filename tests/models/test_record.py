"""`hansard record` and `hansard replay`: a program is killed, resumed and replayed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults._warm import python
from tests.models.provider import TEXT, Provider

PROGRAMS = Path(__file__).with_name("programs")

pytestmark = pytest.mark.slow


class Commands:
    """The command line as processes, with a record and an outbox."""

    def __init__(self, data_dir: Path, workspace: str, folder: Path) -> None:
        self.outbox = folder / "outbox"
        self.environment = os.environ | {
            "HANSARD_DATA_DIR": str(data_dir),
            "HANSARD_WORKSPACE": workspace,
            "OUTBOX": str(self.outbox),
        }

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command in a group of its own."""
        return self.start_program("-m", "hansard", *words)

    def start_program(self, *words: str, warm: bool = False) -> subprocess.Popen[str]:
        """Start a Python program in a group of its own; a warm one is not in that group."""
        return subprocess.Popen(
            [python("openai") if warm else sys.executable, *words],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: str, code: int = 0) -> tuple[str, str]:
        """Run a command; return what it printed on both streams."""
        started = self.start_program("-m", "hansard", *words, warm=True)
        out, log = started.communicate(timeout=120)
        assert started.returncode == code, log[-3000:]
        return out, log


@pytest.fixture
def commands(provider: Provider, data_dir: Path, workspace: str, tmp_path: Path) -> Commands:
    """Return the command line, in the environment of the provider."""
    return Commands(data_dir, workspace, tmp_path)


def kill_in_the_second_call(program: subprocess.Popen[str], provider: Provider) -> None:
    """Kill a program and its children while the provider answers the second call."""
    end_s = time.monotonic() + 60
    while len(provider.calls) < 2:
        assert time.monotonic() < end_s
        time.sleep(0.01)
    os.killpg(program.pid, signal.SIGKILL)
    program.communicate()


def test_a_killed_agent_is_resumed_with_one_mail_and_replayed(
    commands: Commands, provider: Provider
):
    """After a kill in the middle of a stream: one mail, the first answer from the record, the
    interrupted call again, and a replay without a provider; a call that is not on record is shown
    with the nearest recorded request.
    """
    agent = ("--", python("openai"), str(PROGRAMS / "agent.py"))
    kill_in_the_second_call(commands.start("record", *agent), provider)
    suggests_to_send_it_again(commands)
    text = "".join(TEXT)
    resumed, log = commands.run("record", "--run", "last", *agent)
    assert resumed == f"{text} 1 {text}\n"
    assert "2 model calls, 1 from the record; 11 input and 7 output tokens" in log
    assert commands.outbox.read_text() == f"{text}\n"
    prompts = [body["messages"][0]["content"] for _, body in provider.calls]
    assert prompts == ["Plan the day", "Sum up mail 1", "Sum up mail 1"]
    provider.stop()
    replayed, log = commands.run("replay", "last", *agent)
    assert replayed == resumed
    assert "2 model calls, 2 from the record" in log
    assert commands.outbox.read_text() == f"{text}\n"
    commands.environment["MODEL"] = "other"
    _, log = commands.run("replay", "last", *agent, code=1)
    numbers, refused = log.splitlines()[-2:]
    assert numbers.endswith(": 2 model calls, 1 from the record; 1 refused")
    assert refused == (
        "refused: POST /v1/chat/completions is not on record; the nearest recorded request, step "
        '2, differs in /model (recorded "stuck", now "other")'
    )
    assert not [line for line in log.splitlines() if line.startswith("{")]
    shown, log = commands.run("run", "show", "last", "--at", "models#2")
    assert ", at this point" in shown
    assert "run settle" not in shown + log
    assert "killed" not in shown


def suggests_to_send_it_again(commands: Commands) -> None:
    """Check the commands for a call that a kill interrupted: none settles it, by a text least."""
    rows, _ = commands.run("sql", "--json", "SELECT run FROM runs")
    run = json.loads(rows)["run"]
    command = f"hansard record --run {run} -- COMMAND"
    _, log = commands.run("run", "show", "last")
    assert f"models#2 may run again: go on with\n  {command}" in log
    assert "run settle" not in log
    shown, log = commands.run("audit", run, code=1)
    assert command in shown + log
    assert "its effects allow to repeat it" in shown + log
    commands.run("audit", run, "--severity", "medium")  # exits with 0: no finding is as severe
    assert "run settle" not in shown + log
    _, log = commands.run("run", "settle", run, "models#2", "--happened", "hello", code=2)
    assert "is a text, and openai.chat.completions answers with JSON" in log


def test_an_agent_that_records_itself_is_resumed_with_one_mail(
    commands: Commands, provider: Provider
):
    """With `record_http()`, its next start continues the run: one mail, one call more."""
    commands.environment["IN_CODE"] = "1"
    agent = str(PROGRAMS / "agent.py")
    kill_in_the_second_call(commands.start_program(agent), provider)
    resumed = commands.start_program(agent, warm=True)
    out, log = resumed.communicate(timeout=120)
    text = "".join(TEXT)
    assert out == f"{text} 1 {text}\n", log[-3000:]
    assert commands.outbox.read_text() == f"{text}\n"
    prompts = [body["messages"][0]["content"] for _, body in provider.calls]
    assert prompts == ["Plan the day", "Sum up mail 1", "Sum up mail 1"]


def test_mcp_servers_of_a_configuration_are_recorded_in_the_same_run(
    commands: Commands, provider: Provider, tmp_path: Path
):
    """The program gets a copy of the configuration; its server's calls are steps of the run, and a
    replay does not start the server.
    """
    log = tmp_path / "started"
    server = {"command": python("openai"), "args": [str(PROGRAMS / "server.py"), str(log)]}
    config = tmp_path / "servers.json"
    config.write_text(json.dumps({"mcpServers": {"clock": server}}))
    words = ("--mcp-config", str(config), "--", python("openai"), str(PROGRAMS / "tools.py"))
    recorded, _ = commands.run("record", *words, f"--config={config}")
    assert recorded == "42\n"
    assert log.read_text() == "started\n"
    replayed, _ = commands.run("replay", "last", *words, f"--config={config}")
    assert replayed == recorded
    assert log.read_text() == "started\n"
    rows, _ = commands.run("sql", "--json", "SELECT agent, tool FROM steps WHERE kind = 'tool'")
    assert json.loads(rows) == {"agent": "mcp.clock", "tool": "answer"}


ASKS = """
import hansard

@hansard.tool
def pay() -> int:
    return 7

with hansard.Session(agent="clerk", gate=[hansard.ask_first("pay", timeout_s=60)]):
    print(pay())
"""


def test_a_call_that_waits_for_an_approval_is_printed(commands: Commands):
    """The hint on stderr names the call and the command that grants it."""
    words = ("-m", "hansard", "record", "--", python("openai"), "-c", ASKS)
    started = commands.start_program(*words, warm=True)
    assert started.stderr is not None
    hint = next(line for line in started.stderr if "waits for approval" in line)
    assert hint.startswith("pay of clerk waits for approval: hansard approvals grant ")
    commands.run(*hint.rpartition("hansard ")[2].split())
    out, log = started.communicate(timeout=60)
    assert (started.returncode, out) == (0, "7\n"), log[-3000:]


def test_a_run_is_begun_by_its_name_and_continued(tmp_path: Path, workspace: str):
    """The first command creates the record. A name that no run has begins one, and the next start
    continues it, as an error says; an unknown id and the last of no runs are errors. A restricted
    agent's credentials are not used, which is printed.
    """
    commands = Commands(tmp_path / "new" / "record", workspace, tmp_path)
    commands.environment["HANSARD_CREDENTIALS"] = "ada.json"
    program = ("--", python("openai"), "-c", "import sys; sys.exit(3)")
    for unknown in ("last", "01a2248b-b7eb"):
        _, log = commands.run("record", "--run", unknown, *program, code=2)
        assert "was not found" in log
    assert not (tmp_path / "new").exists()
    for verb in ("recording new", "continuing"):
        _, log = commands.run("record", "--run", "nightly", *program, code=3)
        assert f"{verb} run nightly: " in log
        assert "HANSARD_CREDENTIALS (ada.json) is not used by commands" in log
    no_program = tmp_path / "program"
    no_program.write_bytes(b"\x7fELF")
    no_program.chmod(0o700)
    _, log = commands.run("record", "--run", "nightly", "--", str(no_program), code=2)
    assert f"hansard record --run nightly -- {no_program}" in log
    assert "run resume" not in log


DECIDES = """
import hansard, openai

@hansard.tool(effects="pure")
def customer() -> dict:
    return {"gender": "female"}

with hansard.Session(agent="clerk") as session:
    person = customer()
    text = f"Is {person['gender']} fine?"
    openai.OpenAI().chat.completions.create(
        model="m", messages=[{"role": "user", "content": text}]
    )
    session.decide("Grant?", selected="yes", inputs=[person], alternatives=["yes", "no"])
"""


def test_a_run_with_another_agent_for_its_model_calls_is_recognised(
    commands: Commands, provider: Provider
):
    """A run of `record --agent NAME` is replayed by both commands without that option, and a probe
    runs its program behind the proxy: the request with the recorded value is answered from the
    record, and with `--live` the other one goes to the provider.
    """
    program = ("--", python("openai"), "-c", DECIDES)
    commands.run("record", "--agent", "llm", *program)
    for command in (("replay", "last"), ("run", "replay", "last")):
        assert "1 from the record" in commands.run(*command, *program)[1]
    assert len(provider.calls) == 1
    swap = ("--swap", "customer.gender=female,male")
    out, _ = commands.run("probe", "all", *swap, "--live", "--json", *program)
    probed = json.loads(out.splitlines()[0])
    assert (probed["ran"], probed["failures"]) == (2, [])
    texts = [body["messages"][0]["content"] for _, body in provider.calls]
    assert texts == ["Is female fine?", "Is male fine?"]
