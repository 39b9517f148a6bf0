"""A slice from a wheel of its own: its event, view, operations, tools and commands."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults._warm import python

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "tickets"
PROGRAMS = Path(__file__).parent / "programs"
BUILD = "import sys; from hatchling.cli import hatchling; sys.exit(hatchling())"
WAIT_S = 170

ROLES = """
[[roles.clerk.sees]]
name = "tickets"
kinds = ["ticket.*"]

[roles.clerk.may]
kinds = ["ticket.opened"]
query = true
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the example's wheel, installed."""
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("packages")
    shutil.copytree(EXAMPLE, source / "tickets", ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-c", BUILD, "build", "-t", "wheel"]
    subprocess.run(build, cwd=source / "tickets", check=True, timeout=WAIT_S)
    (wheel,) = (source / "tickets" / "dist").glob("*.whl")
    install = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(folder),
    ]
    subprocess.run([sys.executable, *install, wheel], check=True, timeout=WAIT_S)
    return folder


@pytest.fixture(scope="module")
def environment(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the variables of a program that has the slice, and a record of its own."""
    place = {"HANSARD_DATA_DIR": str(tmp_path_factory.mktemp("record")), "HANSARD_WORKSPACE": "lab"}
    return os.environ | place | {"PYTHONPATH": str(packages)}


@pytest.fixture(scope="module")
def run(environment: dict[str, str]) -> Run:
    """Run Python with the slice; `hansard=True` for a command."""

    def ran(*arguments: object, hansard: bool = False, **variables: str):
        command = [python(), *(["-m", "hansard"] if hansard else []), *map(str, arguments)]
        return subprocess.run(
            command,
            env=environment | variables,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )

    return ran


@pytest.fixture(scope="module")
def opened(run: Run) -> str:
    """Open a ticket by a command; return its output."""
    done = run("tickets", "open", "t1", "Printer on fire", "--priority", 1, hansard=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_commands_follow_from_the_operations(run: Run, opened: str):
    """Arguments, options, help, JSON and errors come from the declaration."""
    assert opened == "done\n"
    assert (
        run("tickets", "open", "t1", "again", hansard=True).stdout
        == "already so: nothing was written\n"
    )
    assert run("tickets", "open", "a b/c", "odd id", hansard=True).stdout == "done\n"
    assert '"id":"a b/c"' in run("tickets", "find", "--json", hansard=True).stdout
    shown = run("tickets", "open", "--help", hansard=True).stdout
    assert "The problem in one line." in shown
    assert "[default: 3]" in shown
    assert "tickets" in run("--help", hansard=True).stdout
    found = run("tickets", "find", "--json", hansard=True).stdout
    assert '{"id":"t1","title":"Printer on fire","priority":1,' in found
    refused = run("tickets", "close", "t9", "x", hansard=True)
    assert refused.returncode == 2
    assert "ticket 't9': it is not open: see 'hansard tickets find'" in refused.stderr
    assert "unknown command 'tickts'" in run("tickts", hansard=True).stderr


@pytest.mark.slow
def test_secrets_are_kept_out_of_arguments(run: Run, opened: str):
    """A secret in a text is replaced by its name, and one in a name is an error."""
    assert opened
    secret = {"HANSARD_REDACT": "key=TOKEN", "TOKEN": "sk-hunter2-ocelot"}
    done = run("tickets", "open", "t7", "use sk-hunter2-ocelot", hansard=True, **secret)
    assert done.returncode == 0, done.stderr
    found = run("tickets", "find", "--json", hansard=True).stdout
    assert '"id":"t7","title":"use <secret:key>"' in found
    named = run("tickets", "open", "sk-hunter2-ocelot", "x", hansard=True, **secret)
    assert named.returncode == 2
    assert "sk-hunter2-ocelot" not in named.stderr
    assert "sk-hunter2-ocelot" not in run("tickets", "find", hansard=True).stdout


@pytest.mark.slow
def test_the_events_are_in_the_log_and_the_view_in_sql(run: Run, opened: str):
    """`check` knows the stream; without the package the events stay readable as data."""
    assert opened
    query = "SELECT id, title FROM tickets WHERE id = 't1'"
    assert "Printer on fire" in run("sql", query, hansard=True).stdout
    assert run("check", hansard=True).returncode == 0
    types = "SELECT type FROM events WHERE type LIKE 'ticket.%' LIMIT 1"
    alone = run("sql", types, hansard=True, PYTHONPATH="")
    assert "ticket.opened.v1" in alone.stdout, alone.stderr
    gone = run("tickets", "find", hansard=True, PYTHONPATH="")
    assert "unknown command 'tickets'" in gone.stderr
    assert "Printer on fire" in run("sql", query, hansard=True).stdout


@pytest.fixture
def served(environment: dict[str, str]) -> Iterator[None]:
    """Run `hansard up` with the slice."""
    command = [python(), "-m", "hansard", "up", "--json"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert '"kind":"up"' in process.stdout.readline()
        yield
    finally:
        process.terminate()
        process.communicate()


@pytest.mark.slow
def test_a_restricted_agent_has_what_its_role_may(run: Run, opened: str, served, tmp_path: Path):
    """Its operations run at the service: what the role may not state is refused."""
    assert opened
    (tmp_path / "roles.toml").write_text(ROLES)
    assert run("roles", "apply", tmp_path / "roles.toml", hansard=True).returncode == 0
    login = tmp_path / "clerk.json"
    made = run("credentials", "clerk", "--name", "ada", "-o", login, hansard=True)
    assert made.returncode == 0, made.stderr
    done = run(PROGRAMS / "remote.py", "open", HANSARD_CREDENTIALS=str(login))
    report = json.loads(done.stdout)
    assert report["news"] == [True, False]
    assert {"t1", "t2"} <= {*report["found"]}
    assert '"opened_by":"ada"' in run("tickets", "find", "--json", hansard=True).stdout
    refused = run(PROGRAMS / "remote.py", "close", HANSARD_CREDENTIALS=str(login))
    assert "RoleRefused" in refused.stderr
    assert "ticket.closed" in refused.stderr
    another = run(PROGRAMS / "remote.py", "open_for", HANSARD_CREDENTIALS=str(login))
    assert "NotOffered" in another.stderr


@pytest.mark.slow
def test_mcp_clients_have_the_operations_as_tools(run: Run, opened: str):
    """A tool has the parameters' descriptions, and its schema; its call is a step of a run."""
    assert opened
    done = run(PROGRAMS / "tools.py")
    report = json.loads(done.stdout)
    described = {"type": "integer", "description": "From 1, the most urgent, to 5."}
    assert described.items() <= report["priority"].items()
    assert report["opened"] == {"result": True}
    assert "t4" in [each["id"] for each in report["found"]["result"]]
    assert "ticket 't9': it is not open: see 'hansard tickets find'" in report["refused"]
    steps = run("sql", "SELECT count(*) FROM steps WHERE tool = 'mcp:tickets_open'", hansard=True)
    assert "1" in steps.stdout.split()


VIEW = """
from hansard.extending import Slice
SLICE = Slice(name="view", schema="CREATE VIEW odd AS SELECT split_prt(stream, '/', 2) FROM events")
"""
LATE = """
from hansard.extending import Slice
SLICE = Slice(name="late", nouns=("works:Books", "nowhere:Books"))
"""
PARAMETER = """
from hansard.extending import Noun, free, operation
class Books(Noun, noun="books"):
    @operation(needs=free)
    async def lend(self, to) -> bool: ...
"""


@pytest.mark.thorough(quick="test_commands_follow_from_the_operations")
def test_arguments_are_checked_by_their_types(run: Run, opened: str):
    """A wrong type is refused before anything is recorded, in Python as on the wire."""
    assert opened
    call = "hansard.connect() as record: record.noun(Tickets).open('t8', 'x', priority='high')"
    program = f"import hansard\nfrom tickets import Tickets\nwith {call}"
    done = run("-c", program)
    assert "record.tickets.open(priority): 'high'; give `int`" in done.stderr
    assert "t8" not in run("tickets", "find", hansard=True).stdout


BROKEN = {
    "view": VIEW,
    "parameter": PARAMETER,
    "raises": "raise LookupError('no such library')",
    "taken": (
        "from hansard.extending import Slice\nSLICE = Slice(name='taken', streams={'prompt': ()})"
    ),
    "another": "SLICE = None",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in {"view", "parameter"} else pytest.mark.thorough)
        for name in BROKEN
    ],
)
def test_a_slice_that_cannot_be_loaded_is_left_out(
    run: Run, opened: str, packages: Path, tmp_path: Path, name: str
):
    """The warning names it and the reason; everything else works."""
    assert opened
    (tmp_path / f"{name}.py").write_text(BROKEN[name])
    info = tmp_path / f"{name}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[hansard.slices]\n{name} = {name}:SLICE\n")
    both = f"{packages}{os.pathsep}{tmp_path}"
    done = run("tickets", "find", "--json", hansard=True, PYTHONPATH=both)
    assert done.returncode == 0, done.stderr
    assert '"id":"t1"' in done.stdout
    if name == "view":
        assert "the views of a slice cannot be created" in done.stderr
        assert "split_prt" in done.stderr
    else:
        assert "a slice cannot be loaded" in done.stderr
        assert f"{name}:SLICE" in done.stderr
    if name == "parameter":
        assert "Books.lend: annotate 'to', as Name, Prose or a type" in done.stderr


@pytest.mark.thorough(quick="test_a_slice_that_cannot_be_loaded_is_left_out")
def test_a_noun_that_cannot_be_imported_is_left_out(run: Run, tmp_path: Path):
    """The slice keeps its other operations, and the warning names the missing noun."""
    (tmp_path / "late.py").write_text(LATE)
    (tmp_path / "works.py").write_text(PARAMETER.replace("to)", "to: str)"))
    info = tmp_path / "late-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: late\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[hansard.slices]\nlate = late:SLICE\n")
    done = run("late", "--help", hansard=True, PYTHONPATH=str(tmp_path))
    assert "lend" in done.stdout, done.stderr
    assert "operations of a slice are missing" in done.stderr
    assert "nowhere:Books" in done.stderr


@pytest.mark.slow
def test_an_undeclared_stream_is_refused(run: Run, opened: str):
    """Only kinds of streams and events that the slice declares are appended."""
    assert opened
    program = """
import hansard
from hansard.extending import OS_USER
from tickets import TicketOpened, Tickets
with hansard.connect() as record:
    noun = record.noun(Tickets)
    decide = lambda events: [TicketOpened(title="x")]
    record._portal.run(noun._async.decided("tickte", "t9", decide, OS_USER))
"""
    done = run("-c", program)
    assert "a stream of kind 'tickte' may not hold 'ticket.opened.v1'" in done.stderr
    assert done.returncode


@pytest.mark.slow
def test_a_slice_with_the_name_of_a_command_is_marked_in_the_help(run: Run, tmp_path: Path):
    """The command keeps its name, and the help says that the slice is not reachable."""
    info = tmp_path / "runs-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: runs\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[hansard.slices]\nruns = runs:SLICE\n")
    done = run("--help", hansard=True, PYTHONPATH=str(tmp_path))
    assert "Not reachable: a command has its name" in " ".join(done.stdout.split())
    assert "hansard.slices" in run("nothing-like-it", hansard=True).stderr
