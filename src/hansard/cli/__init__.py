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
import tomllib
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from hansard._version import __version__
from hansard.cli.common import (
    ERROR,
    INTERRUPTED,
    PIPE_CLOSED,
    SLICES,
    GlobalOptions,
    collect,
    help_of,
    keep,
    option,
)
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

SECTIONS: dict[str, dict[str, list[str]]] = tomllib.loads(
    Path(__file__).with_name("sections.toml").read_text("utf-8")
)
"""Sections of `hansard --help`: each command and group with its modules and the first sentence of
its help, so that this help imports no command. The commands of a group are read from the source of
its modules (`declared`), since importing them takes 0.5 s.
"""

GROUPS = {
    *("run", "agent", "mcp", "conversation", "memory", "experiment", "prompt", "price"),
    *("actions", "experience", "reuse", "roles", "tiers", "region"),
}


def declared(modules: str, group: str) -> dict[str, tuple[str, str]]:
    """Return a group's commands, each with its module and the first sentence of its help."""
    import ast

    commands: dict[str, tuple[str, str]] = {}
    for module in modules.split():
        source = Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
        for node in ast.parse(source).body:
            match node:
                case ast.Expr(ast.Call(ast.Name("derive"), [ast.Name(app), noun, names])) if (
                    app == group
                ):
                    commands |= _derived(module, source, ast.unparse(noun), ast.literal_eval(names))
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for decorator in node.decorator_list:
                match decorator:
                    case ast.Call(ast.Attribute(ast.Name(app), "command"), args) if app == group:
                        name = ast.literal_eval(args[0]) if args else node.name
                        summary = (ast.get_docstring(node) or "").partition("\n\n")[0]
                        commands[name] = (module, " ".join(summary.split()))
    return commands


def _derived(module: str, source: str, noun: str, names: str) -> dict[str, tuple[str, str]]:
    """Return the commands of some operations of a noun, which the source of a module imports."""
    import ast
    import re

    imported = re.search(rf"from hansard\.operations\.(\w+) import .*\b{noun}\b", source)
    file = Path(__file__).parents[1] / "operations" / f"{imported[1] if imported else ''}.py"
    declared_in = ast.parse(file.read_text(encoding="utf-8"))
    texts = {
        method.name: (ast.get_docstring(method) or "").partition("\n\n")[0]
        for kind in declared_in.body
        if isinstance(kind, ast.ClassDef) and kind.name == noun
        for method in kind.body
        if isinstance(method, ast.AsyncFunctionDef)
    }
    summaries = {name: " ".join(help_of(text).split()) for name, text in texts.items()}
    return {each.replace("_", "-"): (module, summaries[each]) for each in names.split()}


@cache
def commands() -> dict[str, str]:
    """Return the path and the first sentence of the help of each command and group."""
    paths: dict[str, str] = {}
    for name, (modules, help_) in (pair for each in SECTIONS.values() for pair in each.items()):
        paths[name] = help_
        if name in GROUPS:
            members = declared(modules, name)
            paths |= {f"{name} {member}": summary for member, (_, summary) in members.items()}
    return paths


class Group(TyperGroup):
    """Group of commands; for an unknown command the error suggests similar ones of all levels."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the arguments begin with."""
        if ctx.parent is None and args[0] not in self.commands and (slice_ := of_slice(args[0])):
            return args[0], slice_, args[1:]
        if args[0] not in self.commands and not args[0].startswith("-"):
            typed = " ".join([*ctx.command_path.split()[1:], *args[:2]])
            plural = f"{typed.partition(' ')[0]}s"  # `run list` means `runs`
            is_plural = args[0] == "list" and plural in commands()
            paths = [plural] if is_plural else nearest(args[0], typed)
            near = " or ".join(f"'hansard {path}'" for path in paths)
            remedy = f"did you mean {near}?" if near else f"see '{ctx.command_path} --help'"
            if ctx.parent is None:
                remedy += " (a slice needs an entry point in the group hansard.slices)"
            ctx.fail(f"unknown command {args[0]!r}: {remedy}")
        return super().resolve_command(ctx, args)


def of_slice(name: str) -> Any:
    """Return the group of commands of an installed slice; None if there is none of this name."""
    if name.startswith("-"):
        return None
    from hansard.cli import derived

    return derived.group(name)


def slice_names() -> list[str]:
    """Return the names of the installed slices, which are imported by none of this; of our own
    those in `SLICES`.

    Their entry points are read here: importing `importlib.metadata` doubles the processor time of
    `hansard --help` (156 against 81 ms).
    """
    names: set[str] = set()
    for file in (file for each in sys.path for file in Path(each).glob("*-info/entry_points.txt")):
        _, _, rest = file.read_text(encoding="utf-8").partition("[hansard.slices]")
        for line in rest.partition("\n[")[0].splitlines():
            name, _, place = (each.strip() for each in line.partition("="))
            if name in SLICES or not place.startswith("hansard."):
                names.add(name)
    return sorted(names - {""})


def nearest(name: str, typed: str) -> list[str]:
    """Return the commands of all levels most similar to a name or to the whole typed path."""
    from difflib import SequenceMatcher

    def likeness(path: str) -> float:
        pairs = ((name, path.rpartition(" ")[2]), (typed, path))
        return max(SequenceMatcher(None, one, other).ratio() for one, other in pairs)

    ranked = sorted(commands(), key=lambda path: (-likeness(path), not path.startswith("run ")))
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
        if installed := slice_names():
            with formatter.section("Slices"):
                texts = SLICES | dict.fromkeys(
                    self.commands, "Not reachable: a command has its name."
                )
                rows = [(n, texts.get(n, "Operations of an installed slice.")) for n in installed]
                formatter.write_dl([(f"{name:{width}}", text) for name, text in rows])


class LazyGroup(Group):
    """Group whose commands are known without importing their modules."""

    def __init__(self, name: str, modules: str, help_: str) -> None:
        super().__init__(name=name, help=help_, no_args_is_help=True, rich_markup_mode=None)
        self._modules = modules

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Read the group's commands from the source of its modules, once per process."""
        group = self.name or ""
        self.commands = self.commands or {
            name: LazyCommand(name, module, help_, group)
            for name, (module, help_) in declared(self._modules, group).items()
        }
        return super().make_context(info_name, args, parent, **extra)


class LazyCommand(TyperCommand):
    """Command whose module is imported when it is called or when its own help is requested."""

    def __init__(self, name: str, module: str, help_: str, group: str = "app") -> None:
        super().__init__(name, help=help_)
        self._module, self._group = module, group

    @cached_property
    def loaded(self) -> Any:
        """Command itself, or the group that runs a command of its own by default."""
        module = importlib.import_module(f"{__name__}.{self._module}")
        own = getattr(module, self.name or "", None)
        if isinstance(own, typer.Typer):
            return typer.main.get_group(own)
        return typer.main.get_group(getattr(module, self._group)).commands[self.name or ""]

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
        list[str] | None, option("The workspace [HANSARD_WORKSPACE].", None, "--workspace", "-w")
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
    GlobalOptions.workspaces = tuple(dict.fromkeys(workspace or ()))
    GlobalOptions.values = {
        "workspace": workspace[-1] if workspace else None,
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
    for section in SECTIONS.values():
        for name, (modules, help_) in section.items():
            lazy = LazyGroup if name in GROUPS else LazyCommand
            root.commands[name] = lazy(name, modules, help_)
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
        arguments = hoist_global_options(sys.argv[1:])
        code = command()(args=arguments, prog_name="hansard", standalone_mode=False) or 0
    except HansardError as error:
        _print_error(error)
    except _USAGE_ERROR as error:
        _print_usage_error(error)
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
    except UnicodeEncodeError as error:
        argument = next((each for each in sys.argv[1:] if error.object[error.start] in each), None)
        if argument is None:
            raise
        sys.stderr.write(f"error: argument {argument!a} is not UTF-8: give UTF-8 text\n")
    except OSError as error:
        code = _failed_by(error)
    try:
        sys.stdout.flush()
    except OSError as error:
        code = _failed_by(error)
    sys.exit(code)


_USAGE_ERROR: Any = typer.BadParameter.__base__
"""Class of errors of the command line; typer exports only this subclass of it."""


def _typed_command() -> str:
    """Return the command in the arguments, which could not be parsed, as far as it is known."""
    words = sys.argv[1:]
    typed = (path for i in range(len(words)) for path in (" ".join(words[i : i + 2]), words[i]))
    return f"hansard {next(filter(commands().__contains__, typed), '')}".strip()


def _print_usage_error(error: Any) -> None:
    message = error.format_message()
    if "\n" in message:  # the help of a group without a command
        error.show()
        return
    if message.startswith("Missing "):  # what was given is in the context's parameters
        params = [each for each in error.ctx.command.params if each.required]
        missing = [p.get_error_hint(error.ctx) for p in params if p.name not in error.ctx.params]
        message = f"missing {', '.join(missing)}" if missing[1:] else message
    path = error.ctx.command_path if error.ctx is not None else _typed_command()
    remedy = "" if "'hansard" in message else f"; see '{path} --help'"
    group = error.ctx.command if error.ctx is not None else None
    if "command 'list'" in message and getattr(group, "invoke_without_command", False):
        remedy = f"; '{path}' lists them"
    sys.stderr.write(f"error: {message[:1].lower()}{message[1:].rstrip('.')}{remedy}\n")


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
    rest = (
        "" if error.filename else "; the answer is cut off (a change that it reports is on record)"
    )
    sys.stderr.write(f"error: {limit or f'{what}: {error.strerror or error}{rest}'}\n")
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
