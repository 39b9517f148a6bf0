"""The command line itself: options, help, errors, pipes, the reference."""

import functools
import gc
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hansard
from hansard import cli
from hansard._version import __version__
from hansard.cli import hoist_global_options, main
from tests.cli.support import Call, Runs, environment
from tests.cli_reference import reference
from tests.faults._warm import python

ROOT = Path(__file__).parents[2]
COMMANDS = (
    ("up",),
    ("status",),
    ("demo",),
    ("check",),
    ("runs",),
    *(("run", name) for name in ("show", "trace", "replay", "resume", "fork", "settle")),
)


@functools.cache
def _reference() -> dict[str, str]:
    return reference()


def _modules(env: dict[str, str], code: str) -> tuple[str, set[str]]:
    """Run code in a process; return its output and the modules that it loaded."""
    at_exit = "import atexit, sys\natexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
    done = subprocess.run(
        [sys.executable, "-c", at_exit + code], env=env, check=False, capture_output=True, text=True
    )
    return done.stdout, set(done.stderr.split())


def _of_command(env: dict[str, str], arguments: list[str]) -> tuple[str, set[str]]:
    code = f"from hansard.cli import main\nsys.argv = ['hansard', *{arguments}]\nmain()"
    return _modules(env, code)


@pytest.mark.slow
def test_each_page_of_the_reference_is_in_the_navigation():
    """The site lists a page for each group of commands."""
    listed = re.findall(r'"docs/(cli(?:/.+)?\.md)"', (ROOT / "zensical.toml").read_text("utf-8"))
    assert sorted(listed) == sorted(_reference())


@pytest.mark.slow
def test_the_reference_has_every_command():
    """No command without its section, no option without its words."""
    text = "".join(_reference().values())
    for command in COMMANDS:
        assert f"# `hansard {' '.join(command)}`" in text
    assert "||\n" not in text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(call: Call, command: tuple[str, ...]):
    """`--help` and `-h` describe the command."""
    result = call(*command, "--help")
    assert result.code == 0
    assert result.out.startswith(f"Usage: hansard {' '.join(command)}")
    assert call(*command, "-h").out == result.out


@pytest.mark.fast(cases=1, slow=0)
@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["roles", "--help"]])
def test_help_is_quick(tmp_path: Path, arguments: list[str]):
    """The help of a group imports no broker, no tables, nothing that draws, and no command."""
    shown, loaded = _of_command(environment(tmp_path), arguments)
    assert shown.startswith("Usage: hansard")
    assert not {"nats", "rich.console", "structlog", "duckdb", "asyncio"} & loaded
    own = {each.removeprefix("hansard.cli.") for each in loaded if "hansard.cli." in each}
    assert own == {"common"}


def test_the_tables_know_slices_without_their_operations(tmp_path: Path):
    """Events and views of the slices of this package need nothing above the domain."""
    code = "from hansard.bus import slices\nprint(*(each.name for each in slices.installed()))"
    shown, loaded = _modules(environment(tmp_path), code)
    assert {"models", "otel", "threads"} <= {*shown.split()}
    upper = ("agents", "client", "extending", "inspect", "operations", "projections", "state")
    assert not {f"hansard.{each}" for each in upper} & loaded


@pytest.mark.later
@pytest.mark.parametrize("command", ["sql", "runs"])
def test_frequent_commands_load_no_library_that_they_do_not_need(tmp_path: Path, command: str):
    """DuckDB runs in the worker; `runs` needs no aggregate and no request of a service."""
    _, loaded = _modules(environment(tmp_path), f"import hansard.cli.{command}")
    assert f"hansard.cli.{command}" in loaded
    unneeded = {"duckdb", "eventsourcing", "hansard.operations.protocol.wire"}
    assert not unneeded & loaded


@pytest.mark.slow
def test_the_help_of_a_group_has_the_line_of_each_command():
    """It is shown without the command's module, and the command's own help begins with it."""
    assert [
        path
        for path, line in cli.commands().items()
        if not f"{_help(path)} ".startswith(f"{line} ")
    ] == []


def test_the_help_lists_every_command_in_one_section(call: Call):
    """Six sections hold each command and group once, and each has its line."""
    shown = call("--help").out
    sections = ("Run", "Inspect", "Ask", "Compare", "Share", "Administer")
    starts = [shown.index(f"\n{section}:\n") for section in sections]
    assert starts == sorted(starts)
    commands, _, _ = shown[starts[0] :].partition("\nSlices:")
    listed = re.findall(r"^  ([a-z]+)  +[A-Z]", commands, re.MULTILINE)
    assert sorted(listed) == sorted(path for path in cli.commands() if " " not in path)


@pytest.mark.parametrize("group", ["", *sorted(cli.GROUPS)])
def test_the_help_cuts_no_description(call: Call, group: str):
    """Each command of a group has its whole line, within 80 columns."""
    shown = call(*group.split(), "--help").out.splitlines()
    assert max(map(len, shown)) <= 80
    for path, line in cli.commands().items():
        above, _, name = path.rpartition(" ")
        if above == group:
            assert [each for each in shown if each.split()[:1] == [name] and each.endswith(line)]


def _help(path: str) -> str:
    """Return a command's own description, in one line."""
    command = cli.command()
    for name in path.split():
        command = command.make_context(name, [], resilient_parsing=True).command.commands[name]
    return " ".join(getattr(command, "loaded", command).help.split())


@pytest.mark.slow
def test_a_command_loads_no_log_and_no_keys(tmp_path: Path):
    """Reading a workspace imports no log renderer, no cryptography and no unused tables."""
    code = "import hansard.cli.runs, hansard.cli.run, hansard.logging; hansard.logging.setup()"
    _, loaded = _modules(environment(tmp_path), code)
    assert "nats" in loaded
    assert not {"structlog", "pygments", "nkeys", "nacl", "duckdb"} & loaded


@pytest.mark.thorough(quick="test_a_command_loads_no_log_and_no_keys")
def test_who_connects_and_works_loads_no_log(data_dir: Path, workspace: str):
    """A first `connect` without a warning imports no log renderer, half of its time."""
    code = (
        "import hansard\n"
        "with hansard.connect() as record, record.run('w') as session:\n"
        "    session.message('user', 'x')\n"
    )
    _, loaded = _modules(environment(data_dir, HANSARD_WORKSPACE=workspace), code)
    assert "nats" in loaded
    assert not {"structlog", "rich", "pygments", "duckdb"} & loaded


@pytest.mark.thorough(quick="test_a_command_loads_no_log_and_no_keys")
def test_a_query_loads_no_format_that_is_not_requested(tmp_path: Path):
    """SQL answers import pyarrow for Arrow and Parquet alone."""
    _, loaded = _modules(environment(tmp_path), "import hansard.cli.sql")
    assert "hansard.projections.sql_sandbox.answer" in loaded
    assert not {"pyarrow", "nanoarrow", "duckdb", "numpy"} & loaded


@pytest.mark.thorough(quick="test_a_command_loads_no_log_and_no_keys")
@pytest.mark.parametrize("arguments", [["runs"], ["sql", "SELECT 1"], ["compare", "e"]])
def test_a_command_in_a_pipe_loads_no_more_than_it_shows(data_dir, workspace, arguments):
    """A table in a pipe waits for no rich, and of DuckDB for its engine alone."""
    with hansard.connect(workspace, data_dir=data_dir) as record:
        for arm in "ab":
            with record.run("w", experiment="e", task="t", arm=arm):
                pass
        record.sql("SELECT 1")  # the tables exist: a command that makes them loads more
    shown, loaded = _of_command(environment(data_dir, HANSARD_WORKSPACE=workspace), arguments)
    assert shown
    assert "nats.aio.client" in loaded
    assert ("_duckdb" in loaded) == (arguments[0] == "compare")
    assert not {"rich.text", "rich.console", "duckdb"} & loaded


def test_the_version(call: Call):
    """`--version` is the package's."""
    assert call("--version").out == f"hansard {__version__}\n"


@pytest.mark.parametrize(
    ("typed", "understood"),
    [
        (["runs", "--workspace", "a"], ["--workspace", "a", "runs"]),
        (["run", "show", "x", "-w", "a", "--debug"], ["-w", "a", "--debug", "run", "show", "x"]),
        (["up", "--nats=nats://h"], ["--nats=nats://h", "up"]),
        (
            ["run", "resume", "x", "--", "p", "-w", "b"],
            ["run", "resume", "x", "--", "p", "-w", "b"],
        ),
        (["runs", "--workspace"], ["--workspace", "runs"]),
        ([], []),
    ],
)
def test_global_options_may_stand_anywhere(typed: list[str], understood: list[str]):
    """But not after `--`, where everything is the command's."""
    assert hoist_global_options(typed) == understood


def test_a_wrong_option_is_reported(call: Call):
    """Exit code 2 and one line with its remedy, as everywhere."""
    wrong = (["runs", "--no-such"], ["runs", "--status", "odd"], ["nothing"], ["prompt", "show"])
    for arguments in wrong:
        result = call(*arguments)
        assert (result.code, result.out) == (2, "")
        assert re.fullmatch(r"error: [a-z].*'hansard[^\n]* --help'.*\n", result.err)


@pytest.mark.slow
def test_an_error_is_one_line_and_a_traceback_only_on_request(call, shell, runs):
    """Fact, value, remedy; `--debug` or HANSARD_DEBUG for the rest."""
    result = call("run", "show", "nothing")
    assert (result.code, result.out) == (2, "")
    assert result.err == "error: run 'nothing' was not found: see 'hansard runs'\n"
    assert "Traceback" in call("run", "show", "nothing", "--debug").err
    assert "Traceback" not in call("runs", "--debug").err
    assert "Traceback" in shell("run", "show", "nothing", HANSARD_DEBUG="1").err


def test_a_reader_that_leaves_ends_it_quietly(runs: Runs, home: Path):
    """A closed pipe is no error to print."""
    process = subprocess.Popen(
        [python(), "-m", "hansard", "run", "trace", runs.team, "--full"],
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    message = process.stderr.read()
    process.stderr.close()
    assert process.wait(30) == 141
    assert message == ""


@pytest.mark.slow
def test_colour_is_for_terminals(runs: Runs, home: Path):
    """A terminal gets colour, unless NO_COLOR is set."""
    script = (
        "import os,pty,sys\n"
        "def read(fd):\n"
        "    data = os.read(fd, 65536)\n"
        "    return data\n"
        "sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:], read)))"
    )
    command = [sys.executable, "-c", script, sys.executable, "-m", "hansard", "runs"]
    for env, coloured in (({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False)):
        done = subprocess.run(
            command,
            env=environment(home, **env),
            capture_output=True,
            timeout=170,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        assert (b"\x1b[32m" in done.stdout) is coloured
        assert b"completed" in done.stdout


@pytest.mark.parametrize("arguments", [["demo"], ["up"], ["runs"]])
def test_while_a_command_works_garbage_is_looked_for(monkeypatch, arguments):
    """Garbage collection, off while `main` imports, is on while a command works."""
    loaded = cli.command().commands[arguments[0]].loaded
    seen: list[bool] = []
    monkeypatch.setattr(loaded, "callback", lambda **_: seen.append(gc.isenabled()))
    monkeypatch.setattr(sys, "argv", ["hansard", *arguments])
    try:
        with pytest.raises(SystemExit):
            main()
    finally:
        gc.unfreeze()
        gc.enable()
    assert seen == [True]


@pytest.mark.parametrize(
    ("typed", "nearest"),
    [
        (("show",), "'hansard run show'"),
        (("run", "setle", "last"), "'hansard run settle'"),
        (("memroy", "ls"), "'hansard memory ls'"),
        (("trails",), "'hansard trail'?"),
        (("run", "list"), "did you mean 'hansard runs'?"),
        (("xyzzy",), "see 'hansard --help'"),
        (("",), "see 'hansard --help'"),
    ],
)
def test_an_unknown_command_names_the_nearest(call: Call, typed: tuple[str, ...], nearest: str):
    """Commands of all levels count: a word without its group suggests the whole command."""
    result = call(*typed)
    assert result.code == 2
    assert f"unknown command {typed[-2 if typed[-1] in ('last', 'ls') else -1]!r}" in result.err
    assert nearest in result.err.partition("unknown command")[2]


@pytest.mark.parametrize(
    ("typed", "remedy"),
    [
        (("approvals", "list"), "'hansard approvals' lists them"),
        (("run", "show", "last", "--at"), "see 'hansard run show --help'"),
        (("runs", "--limit"), "see 'hansard runs --help'"),
    ],
)
def test_an_error_of_usage_names_the_command(call: Call, typed: tuple[str, ...], remedy: str):
    """An option without its value, and a word that a listing command does not take."""
    result = call(*typed)
    assert (result.code, remedy in result.err) == (2, True), result.err


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [("why", "\udcff"), ("knew", "\udcff"), ("run", "show", "\udcff"), ("audit", "\udcff")],
    ids=lambda arguments: arguments[0],
)
def test_a_name_that_is_no_utf_8_is_not_found(call, runs, arguments):
    """Bytes that no text has, as the shell hands them over, are an error in words."""
    done = call(*arguments)
    assert (done.code, done.out) == (2, "")
    assert "was not found" in done.err


def test_all_missing_options_are_named_at_once(call: Call):
    """Those that are given are left out."""
    refused = call("pack", "make", "FOLDER", "r1", "--as", "auditor")
    assert refused.code == 2
    named = "missing '--name', '--license', '--key'; see 'hansard pack make --help'"
    assert refused.err == f"error: {named}\n"
