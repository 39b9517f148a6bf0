"""The `hansard` command: a module a noun, which is loaded when one of its commands is called.

Exit codes: 0 done; 1 something is wrong (a finding, a difference, no broker); 2 an error, told in
one line on stderr; 4 there is more than was given (`sql`); 130 interrupted; 141 the reader of a
pipe left.
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
from hansard.cli.common import Given, collect, keep
from hansard.cli.exit_codes import ERROR, INTERRUPTED, PIPE_CLOSED
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

VALUED = {"--workspace", "-w", "--data-dir", "--nats", "--durability", "--replicas"}
FLAGS = {"--debug"}
"""The global options, with and without a value, which `hoisted` brings to the front."""

COMMANDS = {
    "up": "Hold the broker, project, serve restricted agents; show each commit as it is made.",
    "status": "Show the broker and what the workspace holds.",
    "health": "Tell whether 'hansard up' watches the logs, and what it found.",
    "demo": "Watch three agents work, be killed, and resume.",
    "check": "Recheck a whole workspace.",
    "repair": "Restore the metadata of a workspace's streams that the embedded broker does not "
    "offer.",
    "runs": "List the runs, the newest first; those that are all that is asked for.",
    "import": "Import recorded runs.",
    "export": "Write runs as JSON lines with their exact stored bytes, large payloads included.",
    "rebuild": "Make the workspace's tables anew from its log.",
    "sql": "Ask the record in SQL, read-only.",
    "savings": "Show what resumes and forks were answered from the record.",
    "why": "Show why something was decided.",
    "audit": "Look for what is missing or odd.",
    "trail": "Show what happened in a run, one line an event that matters, in words.",
    "board": "Show the state that a run's agents share, now or at any point.",
    "memory": "Look at files that outlive runs, follow them back, put them right.",
    "memory ls": "List the files of memory, now or at any point.",
    "memory show": "Print a file, as it is or as it was.",
    "memory log": "List the changes of a file, or of all files of a space, the newest first.",
    "memory diff": "Show what became of files between two points, in git's unified format.",
    "memory blame": "Show which change brought each line of a file.",
    "memory revert": "Undo a change, all of its files or none; what was changed since in other "
    "lines stays.",
    "memory remember": "Add a line to a space's instructions, or propose what a run has to teach.",
    "memory proposals": "List what reflections and compactions propose for a space, each with its "
    "diff.",
    "memory apply": "Have a proposal be a change; refused where a file of it has changed since.",
    "memory glob": "List the files whose path matches: * stays within a folder, ** goes through "
    "folders.",
    "memory grep": "List the lines that match a regular expression, in time linear in the text.",
    "memory search": "Rank files by what is asked: by their words, and with --meaning by both, "
    "fused.",
    "memory compact": "Find what could be shorter, and what refuses a proposal; nothing is changed "
    "but by --apply.",
    "memory reflect": "Reflect on the runs that have ended since the last reflection, each once; "
    "no file changes.",
    "memory judge": "Hold what a reflection proposed against a key: missed, spurious, misplaced, "
    "too specific.",
    "memory policy": "Show whether agents' changes of a space wait for a person's word, or say so.",
    "memory export": "Write a space's files to a new folder, where a harness looks for them.",
    "memory import": "Bring a folder, or a history of git, into a space.",
    "memory checkout": "Make a folder of a space, to be worked on by whatever wants real files.",
    "memory commit": "Make a change of what became of a checkout, then have the folder as the "
    "space is.",
    "memory validate": "Check a folder, or a space: skills, subagents, tools, instructions, "
    "links and paths.",
    "agent": "Run an agent that is a folder, every action on record.",
    "agent run": "Have an agent that is a folder do something, through deepagents "
    "(hansard[agent]).",
    "compare": "Compare the arms of an experiment.",
    "probe": "Find whether runs decide otherwise where a value that they decided from is another.",
    "actions": "Do again, without a model, what a run did.",
    "actions show": "Print the action cache of a run: what it did to pages and by tools, and "
    "succeeded with.",
    "actions run": "Do the actions of a file again in chromium, as a new run; no model is asked.",
    "actions script": "Write a program that does the actions of a file, and needs no Hansard.",
    "actions revert": "Go back to what a file said at an earlier version; that is the next version "
    "of it.",
    "reuse": "Look at answers that calls of later runs are given, and declare some stale.",
    "reuse list": "List the answers that later runs may be given, the newest of each key.",
    "reuse used": "List the calls that were given an answer of an earlier run, and what that "
    "saved.",
    "reuse invalidate": "Declare answers stale: those on record, and those of calls that are under "
    "way.",
    "actions keep": "Keep a file of actions in the record by a name, as its next version.",
    "actions list": "List the action caches that are kept, and how many heals nobody has looked "
    "at.",
    "actions log": "List the versions of an action cache that is kept: who changed what, when and "
    "why.",
    "actions export": "Print a version of an action cache that is kept, as a file.",
    "actions restore": "Go back to an earlier version of an action cache that is kept; that is the "
    "next version.",
    "actions look-at": "State that you looked at an action cache's versions up to one, and let "
    "them stand.",
    "search": "Search what events say, the best fit first.",
    "schema": "Print a JSON Schema: of snapshots, of stored events, of what is exported.",
    "credentials": "Make a login that reaches the service in one role, and nothing else.",
    "team": "Show a run's agents and tasks: who does what, what waits, whose lease runs out.",
    "knew": "Show what an agent knew when it decided: its state, and what its role could see.",
    "approvals": "List what agents ask before a call runs, and grant or deny it.",
    "experiment": "Register what is compared before the data, and look at how it stands.",
    "experiment register": "Register an experiment: its arms, its metrics and how it is judged.",
    "experiment list": "List experiments, registered or met in runs.",
    "experiment show": "Show a plan, whether it stood before the data, and the runs by arm.",
    "experiment stop": "Assign no run to an experiment any more.",
    "experiment assign": "Print the arm that a unit has by its hash; nothing is recorded.",
    "price": "State what a model's use costs from a day on. A recorded cost is never changed by "
    "it.",
    "price state": "State what one million of each usage of a model costs.",
    "price list": "List the prices as they are stated; of several for one day the newest.",
    "prompt": "Keep versions of prompts, and see how each did.",
    "prompt list": "List the prompts, and what their aliases name.",
    "prompt show": "Show a version of a prompt: its text, its parents, what was said of it.",
    "prompt log": "Show the versions of a prompt, what their runs came to, and the history of its "
    "aliases.",
    "prompt diff": "Show what two versions differ by, or a version and its parent.",
    "prompt add": "Add a version to a prompt; what changes nothing makes none.",
    "prompt alias": "Have an alias name a version; what it named before stays in its history.",
    "prompt feedback": "Put on record what somebody says of a version.",
    "prompt evolve": "Add the version that answers what was said of one, by rules on its text.",
    "prompt retire": "Have a version not be used any more; it can still be read.",
    "prompt report": "Show how versions of prompts did: completion, tokens, scores, satisfaction.",
    "prompt promote": "Move an alias to a version that an experiment says is better than the one "
    "it names.",
    "prompt optimize": "Look for a better version on some tasks, judge it on others, move the "
    "alias.",
    "prompt import": "Import versions with what they were made of; importing again adds nothing.",
    "principals": "Show who may log in with which token, and take that away.",
    "roles": "Say what each role sees and may do, deny by default, and ask why.",
    "roles apply": "Give the roles of a file their rules, each as a whole.",
    "roles show": "Show a role's rules as a file that can be applied again, or list the roles.",
    "roles explain": "Tell whether a role sees an event: which rule decides, and what each other "
    "rule lacks.",
    "roles withdraw": "Take a role's rules away: from here on it sees nothing and may do nothing.",
    "roles view": "Show what a role may see of a run: now, or at a point by its rules as they "
    "stood then.",
    "run": "Look at one run, replay it, resume it, fork it, settle its doubts, end it.",
    "run show": "Show the state of a run, now or at any point.",
    "run trace": "List the steps of a run, nested as they ran.",
    "run replay": "Replay a run: no tool runs.",
    "run resume": "Go on with a run: run its program again.",
    "run fork": "Begin a new run where another stood; prints its id.",
    "run settle": "Say what is true of a step in doubt or diverged.",
    "run reopen": "Have a task that failed be done after all: it may be claimed again.",
    "run finish": "Say that a run has ended as it should, whoever has not left it.",
    "run cancel": "Say that a run is cancelled, whoever has not left it; it stops nobody.",
    "run score": "Put on record what came of a run.",
    "run diff": "Compare two runs step by step.",
    "run context": "Show the context window of a run's agents as it stood at a point.",
    "run left": "Show what went out of a run: to models, pages and tools, in order.",
    "run state": "Show the whole state of a run at a point, or what changed between two.",
    "run html": "Write a run as one HTML file that needs no server.",
    "mcp": "Record other people's clients and servers, over the Model Context Protocol.",
    "mcp proxy": "Stand between an MCP client and a server, and record each call.",
    "mcp serve": "Serve the record to MCP clients: its runs, shared state, tasks and questions.",
    "mcp install": "Have an MCP client of a project use the record.",
    "conversation": "Look at what continues over several runs.",
    "conversation show": "Show a conversation's runs and messages.",
    "demonstrate": "Record what you do in a window, until you close it or press Ctrl-C, as a new "
    "run.",
    "experience": "Learn from runs, and do it again under check functions.",
    "experience distil": "Learn from runs of one kind of task, without a model: the next version "
    "of an experience.",
    "experience show": "Print an experience: its task, its plan, the checks that guard it, and "
    "what is on record.",
    "experience diff": "Print how the files of two versions differ.",
    "experience list": "List the experiences that are kept: what they may be used for, and how "
    "replays ended.",
    "experience find": "Find the experiences that fit a task, and say why: wording, words, "
    "success, cost.",
    "experience confirm": "State that its checks are right: with them it may act, as the next "
    "version.",
    "experience retire": "Have an experience not be used any more, until a version is confirmed "
    "again.",
    "experience publish": "Write a version as one file for others; secrets and personal values in "
    "it are refused.",
    "experience verify": "Say whether a bundle is whole and who signed it; takes no record, and "
    "runs nothing of it.",
    "experience install": "Keep a bundle, untrusted: nothing is done by it until a person "
    "confirms its digest.",
    "experience run": "Do a task in chromium by what was learned, as a new run; no model is asked.",
}
"""Each command and group, in the order of the help, with the first sentence of its help: the help
of the group that it stands in loads no module.
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
    **{
        f"memory {name}": "memory_folders"
        for name in ("export", "import", "checkout", "commit", "validate")
    },
    **{
        f"run {name}": "run.resume_fork_settle"
        for name in ("resume", "fork", "settle", "reopen", "finish", "cancel")
    },
}
"""Where a command stands that is in no module of its own, or of its group's, name."""


class Later(TyperCommand):
    """A command whose module is loaded when it is called, or asked for its own help."""

    def __init__(self, path: str, help_: str) -> None:
        super().__init__(path.rpartition(" ")[2], help=help_)
        noun = path.replace(" ", ".") if path.startswith("run ") else path.partition(" ")[0]
        self._module = f"{__name__}.{MODULES.get(path, noun)}"

    @cached_property
    def loaded(self) -> Any:
        """The command itself, or the group of those of its module."""
        noun: typer.Typer = importlib.import_module(self._module).app
        group = typer.main.get_group(noun)
        return group if noun.registered_callback else group.commands[self.name or ""]

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """What it is called with, for the command itself; from now on garbage is looked for in what
        it makes.
        """
        loaded = self.loaded
        collect()
        return loaded.make_context(info_name, args, parent, **extra)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hansard {__version__}")
        raise typer.Exit


@app.callback()
def _globals(
    workspace: Annotated[
        str | None, typer.Option("--workspace", "-w", help="The workspace [HANSARD_WORKSPACE].")
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Where the embedded broker keeps its files [HANSARD_DATA_DIR]."),
    ] = None,
    nats: Annotated[
        str | None,
        typer.Option(metavar="URL", help="An outside broker instead [HANSARD_NATS_URL]."),
    ] = None,
    durability: Annotated[
        Literal["strict", "relaxed"] | None,
        typer.Option(help="What the embedded broker's acks promise [HANSARD_DURABILITY]."),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=5,
            help="Make a workspace's streams with so many replicas on an outside cluster "
            "[HANSARD_NATS_REPLICAS].",
        ),
    ] = None,
    debug: Annotated[
        bool,
        typer.Option("--debug", envvar="HANSARD_DEBUG", help="Log more; show tracebacks."),
    ] = False,
    version: Annotated[  # noqa: ARG001 -- its callback prints and leaves
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    Given.values = {
        "workspace": workspace,
        "data_dir": data_dir,
        "nats_url": nats,
        "durability": durability,
        "nats_replicas": replicas,
    }
    Given.debug = debug


def hoisted(arguments: list[str]) -> list[str]:
    """The arguments with the global options in front, so that they may stand anywhere."""
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
    """All commands, made once a process."""
    root: Any = typer.main.get_command(app)
    for path, help_ in COMMANDS.items():
        group, _, name = path.rpartition(" ")
        within = root.commands[group] if group else root
        within.commands[name] = (
            TyperGroup(name=path, help=help_, no_args_is_help=True, rich_markup_mode=None)
            if path in GROUPS
            else Later(path, help_)
        )
    return root


def main() -> None:
    """Run the command line as this process, and exit.

    What is imported stays to the end: looking for garbage among it would take a fifth of a short
    command. While a command works, garbage is looked for in what it makes (`Later`).
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
        command()(args=hoisted(sys.argv[1:]), prog_name="hansard")
    except HansardError as error:
        _tell(error)
    except KeyboardInterrupt:
        code = INTERRUPTED
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
"""What a write to the standard output may fail with."""


def _prepare_output() -> None:
    """Have output written whatever the locale: a character that its encoding lacks is escaped as in
    JSON, so that `--json` stays JSON. What is written to a closed stream is dropped.
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


def _failed_by(error: OSError) -> int:
    """Say what the system refused, and return the exit code. What is left to write is dropped."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return PIPE_CLOSED
    if not error.filename and error.errno not in _OF_OUTPUT:
        raise error
    if Given.debug:
        import traceback

        traceback.print_exception(error)
    what = repr(error.filename) if error.filename else "the standard output"
    sys.stderr.write(f"error: {what}: {error.strerror or error}\n")
    return ERROR


def _tell(error: HansardError) -> None:
    """An error as its fact, value and remedy; the traceback only where it is asked for."""
    from hansard.inspect.texts import masked, plain_text

    if Given.debug:
        import traceback

        traceback.print_exception(error)
    sys.stderr.write(f"error: {plain_text(masked(str(error)), lines=True)}\n")
