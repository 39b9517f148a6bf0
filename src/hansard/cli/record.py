"""Commands `hansard record`, `replay` and `calibrate`: programs whose model calls are recorded."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from hansard.agents.policy import approvals
from hansard.cli import output, processes
from hansard.cli.common import Command, Commands, Run, flag, option
from hansard.cli.opening import reading_run, settings
from hansard.client.connect import opened_async
from hansard.client.opening import alongside
from hansard.client.options import restarted_by
from hansard.domain.approval import ApprovalStatus
from hansard.domain.choices import counted
from hansard.domain.errors import BadValue, CallerError, import_extra
from hansard.domain.ids import RunStream
from hansard.domain.run import RunState, RunStatus
from hansard.state.replay import fold_life

if TYPE_CHECKING:
    from hansard.agents.workspace import Workspace
    from hansard.ext.models.proxy import ModelProxy, ModelReport

app = Commands()

AGENT = "models"
"""Default agent on record of the model calls: a program's own sessions have other names."""

LABEL = "models_agent"
"""Label of a run whose model calls have another agent: its name."""

LAST = "last"

_ID = re.compile(r"0[0-9a-f]{1,7}(-[0-9a-f-]{0,27})?")
"""Form of a run's generated id, or of its beginning; any other text is a name."""

AgentName = Annotated[
    str | None, option("Agent on record of the model calls [the run's, or 'models'].", "NAME")
]
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
        str | None,
        option(
            "Continue this run: an id, a unique prefix of one, 'last', or a name, which begins a "
            "run if none has it.",
            "RUN",
        ),
    ] = None,
    workflow: Annotated[
        str | None, option("Workflow of a new run [the program's name].", "NAME")
    ] = None,
    agent: AgentName = None,
    mcp_config: McpConfig = None,
    volatile: Volatile = None,
    rules: RulesFile = None,
    command: Command = None,
) -> int:
    """Record the model calls of a program in any language.

    The program reaches its providers through a local proxy, which it finds by their base-URL
    variables (docs/models.md). With --run, recorded calls are answered from the record, and only
    new ones go to the provider. In a Python program, a call that would go around the proxy is
    refused. Exits with the program's code.
    """
    command = demand(command)
    if run is not None and (run == LAST or _ID.fullmatch(run)):
        async with reading_run(run) as (_, which):
            run = which
    fields = fields_of(volatile, rules)
    configs = mcp_config or ()
    done = await run_proxied(workflow, agent, run, command, configs=configs, volatile=fields)
    return done.code


@app.command(plain=True)
async def replay(
    which: Run,
    agent: AgentName = None,
    pace: Annotated[
        bool, flag("--pace", "Answer at the pace of the recording instead of at once.")
    ] = False,
    mcp_config: McpConfig = None,
    volatile: Volatile = None,
    rules: RulesFile = None,
    command: Command = None,
) -> int:
    """Run a program against its recorded model calls.

    No provider is called, and nothing is written. Each answer has the recorded bytes and pieces. A
    call that is not on record is refused, with the difference to the nearest request. Exits with
    the program's code, and with 1 if a call was refused.
    """
    command = demand(command)
    async with reading_run(which) as (_, run):
        pass
    done = await run_proxied(
        None,
        agent,
        run,
        command,
        replays=True,
        configs=mcp_config or (),
        volatile=fields_of(volatile, rules),
        pace=pace,
    )
    return done.code or (1 if done.proxy.report.refused else 0)


@app.command(plain=True)
async def calibrate(
    write: Annotated[
        Path | None, option("Write the proposed rules to this file, for --rules.", "FILE")
    ] = None,
    agent: AgentName = None,
    volatile: Volatile = None,
    rules: RulesFile = None,
    command: Command = None,
) -> int:
    """Propose which fields of a program's requests are volatile.

    The program is run twice, the second time with the answers of the first. Fields that differ are
    proposed as rules for --rules of 'hansard record' and 'hansard replay'. Exits with the program's
    code, and with 1 if a request differed.
    """
    command = demand(command)
    from hansard.ext.models.calibration import PairingProxy, proposals

    fields = fields_of(volatile, rules)
    first = await run_proxied(None, agent, None, command, volatile=fields)
    if first.code:
        output.hint(f"the first start ended with exit code {first.code}: nothing is compared")
        return first.code
    second = await run_proxied(
        None, agent, first.run, command, replays=True, volatile=fields, pairing=True
    )
    proxy = second.proxy
    assert isinstance(proxy, PairingProxy)  # noqa: S101 -- as requested
    proposed = proposals(proxy.pairs)
    text = "\n".join(_as_rules(proposed, first.run))
    if write is not None:
        write.write_text(text + "\n", encoding="utf-8")
        active = sum(each.active for each in proposed)
        output.hint(f"{counted(active, 'rule')} written to {write}")
        if len(proposed) > active:
            rest = counted(len(proposed) - active, "field")
            output.hint(f"{rest} left to you, as a comment there: see why before you use it")
    else:
        output.write(text)
    if proxy.unpaired:
        output.hint(f"{counted(len(proxy.unpaired), 'request')} of the second start had no answer")
    if proxy.left:
        output.hint(f"{counted(proxy.left, 'request')} of the first start was not made again")
    return second.code or (1 if proposed or proxy.unpaired or proxy.left else 0)


def fields_of(volatile: Sequence[str] | None, rules: Path | None) -> list[str]:
    """Return the fields to leave out of identities. Raises BadValue."""
    from hansard.ext.models.calibration import checked_rule, read_rules

    fields = [checked_rule(each) for each in volatile or ()]
    return [*fields, *(read_rules(rules) if rules is not None else ())]


def demand(command: list[str] | None) -> list[str]:
    """Return the command. Raises CallerError without one, ExtraMissing without the proxy."""
    if not command:
        message = "there is no program to run: give it after '--', such as '-- python agent.py'"
        raise CallerError(message)
    if shutil.which(command[0]) is None:
        message = f"there is no program {command[0]!r}: give one after '--'"
        raise CallerError(message)
    for package in ("httpx2", "starlette", "uvicorn"):
        import_extra(package, "the proxy of model calls", package, "models")
    return command


class Proxied(msgspec.Struct, frozen=True):
    """A program that ended: its run, its exit code, and the proxy that it used."""

    run: str
    code: int
    proxy: ModelProxy


async def run_proxied(
    workflow: str | None,
    agent: str | None,
    run: str | None,
    command: list[str],
    *,
    replays: bool = False,
    configs: Sequence[Path] = (),
    volatile: Sequence[str] = (),
    pace: bool = False,
    pairing: bool = False,
    prints: bool = True,
    start: Callable[[list[str], dict[str, str]], Awaitable[int]] = processes.child,
) -> Proxied:
    """Run a program whose model calls go through a proxy in a session of a run.

    Args:
        workflow: The workflow of a new run; None for the program's name.
        agent: The agent on record; None for that of the run, or `models` for a new one.
        run: The run to continue, or to begin if it is not on record; None for a new one.
        command: The program and its arguments.
        replays: Whether the run is replayed instead.
        configs: Configurations of MCP clients.
        volatile: Fields that are left out of identities.
        pace: Whether answers have the pace of the recording.
        pairing: Whether each request is answered as the nearest recorded one.
        prints: Whether the run and its report are printed.
        start: Runs a command in an environment and returns its exit code.
    """
    from hansard.ext.models.calibration import PairingProxy
    from hansard.ext.models.differences import identities_under
    from hansard.ext.models.exchange import Rules
    from hansard.ext.models.messages import PromptMatcher
    from hansard.ext.models.proxy import ModelProxy, child_environment, upstreams

    _demand_configs(command, configs)
    async with opened_async(settings()) as opened:
        life = RunState() if run is None else await _life(opened.workspace, run)
        is_new = life.status is RunStatus.UNKNOWN
        agent = agent or recorded_agent(life.roster, life.labels) or AGENT
        options = _new_run(workflow, agent, command) if is_new else {"workflow": workflow}
        mode = "offline" if replays else None
        begins = opened.run(agent=agent, run=run, mode=mode, **options)
        async with _reporting(begins, command) as (session, result):
            rules = Rules(volatile, await PromptMatcher.of(session.engine.workspace))
            if volatile:
                earlier = identities_under(session.engine, volatile)
                rules.earlier.update(await session._flow(earlier))  # noqa: SLF001 -- reads the record
            kind = PairingProxy if pairing else ModelProxy
            proxy = kind(session, upstreams(os.environ), pace=pace, rules=rules)
            waiting = contextlib.nullcontext() if replays else _printing_approvals(session)
            async with proxy.serving() as url, waiting:
                if prints:
                    _print_begin(session.run, is_new=is_new, named=run, replays=replays)
                with tempfile.TemporaryDirectory(prefix="hansard-") as folder:
                    changed = _with_mcp(command, configs, session.run, Path(folder), replays)
                    report = Path(folder) / "report"
                    report.touch()
                    values = processes.environment(session.run, mode or "resume", report)
                    values |= child_environment(url)
                    if is_new:  # sessions of the program that name a run of their own may have it
                        values.pop("HANSARD_MODE", None)
                    code = result["code"] = await start(changed, values)
        if prints:
            _print_report(proxy.report, session.run, code, replays=replays)
    return Proxied(session.run, code, proxy)


def _new_run(workflow: str | None, agent: str, command: list[str]) -> dict[str, Any]:
    """Return the options of a new run."""
    program = program_of(command)
    labels = {} if agent == AGENT else {LABEL: agent}
    return {"workflow": workflow or program, "program": program, "labels": labels}


def recorded_agent(agents: Collection[str], labels: Mapping[str, str]) -> str | None:
    """Return the agent of the model calls of a run of `hansard record`; None of another run."""
    return labels.get(LABEL) or (AGENT if AGENT in agents else None)


async def run_in_fork(
    workspace: Workspace,
    fork: str,
    command: list[str],
    timeout_s: float | None = None,
    *,
    prints: bool = True,
) -> tuple[int, str, int]:
    """Run a command in a fork, detached from the terminal; of a run of `hansard record`, as that
    command does.

    Returns its exit code, the last line of its output, and the model calls that it made through the
    proxy. Raises CallerError, also if it does not end in time.
    """
    line = ""

    async def start(command: list[str], values: Mapping[str, str]) -> int:
        nonlocal line
        code, line = await processes.run_quietly(command, values, timeout_s=timeout_s)
        return code

    life = await _life(workspace, fork)
    if recorded_agent(life.roster, life.labels) is None:
        return *await processes.run_detached(fork, command, timeout_s), 0
    demand(command)
    done = await run_proxied(None, None, fork, command, prints=prints, start=start)
    return done.code, line, done.proxy.report.calls


class _Failed(Exception):
    """The program ended with an exit code other than 0."""


@contextlib.asynccontextmanager
async def _reporting(begins: Any, command: list[str]) -> AsyncGenerator[tuple[Any, dict[str, int]]]:
    """Open a session; end it as failed if the program did.

    An error that ends it names the command that continues the run.
    """
    result: dict[str, int] = {}
    restarts = restarted_by(lambda run: f"hansard record --run {run} -- {shlex.join(command)}")
    with contextlib.suppress(_Failed), restarts:
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
    from hansard.ext.mcp.install import behind_proxies

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


async def _life(workspace: Workspace, run: str) -> RunState:
    """Return the life of a run; `unknown` if none of this id or name is on record."""
    return fold_life(await workspace.states.commits(RunStream(run)))


def _print_begin(run: str, *, is_new: bool, named: str | None, replays: bool) -> None:
    if replays:
        output.hint(f"replaying the model calls of run {run}: no provider is called")
    elif is_new:
        new = "" if named is None else "new "
        output.hint(
            f"recording {new}run {run}: after a crash continue with --run {shlex.quote(run)}"
        )
    else:
        output.hint(f"continuing run {run}: recorded calls are answered from the record")


@contextlib.asynccontextmanager
async def _printing_approvals(session: Any) -> AsyncGenerator[None]:
    """Print inside the block which calls of a session's run wait for an approval, of any agent."""
    workspace, run = session.engine.workspace, session.run

    async def follow() -> None:
        shown: set[str] = set()
        async with contextlib.aclosing(
            workspace.log.follow(of=approvals.stream_of(run))
        ) as commits:
            async for _ in commits:
                for each in await approvals.listed(workspace, [run]):
                    name, request = each.approval.id, each.approval.request
                    if each.standing is ApprovalStatus.PENDING and name not in shown:
                        shown.add(name)
                        grant = f"hansard approvals grant {name}"
                        output.hint(
                            f"{request.tool} of {request.agent} waits for approval: {grant}"
                        )

    async with alongside(follow()):
        yield


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
        again = f"hansard record --run {shlex.quote(run)} -- COMMAND"
        output.hint(f"exit code {code}: continue with {again}")


def _as_rules(proposed: list[Any], run: str) -> Iterator[str]:
    """Yield the lines of a file of rules; one that would hide a text is a comment."""
    from hansard.ext.models.calibration import TEXT_WORD

    if not proposed:
        yield f"# no field differed between run {run} and a second start"
    for each in proposed:
        yield f"# in {counted(each.calls, 'call')}{f': {each.looks}' if each.looks else ''}"
        yield f"#   first:  {each.first}"
        yield f"#   second: {each.second}"
        if each.hides_text:
            yield "# a text: with a rule, another question would get the answer that is on record"
            yield "# keep what varies out of it; to accept that all the same, remove the # before:"
        elif not each.looks:
            yield "# its form is unknown: a rule would hide every change of this field from replay"
        rule = f"{TEXT_WORD}{each.rule}" if each.hides_text else each.rule
        yield rule if each.active else f"# {rule}"
