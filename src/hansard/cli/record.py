"""Commands `hansard record` and `hansard replay`: programs whose model calls are recorded."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from hansard.agents.memory.search import import_extra
from hansard.cli import output, processes
from hansard.cli.common import Command, Commands, Run, flag, option
from hansard.cli.opening import connecting, reading_run
from hansard.client.connect import connect_async
from hansard.domain.choices import counted
from hansard.domain.errors import BadValue, CallerError

if TYPE_CHECKING:
    from hansard.ext.models.proxy import ModelProxy, ModelReport

app = Commands()

AGENT = "models"
"""Default agent on record of the model calls: a program's own sessions have other names."""

AgentName = Annotated[str, option("Agent on record of the model calls.", "NAME")]
McpConfig = Annotated[
    list[Path] | None,
    option(
        "An MCP client's configuration: its servers are recorded, too. COMMAND gets a changed "
        "copy wherever it names this file. Repeatable.",
        "FILE",
        "--mcp-config",
    ),
]
Volatile = Annotated[
    list[str] | None,
    option(
        "Leave this field of requests out of their identity: a JSON pointer such as "
        "/metadata/user_id. Repeatable.",
        "POINTER",
        "--volatile",
    ),
]
RulesFile = Annotated[
    Path | None,
    option("Leave the fields of this file out, too: as 'hansard calibrate' writes it.", "FILE"),
]


@app.command(plain=True)
async def record(
    run: Annotated[
        str | None, option("Continue this run: an id, a unique prefix, or 'last'.", "RUN")
    ] = None,
    workflow: Annotated[
        str | None, option("Workflow of a new run [the program's name].", "NAME")
    ] = None,
    agent: AgentName = AGENT,
    mcp_config: McpConfig = None,
    volatile: Volatile = None,
    rules: RulesFile = None,
    command: Command = None,
) -> int:
    """Record the model calls of a program in any language.

    The program is not changed. It reaches its providers through a local proxy, which it finds by
    their base-URL variables (OPENAI_BASE_URL, ANTHROPIC_BASE_URL, GOOGLE_GEMINI_BASE_URL ...). Each
    request is a step of a run: what it sends, and what the provider answers, piece by piece. With
    --run, recorded calls are answered from the record, and only new ones go to the provider. In a
    Python program, a call that would go around the proxy is refused. Exits with the program's code.
    """
    demand(command)
    assert command is not None  # noqa: S101 -- demanded
    which = None
    if run is not None:
        async with reading_run(run) as (_, which):
            pass
    options: dict[str, Any] = {"run": which}
    if which is None:
        options |= {"program": program_of(command)}
    name = workflow or (program_of(command) if which is None else None)
    done = await run_proxied(
        name, agent, options, command, configs=mcp_config or (), volatile=fields_of(volatile, rules)
    )
    return done.code


@app.command(plain=True)
async def replay(
    which: Run,
    agent: AgentName = AGENT,
    pace: Annotated[
        bool, flag("--pace", "Answer at the pace of the recording instead of at once.")
    ] = False,
    mcp_config: McpConfig = None,
    volatile: Volatile = None,
    rules: RulesFile = None,
    command: Command = None,
) -> int:
    """Run a program against its recorded model calls.

    No provider is called, and nothing is written. Each answer has the bytes, the pieces and the end
    of the recorded one. A call that is not on record is refused, with the difference to the nearest
    recorded request. Exits with the program's code, and with 1 if a call was refused.
    """
    demand(command)
    assert command is not None  # noqa: S101 -- demanded
    async with reading_run(which) as (_, run):
        pass
    options = {"run": run, "mode": "offline"}
    done = await run_proxied(
        None,
        agent,
        options,
        command,
        configs=mcp_config or (),
        volatile=fields_of(volatile, rules),
        pace=pace,
    )
    return done.code or (1 if done.proxy.report.refused else 0)


def fields_of(volatile: Sequence[str] | None, rules: Path | None) -> list[str]:
    """Return the fields to leave out of identities. Raises BadValue."""
    from hansard.ext.models.calibration import checked_rule, read_rules

    fields = [checked_rule(each) for each in volatile or ()]
    return [*fields, *(read_rules(rules) if rules is not None else ())]


def demand(command: list[str] | None) -> None:
    """Raise CallerError without a command, and ExtraMissing without the packages of the proxy."""
    if not command:
        message = "there is no program to run: give it after '--', such as '-- python agent.py'"
        raise CallerError(message)
    if shutil.which(command[0]) is None:
        message = f"there is no program {command[0]!r}: give one after '--'"
        raise CallerError(message)
    for package in ("httpx2", "starlette", "uvicorn"):
        import_extra(package, "'hansard record'", package, "models")


class Proxied(msgspec.Struct, frozen=True):
    """A program that ended: its run, its exit code, and the proxy that it used."""

    run: str
    code: int
    proxy: ModelProxy


async def run_proxied(
    workflow: str | None,
    agent: str,
    options: dict[str, Any],
    command: list[str],
    *,
    configs: Sequence[Path] = (),
    volatile: Sequence[str] = (),
    pace: bool = False,
    pairing: bool = False,
) -> Proxied:
    """Run a program whose model calls go through a proxy in a session of a run.

    Args:
        workflow: The workflow of a new run.
        agent: The agent on record.
        options: Options of the session.
        command: The program and its arguments.
        configs: Configurations of MCP clients.
        volatile: Fields that are left out of identities.
        pace: Whether answers have the pace of the recording.
        pairing: Whether each request is answered as the nearest recorded one.
    """
    from hansard.ext.models.calibration import PairingProxy
    from hansard.ext.models.differences import identities_under
    from hansard.ext.models.exchange import Rules
    from hansard.ext.models.messages import PromptMatcher
    from hansard.ext.models.proxy import ModelProxy, child_environment, upstreams

    replays = options.get("mode") is not None
    _demand_configs(command, configs)
    async with connect_async(**connecting()) as opened:
        begins = opened.run(workflow, agent=agent, **options)
        async with _failing_by_code(begins) as (session, result):
            rules = Rules(volatile, await PromptMatcher.of(session.engine.workspace))
            if volatile:
                earlier = identities_under(session.engine, volatile)
                rules.earlier.update(await session._flow(earlier))  # noqa: SLF001 -- reads the record
            kind = PairingProxy if pairing else ModelProxy
            proxy = kind(session, upstreams(os.environ), pace=pace, rules=rules)
            async with proxy.serving() as url:
                _print_begin(session.run, is_new=options["run"] is None, replays=replays)
                with tempfile.TemporaryDirectory(prefix="hansard-") as folder:
                    changed = _with_mcp(command, configs, session.run, Path(folder), replays)
                    report = Path(folder) / "report"
                    report.touch()
                    mode = "offline" if replays else "resume"
                    values = processes.environment(session.run, mode, report)
                    values |= child_environment(url)
                    code = result["code"] = await processes.child(changed, values)
        _print_report(proxy.report, session.run, code, replays=replays)
    return Proxied(session.run, code, proxy)


class _Failed(Exception):
    """The program ended with an exit code other than 0."""


@contextlib.asynccontextmanager
async def _failing_by_code(begins: Any) -> AsyncGenerator[tuple[Any, dict[str, int]]]:
    """Open a session; end it as failed if the program did."""
    result: dict[str, int] = {}
    with contextlib.suppress(_Failed):
        async with begins as session:
            yield session, result
            if result.get("code"):
                message = f"the program ended with exit code {result['code']}"
                raise _Failed(message)


def program_of(command: list[str]) -> str:
    """Return the name of a command's program: its script's, if an interpreter runs one."""
    scripts = (each for each in command if PurePath(each).suffix in (".py", ".js", ".ts", ".mjs"))
    return PurePath(next(scripts, command[0])).stem or "program"


def _demand_configs(command: list[str], configs: Sequence[Path]) -> None:
    """Raise BadValue for a configuration that is no file, or that the command does not name."""
    words = {part for each in command for part in each.split("=", 1)}
    for config in configs:
        if not config.is_file():
            raise BadValue("--mcp-config", f"{config} is no file", "name a client's configuration")
        if not {str(config), str(config.resolve())} & words:
            fact = f"{config} is not named in the command"
            raise BadValue("--mcp-config", fact, "name it there as it is named here")


def _with_mcp(
    command: list[str], configs: Sequence[Path], run: str, folder: Path, replays: bool
) -> list[str]:
    """Return the command, with copies of MCP configurations whose servers are recorded."""
    if not configs:
        return command
    from hansard.cli.mcp import proxy_of_run
    from hansard.integrations.mcp.install import behind_proxies

    for number, config in enumerate(configs):
        copy = folder / f"{number}-{config.name}"
        proxy = partial(proxy_of_run, run, replays=replays)
        copy.write_text(behind_proxies(config, proxy), encoding="utf-8")
        copy.chmod(0o600)
        names = {str(config), str(config.resolve())}
        command = [_renamed(each, names, str(copy)) for each in command]
    return command


def _renamed(word: str, names: set[str], copy: str) -> str:
    before, equals, value = word.partition("=")
    if word in names:
        return copy
    return f"{before}={copy}" if equals and value in names else word


def _print_begin(run: str, *, is_new: bool, replays: bool) -> None:
    if replays:
        output.hint(f"replaying the model calls of run {run}: no provider is called")
    elif is_new:
        output.hint(f"recording run {run}: after a crash continue with --run {run}")
    else:
        output.hint(f"continuing run {run}: recorded calls are answered from the record")


def _print_report(report: ModelReport, run: str, code: int, *, replays: bool) -> None:
    parts = [f"{counted(report.calls, 'model call')}, {report.from_record} from the record"]
    if report.input_tokens or report.output_tokens:
        parts.append(f"{report.input_tokens:,} input and {report.output_tokens:,} output tokens")
    if report.refused:
        parts.append(f"{len(report.refused)} refused")
    output.hint(f"run {run}: {'; '.join(parts)}")
    for why in dict.fromkeys(report.refused):
        output.hint(f"refused: {why}")
    if code and not replays:
        output.hint(f"exit code {code}: continue with hansard record --run {run} -- COMMAND")
