"""Command line `hansard`: one module per noun, imported when one of its commands is called.

Exit codes: 0 success; 1 a negative result (a finding, a difference, no broker); 2 an error,
reported in one line on stderr; 4 the answer was cut (`sql`); 130 interrupted; 141 the reader of a
pipe closed it.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import gc
import importlib
import io
import os
import sys
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from hansard._version import __version__
from hansard.cli.common import ERROR, INTERRUPTED, PIPE_CLOSED, GlobalOptions, collect, keep, option
from hansard.domain.errors import HansardError

app = typer.Typer(
    name="hansard",
    help="The verbatim, replayable record of what a team of AI agents did.",
    epilog="Global options may stand anywhere before '--'. Every command that reads takes --json: "
    "one JSON object a line on stdout.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

NEAR, NEAREST_MAX = 0.75, 3
"""Smallest similarity (0 to 1) of a suggested command to an unknown one, and most suggestions."""

VALUED = {"--workspace", "-w", "--data-dir", "--nats", "--durability", "--replicas"}
FLAGS = {"--debug"}
"""Global options with and without a value; `hoist_global_options` moves them to the front."""

SECTIONS = {
    "Run": ("up", "demo", "run", "agent", "demonstrate", "mcp", "approvals", "savings"),
    "Inspect": ("runs", "trail", "board", "team", "conversation", "memory", "knew"),
    "Ask": ("why", "search", "sql", "audit"),
    "Compare": ("experiment", "compare", "probe", "prompt", "price"),
    "Share": ("export", "import", "schema", "actions", "experience", "reuse"),
    "Administer": (
        *("status", "health", "check", "repair", "rebuild", "roles", "principals"),
        "credentials",
    ),
}
"""The commands without a group, as `hansard --help` lists them."""

COMMANDS = {
    "up": "Run the broker, fill the tables and serve restricted agents.",
    "status": "Show the broker and what the workspace holds.",
    "health": "Show whether 'hansard up' is watching, and what it found.",
    "demo": "Watch three agents work, be killed, and resume.",
    "check": "Verify a whole workspace.",
    "repair": "Restore lost metadata of a workspace's streams.",
    "runs": "List runs, the most recently recorded first.",
    "import": "Import recorded runs.",
    "export": "Export runs as JSON lines with their exact stored bytes.",
    "rebuild": "Rebuild the workspace's tables from its log.",
    "sql": "Query the record in SQL, read-only.",
    "savings": "Show what resumes and forks answered from the record.",
    "why": "Show why a decision was made.",
    "audit": "Find anomalies in the record.",
    "trail": "List a run's main events, one line each, in words.",
    "board": "Show the state that a run's agents share.",
    "memory": "Read, change and restore files that outlive runs.",
    "memory ls": "List the files of memory, now or at any point.",
    "memory show": "Print a file, now or at any point.",
    "memory log": "List the changes of a file or a space, newest first.",
    "memory diff": "Show changes of files between two points as a git diff.",
    "memory blame": "Show which change brought each line of a file.",
    "memory revert": "Undo a change, all of its files or none.",
    "memory remember": "Add a line to instructions, or propose a run's lessons.",
    "memory proposals": "List proposed changes of a space, each with its diff.",
    "memory apply": "Apply a proposal as a change.",
    "memory glob": "List files whose path matches a pattern.",
    "memory grep": "List lines that match a regular expression.",
    "memory search": "Rank files by a query, by words or also by meaning.",
    "memory compact": "Find text that can be shortened.",
    "memory reflect": "Reflect on runs that ended since the last reflection.",
    "memory judge": "Compare what a reflection proposed with an answer key.",
    "memory policy": "Show or set whether agents' changes need approval.",
    "memory export": "Write a space's files to a new folder.",
    "memory import": "Import a folder or a git history into a space.",
    "memory checkout": "Write a space to a folder to be edited as real files.",
    "memory commit": "Record the edits of a checkout as one change.",
    "memory validate": "Validate a folder or a space.",
    "agent": "Run agents defined by folders, with every action recorded.",
    "agent run": "Run an agent from its folder, through deepagents.",
    "compare": "Compare the arms of an experiment.",
    "probe": "Test whether another input value changes runs' decisions.",
    "actions": "Replay a run's actions without a model.",
    "actions show": "Print the action cache of a run.",
    "actions run": "Replay actions in Chromium as a new run.",
    "actions script": "Write a program that does the actions without Hansard.",
    "actions revert": "Restore an earlier version as the next version.",
    "actions import": "Save a file of actions in the record as a new version.",
    "reuse": "List answers reused across runs, and invalidate them.",
    "reuse list": "List answers that later runs may reuse, newest of each key.",
    "reuse used": "List calls answered from earlier runs, and what that saved.",
    "reuse invalidate": "Declare answers stale, recorded ones and those of open calls.",
    "actions list": "List saved action caches, and heals not yet reviewed.",
    "actions log": "List versions of a saved action cache: who, when and why.",
    "actions export": "Print a saved action cache as a file.",
    "actions review": "Mark a saved cache's versions as reviewed, up to one.",
    "search": "Search the text of events, best match first.",
    "schema": "Print a JSON Schema of snapshots, events or exports.",
    "credentials": "Create a login that reaches the service in one role.",
    "team": "Show a run's agents and tasks.",
    "knew": "Show what an agent knew when it decided.",
    "approvals": "List calls that wait for approval; grant or deny them.",
    "experiment": "Register experiments and show their state.",
    "experiment register": "Register an experiment: arms, metrics, and how it is judged.",
    "experiment list": "List experiments, registered or named by runs.",
    "experiment show": "Show a plan, whether it predates the data, and runs by arm.",
    "experiment stop": "Stop assigning runs to an experiment.",
    "experiment assign": "Print the arm that a unit's hash assigns; record nothing.",
    "price": "State prices of models from a date on.",
    "price state": "State what one million of each usage of a model costs.",
    "price list": "List stated prices, the newest for each day.",
    "prompt": "Manage versions of prompts, and compare their results.",
    "prompt list": "List the prompts, and what their aliases name.",
    "prompt show": "Show a version: its text, its parents and its feedback.",
    "prompt log": "Show a prompt's versions, their results and its aliases.",
    "prompt diff": "Compare two versions, or a version and its parent.",
    "prompt add": "Add a version to a prompt; an equal text adds none.",
    "prompt alias": "Point an alias to a version.",
    "prompt feedback": "Record feedback on a version.",
    "prompt evolve": "Add a version that answers feedback, by rules on its text.",
    "prompt retire": "Retire a version; it can still be read.",
    "prompt report": "Show completion, tokens, scores, satisfaction by version.",
    "prompt compare": "Compare two prompts over a table of cases.",
    "prompt promote": "Move an alias to a version that an experiment found better.",
    "prompt optimize": "Search for a better version, judge it, and move the alias.",
    "prompt import": "Import versions with their origins.",
    "principals": "List principals and their tokens; revoke access.",
    "roles": "Set, show and explain what each role may see and do.",
    "roles apply": "Set the rules of roles from a file.",
    "roles show": "Print a role's rules as a file, or list the roles.",
    "roles explain": "Explain why a role may or may not see an event.",
    "roles withdraw": "Withdraw a role's rules.",
    "roles view": "Show what a role may see of a run.",
    "run": "Show, replay, resume, fork, settle or end one run.",
    "run show": "Show the state of a run, now or at any point.",
    "run trace": "List the steps of a run, nested as they ran.",
    "run replay": "Replay a run without running tools.",
    "run resume": "Resume a run: run its program again.",
    "run fork": "Start a new run from a point of another; print its id.",
    "run settle": "State the outcome of a step in doubt or diverged.",
    "run reopen": "Let a failed task be claimed again.",
    "run finish": "Mark a run as completed, or as failed.",
    "run cancel": "Mark a run as cancelled.",
    "run score": "Record a score of a run.",
    "run diff": "Compare two runs step by step.",
    "run context": "Show the context window of a run's agents at a point.",
    "run left": "Show what a run sent to models, pages and tools, in order.",
    "run state": "Show a run's whole state at a point, or changes between two.",
    "run html": "Write a run as one HTML file that needs no server.",
    "mcp": "Record MCP clients and servers; serve the record over MCP.",
    "mcp proxy": "Record the calls between an MCP client and a server.",
    "mcp serve": "Serve the record to MCP clients.",
    "mcp install": "Configure an MCP client of a project to use the record.",
    "conversation": "Show conversations that continue over several runs.",
    "conversation show": "Show a conversation's runs and messages.",
    "demonstrate": "Record what you do in a browser window as a new run.",
    "experience": "Learn plans from runs, and replay them under checks.",
    "experience distil": "Learn the next version of an experience from runs.",
    "experience show": "Print an experience: task, plan, checks and record.",
    "experience diff": "Print how the files of two versions differ.",
    "experience list": "List experiences: permitted use, and how replays ended.",
    "experience find": "Rank experiences that fit a task, and say why.",
    "experience confirm": "Confirm an experience's checks, so that it may act.",
    "experience retire": "Retire an experience until a version is confirmed again.",
    "experience publish": "Write a version as one bundle file for others.",
    "experience verify": "Check that a bundle is whole, and who signed it.",
    "experience install": "Save a bundle as untrusted.",
    "experience run": "Replay an experience in Chromium as a new run.",
}
"""Commands and groups in the order of the help, each with the first sentence of its help, so that
the help of a group imports no module.
"""

GROUPS = (
    "actions",
    "experience",
    "memory",
    "agent",
    "experiment",
    "price",
    "roles",
    "run",
    "mcp",
    "conversation",
    "prompt",
    "reuse",
)

MODULES = {
    "import": "importing",
    "export": "exporting",
    "trail": "audit",
    "knew": "views",
    "roles view": "views",
    "repair": "check",
    "rebuild": "check",
    "savings": "reuse",
    "credentials": "roles",
    "board": "team",
    "conversation show": "messages",
    "run context": "run.show",
    "run left": "run.show",
    **{
        f"memory {name}": "memory_folders"
        for name in ("export", "import", "checkout", "commit", "validate")
    },
    **{
        f"run {name}": "run.resume_fork_settle"
        for name in ("resume", "fork", "settle", "score", "reopen", "finish", "cancel")
    },
}
"""Modules of the commands that are not in the module named after them or after their group."""


class Group(TyperGroup):
    """Group of commands; for an unknown command the error suggests similar ones of all levels."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the arguments begin with."""
        if args[0] not in self.commands and not args[0].startswith("-"):
            typed = " ".join([*ctx.command_path.split()[1:], *args[:2]])
            near = " or ".join(f"'hansard {path}'" for path in nearest(args[0], typed))
            remedy = f"did you mean {near}?" if near else f"see '{ctx.command_path} --help'"
            ctx.fail(f"unknown command {args[0]!r}: {remedy}")
        return super().resolve_command(ctx, args)


def nearest(name: str, typed: str) -> list[str]:
    """Return the commands of all levels most similar to a name or to the whole typed path."""
    from difflib import SequenceMatcher

    def likeness(path: str) -> float:
        pairs = ((name, path.rpartition(" ")[2]), (typed, path))
        return max(SequenceMatcher(None, one, other).ratio() for one, other in pairs)

    ranked = sorted(COMMANDS, key=lambda path: (-likeness(path), not path.startswith("run ")))
    return [path for path in ranked if likeness(path) >= NEAR][:NEAREST_MAX]


class Root(Group):
    """Root group; its help lists the commands by section."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 -- typer calls it so
        """Write each section as a list; all sections share their column widths."""
        width = max(map(len, self.commands))
        limit = formatter.width - 6 - width
        for section, names in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl(
                    [
                        (f"{name:{width}}", self.commands[name].get_short_help_str(limit))
                        for name in names
                    ]
                )


class LazyCommand(TyperCommand):
    """Command whose module is imported when it is called or when its own help is requested."""

    def __init__(self, path: str, help_: str) -> None:
        super().__init__(path.rpartition(" ")[2], help=help_)
        noun = path.replace(" ", ".") if path.startswith("run ") else path.partition(" ")[0]
        self._module = f"{__name__}.{MODULES.get(path, noun)}"

    @cached_property
    def loaded(self) -> Any:
        """Command itself, or the group of its module's commands."""
        noun: typer.Typer = importlib.import_module(self._module).app
        group = typer.main.get_group(noun)
        return group if noun.registered_callback else group.commands[self.name or ""]

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Import the command's module and delegate to the command itself.

        Garbage collection is enabled from here on, for the objects that the command makes.
        """
        loaded = self.loaded
        collect()
        return loaded.make_context(info_name, args, parent, **extra)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"hansard {__version__}")
        raise typer.Exit


@app.callback(cls=Root)
def _globals(
    workspace: Annotated[
        str | None, option("The workspace [HANSARD_WORKSPACE].", None, "--workspace", "-w")
    ] = None,
    data_dir: Annotated[
        Path | None, option("Directory of the embedded broker's files [HANSARD_DATA_DIR].")
    ] = None,
    nats: Annotated[
        str | None, option("Address of an external broker [HANSARD_NATS_URL].", "URL")
    ] = None,
    durability: Annotated[
        Literal["strict", "relaxed"] | None,
        option("Guarantee of the embedded broker's acks [HANSARD_DURABILITY]."),
    ] = None,
    replicas: Annotated[
        int | None,
        option(
            "Replicas of a new workspace's streams on an external cluster [HANSARD_NATS_REPLICAS].",
            min=1,
            max=5,
        ),
    ] = None,
    debug: Annotated[
        bool, option("Log more; show tracebacks.", None, "--debug", envvar="HANSARD_DEBUG")
    ] = False,
    version: Annotated[  # noqa: ARG001 -- its callback prints and leaves
        bool,
        option(
            "Show the version and exit.", None, "--version", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    GlobalOptions.values = {
        "workspace": workspace,
        "data_dir": data_dir,
        "nats_url": nats,
        "durability": durability,
        "nats_replicas": replicas,
    }
    GlobalOptions.debug = debug


def hoist_global_options(arguments: list[str]) -> list[str]:
    """Return the arguments with the global options first, so that a user may give them anywhere."""
    front: list[str] = []
    rest: list[str] = []
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        if argument == "--":
            return [*front, *rest, argument, *waiting]
        if argument in FLAGS or ("=" in argument and argument.partition("=")[0] in VALUED):
            front.append(argument)
        elif argument in VALUED:
            front += [argument, *waiting[:1]]
            waiting = waiting[1:]
        else:
            rest.append(argument)
    return [*front, *rest]


@cache
def command() -> Any:
    """Build the tree of all commands, once per process."""
    root: Any = typer.main.get_command(app)
    for path, help_ in COMMANDS.items():
        group, _, name = path.rpartition(" ")
        within = root.commands[group] if group else root
        within.commands[name] = (
            Group(name=path, help=help_, no_args_is_help=True, rich_markup_mode=None)
            if path in GROUPS
            else LazyCommand(path, help_)
        )
    return root


def main() -> None:
    """Run the command line as this process, and exit.

    Imported objects are never freed: collecting garbage among them makes `hansard runs` take 1.31
    times as much processor time (467 against 357 ms). Garbage that a command makes is collected
    (`LazyCommand`).
    """
    gc.disable()
    try:
        run_line()
    finally:
        keep()


def run_line() -> None:
    """Run the command line and exit."""
    code = ERROR
    _prepare_output()
    try:
        command()(args=hoist_global_options(sys.argv[1:]), prog_name="hansard")
    except HansardError as error:
        _print_error(error)
    except KeyboardInterrupt as error:
        code = INTERRUPTED
        _print_notes(error)
    except (MemoryError, RuntimeError) as error:
        limit = reached_limit(error)
        if limit is None:
            raise
        sys.stderr.write(f"error: {limit}\n")
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 0 if left.code is None else ERROR
    except OSError as error:
        code = _failed_by(error)
    try:
        sys.stdout.flush()
    except OSError as error:
        code = _failed_by(error)
    sys.exit(code)


_OF_OUTPUT = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}
"""Error codes with which a write to stdout may fail."""


def _prepare_output() -> None:
    """Configure stdout and stderr for every locale.

    A character that the encoding lacks is escaped as in JSON, so that `--json` stays JSON. Output
    to a closed stream is dropped.
    """
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 -- it stays open
    sys.stderr = sys.stderr or sys.stdout
    codecs.register_error("json", _escaped)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="json")


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    units = text.encode("utf-16-be", "surrogatepass")
    pairs = (units[at : at + 2].hex() for at in range(0, len(units), 2))
    return "".join(f"\\u{pair}" for pair in pairs), error.end


def reached_limit(error: BaseException) -> str | None:
    """Return which limit of the process an error or its causes come from, and the remedy."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno == errno.EMFILE:
            return _limit("too many open files", "RLIMIT_NOFILE", "ulimit -n")
        if isinstance(cause, OSError) and cause.errno == errno.ENFILE:
            return "too many open files on this machine: close some, or raise fs.file-max"
        is_thread = str(cause) == "can't start new thread"
        if (
            isinstance(cause, MemoryError)
            or (isinstance(cause, OSError) and cause.errno == errno.ENOMEM)
            or (is_thread and _has_memory_limit())
        ):
            return _limit("no memory left", "RLIMIT_AS", "ulimit -v")
        if is_thread or _is_failed_fork(cause):
            return _limit("no more processes or threads", "RLIMIT_NPROC", "ulimit -u")
        cause = cause.__cause__ or cause.__context__
    return None


def _has_memory_limit() -> bool:
    """Return whether address space is limited: the stack of a thread counts against the limit."""
    import resource

    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def _is_failed_fork(error: BaseException) -> bool:
    """Return whether a process could not be started; a lock that is held has the same errno."""
    if not isinstance(error, BlockingIOError):
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and Path(trace.tb_frame.f_code.co_filename).name == "subprocess.py"


def _limit(fact: str, name: str, command: str) -> str:
    import resource

    soft, _ = resource.getrlimit(getattr(resource, name))
    if soft == resource.RLIM_INFINITY:
        return (
            f"{fact}: this process has no limit ({command}), but the machine or its group has one"
        )
    shown = f"{soft // 1024:,} KiB" if name == "RLIMIT_AS" else f"{soft:,}"
    return f"{fact}: the limit is {shown} ({command}); raise it and repeat the command"


def _failed_by(error: OSError) -> int:
    """Report a refused system call and return the exit code; output not yet written is dropped."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return PIPE_CLOSED
    limit = reached_limit(error)
    if limit is None and not error.filename and error.errno not in _OF_OUTPUT:
        raise error
    if GlobalOptions.debug:
        import traceback

        traceback.print_exception(error)
    what = repr(error.filename) if error.filename else "the standard output"
    sys.stderr.write(f"error: {limit or f'{what}: {error.strerror or error}'}\n")
    return ERROR


def _print_error(error: HansardError) -> None:
    """Print an error as fact, value and remedy; with --debug, print the traceback first."""
    from hansard.inspect.answer import masked, plain_text

    if GlobalOptions.debug:
        import traceback

        traceback.print_exception(error)
    fact = reached_limit(error) or plain_text(masked(str(error)), lines=True)
    sys.stderr.write(f"error: {fact}\n")
    _print_notes(error)


def _print_notes(error: BaseException) -> None:
    sys.stderr.writelines(f"{note}\n" for note in getattr(error, "__notes__", ()))
