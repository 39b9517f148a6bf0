"""A production run on a laptop: replayed without tools, network or secrets, and continued."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import hansard
from tests.cli.support import SRC, environment
from tests.exchange.support import Zoo, bring_in, exported, log_of
from tests.faults._warm import python

PROGRAMS = Path(__file__).parent / "programs"
AGENT = PROGRAMS / "agent.py"


class Machine:
    """A place with its own workspace, effects and secrets, without network from Python's start."""

    def __init__(self, home: Path, workspace: str, effects: Path, **env: str) -> None:
        self.workspace = workspace
        self.effects = effects
        self._python = sys.executable if "ONLY_LOOPBACK" in env else python()
        self._env = environment(home, HANSARD_WORKSPACE=workspace, **env)

    def run(self, *command: object, **env: str) -> "subprocess.CompletedProcess[str]":
        """Run a program here."""
        return subprocess.run(
            [*map(str, command)],
            env=self._env | env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def agent(self, count: int, dies_at: int = 0, **env: str) -> "subprocess.CompletedProcess[str]":
        """Run the agent."""
        return self.run(self._python, AGENT, self.effects, count, dies_at, **env)

    def hansard(self, *arguments: object, **env: str) -> "subprocess.CompletedProcess[str]":
        """Run the command line."""
        return self.run(self._python, "-m", "hansard", *arguments, **env)

    @property
    def done(self) -> list[str]:
        """The effects so far."""
        return self.effects.read_text().splitlines() if self.effects.exists() else []


@pytest.fixture
def production(home, workspace, tmp_path) -> Machine:
    """Return the machine that records the run and has the secret."""
    return Machine(home, workspace, tmp_path / "production", THE_SECRET="sk-1")


@pytest.fixture
def laptop(home, workspace, tmp_path) -> Machine:
    """Return a machine without the secret, with no connection but to the broker."""
    path = f"{PROGRAMS}{os.pathsep}{SRC}"
    return Machine(
        home, f"{workspace}-laptop", tmp_path / "laptop", PYTHONPATH=path, ONLY_LOOPBACK="1"
    )


def carried(production: Machine, laptop: Machine, path: Path) -> str:
    """Take the run out of production and bring it to the laptop; its id."""
    result = production.hansard("export", "last", "--output", path)
    assert result.returncode == 0, result.stderr
    result = laptop.hansard("import", "events", path)
    assert result.returncode == 0, result.stderr
    return run_of(path)


def run_of(path: Path) -> str:
    """Return the run that an export is of."""
    return str(json.loads(path.read_bytes().partition(b"\n")[0])["runs"][0])


def test_the_guard_cuts_the_network(laptop):
    """The guard of the tests below cuts all connections but those to the broker."""
    program = (
        "import socket\n"
        "try:\n"
        "    socket.create_connection(('192.0.2.1', 80), 1)\n"
        "except OSError as error:\n"
        "    print(error)\n"
    )
    result = laptop.run(sys.executable, "-c", program)
    assert result.stdout.startswith("the network is cut")


MODES: list[list[str]] = [[], ["--offline"]]
"""Modes of a full run, which is evidence."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "modes", [[["--offline"]], pytest.param(MODES, marks=pytest.mark.thorough)], ids=len
)
def test_a_run_is_reproduced_offline(production, laptop, home, tmp_path, evidence, modes):
    """Every replay has equal results without network, secret, effect or new event."""
    first = production.agent(4)
    assert first.returncode == 0, first.stderr
    effects = len(production.done)
    assert effects > 10
    run = carried(production, laptop, tmp_path / "run.jsonl")
    before = log_of(home, laptop.workspace)

    result = laptop.hansard("run", "replay", run)
    assert result.returncode == 0
    assert "every fingerprint and digest is as recorded" in result.stdout
    for mode in modes:
        command = [sys.executable, AGENT, laptop.effects, 4, 0]
        result = laptop.hansard("run", "replay", *mode, run, "--", *command)
        assert (result.returncode, result.stdout) == (0, first.stdout), result.stderr
    assert laptop.done == []
    assert log_of(home, laptop.workspace) == before
    if modes == MODES:
        evidence.record("export.offline_replay", effects_recorded=effects, effects_on_replay=0)


@pytest.mark.thorough
def test_a_whole_network_namespace_without_a_way_out(production, laptop, home, tmp_path):
    """Broker, import and replay work inside a network namespace with only loopback."""
    if subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody make a network namespace (unshare -rn)")
    first = production.agent(2)
    path = tmp_path / "run.jsonl"
    assert production.hansard("export", "last", "--output", path).returncode == 0
    run = run_of(path)
    script = (
        "ip link set lo up 2>/dev/null || "
        f'{sys.executable} -c "{LOOPBACK_UP}"\n'
        'h() { "$0" -m hansard --data-dir "$1" -w laptop "${@:2}"; }\n'
    )
    script = script.replace('h() { "$0"', f"h() {{ {sys.executable}")
    inside = tmp_path / "inside.sh"
    inside.write_text(
        script
        + f"h {tmp_path}/data import events {path} >&2 || exit 3\n"
        + f"h {tmp_path}/data run replay --offline {run} -- "
        + f"{sys.executable} {AGENT} {laptop.effects} 2 0\n"
    )
    result = laptop.run("unshare", "-rn", "bash", inside)
    assert (result.returncode, result.stdout) == (0, first.stdout), result.stderr
    assert laptop.done == []


LOOPBACK_UP = (
    "import fcntl,socket,struct; "
    "fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh', b'lo', 0x41))"
)
"""SIOCSIFFLAGS: UP and RUNNING, where there is no `ip`."""


@pytest.mark.thorough(quick="test_a_run_in_doubt_is_settled_here")
@pytest.mark.parametrize(
    "dies_at", [1, *(pytest.param(at, marks=pytest.mark.thorough) for at in (3, -1, -3))]
)
def test_a_run_that_died_is_continued_here(production, laptop, home, tmp_path, dies_at):
    """A resumed import runs only unrecorded calls, in the next epoch, with the same result."""
    assert production.agent(4, dies_at).returncode == 9
    run = carried(production, laptop, tmp_path / "run.jsonl")
    before = len(log_of(home, laptop.workspace))
    command = [sys.executable, AGENT, laptop.effects, 4, 0]
    result = laptop.hansard("run", "resume", run, "--", *command, THE_SECRET="local")
    assert result.returncode == 0, result.stderr
    fetched = [line for line in production.done + laptop.done if line.startswith("fetch")]
    again = [f"fetch {-dies_at}"] if dies_at < 0 else []
    assert sorted(fetched) == sorted([f"fetch {n}" for n in range(1, 5)] + again)
    assert production.done.count("publish") + laptop.done.count("publish") == 1
    with hansard.connect(laptop.workspace, data_dir=home) as record:
        view = record.state(run)
    assert (view.life.status, view.agents["worker"].epoch) == ("completed", 2)
    assert len(log_of(home, laptop.workspace)) > before
    whole = laptop.run(
        sys.executable, AGENT, tmp_path / "other", 4, 0, HANSARD_WORKSPACE="whole", THE_SECRET="x"
    )
    assert result.stdout == whole.stdout
    assert laptop.hansard("check").returncode == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::hansard.agents.errors.ToolChanged")
def test_a_run_in_doubt_is_settled_here(home, zoo: Zoo, workspace, tmp_path, call):
    """An open effect is in doubt on the laptop, too: it stops, is settled, and goes on."""
    run = zoo.runs["doubt"]
    bring_in(home, workspace, tmp_path / "x.jsonl", exported(home, "zoo", run))

    def again():
        with (
            hansard.connect(workspace, data_dir=home) as record,
            record.run(run=run, agent="sender", role="sender") as session,
        ):

            @session.tool
            def send(to: str) -> str:
                raise AssertionError("never runs again")

            return send("x@example.org")

    with pytest.raises(hansard.InDoubt):
        again()
    assert call(workspace, "run", "settle", run, "sender#1", "--happened", "sent").code == 0
    assert again() == "sent"
    result = bring_in(home, "zoo-copy", tmp_path / "y.jsonl", exported(home, workspace, run))
    assert result.bads == []


@pytest.mark.slow
def test_a_copy_is_forked_and_goes_its_own_way(home, zoo: Zoo, workspace, tmp_path):
    """A fork of an imported run begins as the original's would, and is itself exported with it."""
    run = zoo.runs["talk 2"]
    bring_in(home, workspace, tmp_path / "x.jsonl", exported(home, "zoo", run))
    with hansard.connect(workspace, data_dir=home) as record:
        child = record.fork(run)
        with record.run(run=child, agent="bot", role="responder") as session:
            session.message("user", "another way")
    data = exported(home, workspace, child)
    assert bring_in(home, f"{workspace}-b", tmp_path / "y.jsonl", data).bads == []
    assert exported(home, f"{workspace}-b", child) == data
    logs = {line["log"] for line in (_origin(raw) for raw in data.splitlines()[1:-1]) if line}
    assert logs == {"zoo", workspace}


def _origin(raw: bytes) -> dict[str, str]:
    origin: dict[str, str] = json.loads(raw).get("origin", {})
    return origin
