"""Commands `hansard mcp` and `agent`: the record over MCP, and agents defined by folders."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import parse_qsl, urlsplit

import typer

from hansard.broker import access
from hansard.bus.clock import OS_USER
from hansard.cli import output
from hansard.cli.common import AllowHost, By, Command, Commands, argument, flag, option
from hansard.cli.opening import connecting, settings, variable
from hansard.cli.output import Bytes, Hint, Part
from hansard.cli.processes import log_stream, termination_event, until
from hansard.client.connect import connect, connect_async
from hansard.client.opening import data_dir_of
from hansard.domain.approval import Approval
from hansard.domain.choices import counted
from hansard.domain.errors import BadValue, ExtraMissing, import_extra
from hansard.domain.steps import Effects
from hansard.ext.mcp import install as files
from hansard.ext.mcp import recording as rule_files
from hansard.ext.mcp import upstream as server_files
from hansard.ext.mcp.recording import ProxyReport, Rules, summary
from hansard.ext.mcp.serving import LAST, NEW, READS_ONLY, TIMEOUT_S, Serving, serve
from hansard.ext.memory.agent_runs import AgentRun, run_folder
from hansard.settings import Settings

mcp = Commands()
agent = Commands()

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""Name of a header (RFC 9110, token)."""

TOKEN_BYTES = 32
"""Random bytes of a token that is generated here: as many as credentials have."""
TokenFile = Annotated[
    Path | None,
    option("With --http: file with the token of trusted clients; created if missing.", "FILE"),
]
AgentName = Annotated[str | None, option("The client's agent name [HANSARD_AGENT].", "NAME")]
RoleName = Annotated[str | None, option("The client's role [HANSARD_ROLE].", "NAME")]
ProxyMode = Annotated[
    Literal["live", "resume", "strict", "offline"] | None,
    option(
        "Use of the record [live for a new run, else resume]. strict and offline answer from "
        "the "
        "record alone: no server is started."
    ),
]
HeaderEnv = Annotated[
    list[str] | None,
    option(
        "With --url: a header, and the variable that holds its value. Repeatable.", "HEADER=NAME"
    ),
]
Http = Annotated[
    str | None,
    option(
        "With --url: clients connect over HTTP, at /mcp of this port; 0: a free one.", "[HOST:]PORT"
    ),
]


@mcp.command(plain=True, service=log_stream)
async def proxy(
    command: Command = None,
    url: Annotated[str | None, option("A server over HTTP, instead of a command.", "URL")] = None,
    token_env: Annotated[
        str | None, option("With --url: the variable with its bearer token.", "NAME")
    ] = None,
    header_env: HeaderEnv = None,
    servers: Annotated[
        Path | None, option("Several servers, in a client's mcpServers form.", "FILE")
    ] = None,
    http: Http = None,
    token_file: TokenFile = None,
    allow_host: AllowHost = None,
    run: Annotated[str, option("Run to record in; last: of this workflow.", "ID|new|last")] = NEW,
    mode: ProxyMode = None,
    workflow: Annotated[str, option("Workflow of a new run.", "NAME")] = "mcp",
    agent: AgentName = None,
    role: RoleName = None,
    rules: Annotated[
        Path | None, option("Effects of tools, and refusals: docs/mcp.md.", "FILE")
    ] = None,
    timeout: Annotated[
        float, option("Longest duration of a call, in seconds.", min=0.1)
    ] = TIMEOUT_S,
) -> None:
    """Record the calls between an MCP client and a server.

    The client connects over stdin and stdout: in its configuration, put 'hansard mcp proxy --'
    before the server's command, or replace the server's address by 'hansard mcp proxy --url URL'.
    With --url and --http any number of clients connect to a local port; they share one run.
    Recorded calls are answered from the record: with --run last after a crash, and with --run last
    --mode offline without a server.
    """
    _demand_http(http, token_file, allow_host)
    config = Serving(
        command=command or [],
        url=url,
        headers=headers_of(token_env, header_env or ()),
        servers={} if servers is None else server_files.load(servers),
        http=http,
        hosts=allow_host or (),
        client_token=None if token_file is None else token_of(token_file),
        run=run,
        mode=mode,
        workflow=workflow,
        agent=agent,
        role=role,
        rules=Rules() if rules is None else rule_files.load(rules),
        timeout_s=timeout,
    )
    await _proxying(config)


async def _proxying(config: Serving) -> None:
    config.check()
    report = ProxyReport()
    with termination_event() as stop:
        await until(stop, _run_proxy(config, report))
    output.hint(summary(report))


def _demand_http(http: str | None, *of_http: object) -> None:
    if http is None and any(of_http):
        options = "--token-file, --allow-host"
        raise BadValue(options, "there is no --http", "give it, or leave these out")


def headers_of(token_env: str | None, header_env: Sequence[str]) -> dict[str, str]:
    """Return the request headers, with values from environment variables. Raises BadValue."""
    headers = {} if token_env is None else server_files.bearer(variable("--token-env", token_env))
    for each in header_env:
        header, _, name = each.partition("=")
        if not _HEADER.fullmatch(header) or not name:
            raise BadValue("--header-env", f"{each!r:.80}", "give HEADER=NAME of a variable")
        headers[header] = variable("--header-env", name)
    return headers


@mcp.command("serve", plain=True, service=log_stream)
async def serve_record(
    agent: AgentName = None,
    role: RoleName = None,
    tools: Annotated[
        list[str] | None,
        option(
            "Tools to offer: default, run, board, team, memory, ask, experiences, "
            "harness, all, or a tool's name. Repeatable.",
            "GROUP|TOOL",
            show_default="default",
        ),
    ] = None,
    prefix: Annotated[str, option("Put NAME_ before the name of each tool.", "NAME")] = "",
) -> None:
    """Serve the record to one MCP client over stdio.

    The client is one agent in one role; 'hansard up --http' serves any number of them at /mcp.
    Calls are recorded in the run that they name, or in a run of the agent's own (workflow 'mcp').
    Runs stay open when the server exits: only leave_run ends an agent's work.
    """
    try:
        from hansard.service.mcp.offers import Sessions, offers
        from hansard.service.mcp.server import serve_stdio
    except ModuleNotFoundError as error:
        raise ExtraMissing("'hansard mcp serve'", error.name or "mcp", "mcp") from None
    names = [name for each in tools or ["default"] for name in each.split(",")]
    offers(names, prefix)
    with termination_event() as stop:
        async with connect_async(**connecting()) as record:
            sessions = Sessions(record, agent, role, tools=names, prefix=prefix)
            await until(stop, serve_stdio(sessions))


def token_of(file: Path | None, name: str = "--token-file") -> str:
    """Return the token in the file of an option, which is created if it is missing.

    Without a file, generate a token and print it. Raises BadValue.
    """
    if file is None:
        made = secrets.token_urlsafe(TOKEN_BYTES)
        output.hint(f"clients must send: Authorization: Bearer {made}")
        return made
    try:
        with contextlib.suppress(FileExistsError):
            fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(fd, "w") as new:
                new.write(secrets.token_urlsafe(TOKEN_BYTES) + "\n")
        if stat.S_IMODE(file.stat().st_mode) & access.OTHERS:
            fact = f"others may read or write {file}"
            raise BadValue(name, fact, "delete it, or make it yours alone: chmod 600")
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadValue(name, f"{error}", "name another file") from error


@mcp.command()
async def install(
    client: Annotated[
        Literal["claude", "claude-desktop", "cursor", "vscode"],
        typer.Argument(help="Client to configure. claude is Claude Code."),
    ],
    name: Annotated[
        str | None,
        typer.Argument(help="Server to record through the proxy [add the record's own server]."),
    ] = None,
    folder: Annotated[
        Path, option("The project's folder.", "DIR", show_default="this one")
    ] = Path(),
    user: Annotated[
        bool, flag("--user", "Change the user's configuration instead of the project's.")
    ] = False,
    agent: AgentName = None,
    url: Annotated[
        str | None,
        option("Without NAME: address of 'hansard up --http': http://HOST:PORT/mcp.", "URL"),
    ] = None,
    token_env: Annotated[
        str | None,
        option("With --url or --hooks: the variable with the client's token.", "VARIABLE"),
    ] = None,
    hooks: Annotated[
        str | None,
        option(
            "Only for claude: have Claude Code post its tool calls to this 'hansard up --http'.",
            "URL",
        ),
    ] = None,
    write: Annotated[bool, flag("--write", "Write the file instead of printing it.")] = False,
    undo: Annotated[bool, flag("--undo", "Undo a former install.")] = False,
) -> None:
    """Configure an MCP client of a project to use the record.

    Without NAME, add a server 'hansard' that runs 'hansard mcp serve'. With the NAME of a
    configured server, put 'hansard mcp proxy' before its command or address. The rest of the
    configuration is unchanged. With --url the client connects to a running server instead. With
    --hooks, Claude Code's tool calls are recorded, or denied by rules in the URL
    (docs/frameworks.md).
    """
    kind, where = files.CLIENTS[client], None if user else folder
    if hooks is not None:
        _check_hooks(client, name, url)
        made = _hooked(hooks, where, token_env, undo=undo)
    elif (url is None and token_env is not None) or (url is not None and name is not None):
        fact = "--token-env without --url, or --url with the name of a server"
        raise BadValue(
            "the options", fact, "--url URL [--token-env NAME] add the record's own server"
        )
    elif undo:
        made = files.taken_back(kind, where, name)
    elif url is not None:
        made = files.installed_at(kind, where, url, token_env)
    else:
        base = [*_command(), *_place(settings())]
        who = [] if agent is None else ["--agent", agent]
        serve_it = [*base, "mcp", "serve", *who]
        proxy_it = [*base, "mcp", "proxy", "--workflow", name or "", *who]
        made = files.installed(kind, where, name, serve_it, proxy_it)
    backup = made.write() if write and made.changes else ""
    output.show(made, _render_install(made, backup, write=write))


def _check_hooks(client: str, name: str | None, url: str | None) -> None:
    """Raise BadValue for options that do not go with --hooks."""
    if client != "claude" or name is not None or url is not None:
        fact = "only Claude Code posts hooks, and they need no server"
        raise BadValue("--hooks", fact, "hansard mcp install claude --hooks URL")


def _hooked(
    hooks: str, folder: Path | None, token_env: str | None, *, undo: bool
) -> files.Installed:
    """Return the settings of Claude Code with hooks that post to a listener. Raises BadValue."""
    for package in ("starlette", "uvicorn"):
        import_extra(package, "hooks", package, "http")
    from hansard.ext.frameworks import claude

    place = urlsplit(hooks)
    if place.scheme not in ("http", "https") or not place.netloc:
        raise BadValue("--hooks", f"{hooks!r:.80}", "give http://HOST:PORT, as 'hansard up' shows")
    claude.HookRules.of(dict(parse_qsl(place.query))).gate()
    path = place.path.rstrip("/").removesuffix(claude.PATH) + claude.PATH
    block = {} if undo else claude.block(place._replace(path=path).geturl(), token_env)
    return files.hooked(folder, claude.PATH, block)


def _render_install(made: files.Installed, backup: str, *, write: bool) -> Iterator[Part]:
    if not made.changes:
        yield Hint(f"{made.path} is already configured: nothing to do")
        return
    yield Bytes(made.text.encode())
    done = (
        f"wrote {made.path}" if write else f"new content of {made.path}, not written: add --write"
    )
    yield Hint(f"{done}; --undo takes it back")
    if backup:
        yield Hint(f"the former file is {backup}")


def _command() -> list[str]:
    """Return the command line with which a client starts this program."""
    program = shutil.which("hansard")
    return [program] if program else [sys.executable, "-m", "hansard"]


def _place(config: Settings) -> list[str]:
    """Return the options that name the record independently of the working directory."""
    where = (
        ["--nats", config.nats_url] if config.nats_url else ["--data-dir", str(data_dir_of(config))]
    )
    return [*where, "--workspace", config.workspace]


def proxy_of_run(run: str, server: str, *, replays: bool) -> list[str]:
    """Return the command line of a proxy that records a server's calls in a run."""
    command = [*_command(), *_place(settings()), "mcp", "proxy", "--run", run]
    return [*command, "--agent", f"mcp.{server}", *(["--mode", "offline"] if replays else [])]


async def _run_proxy(config: Serving, report: ProxyReport) -> None:
    rules = config.rules
    async with connect_async(**connecting(), gate=rules.rules(), redact=rules.secrets()) as record:
        began = partial(_print_run, config)
        await serve(record, config, report, began, _print_effects, _print_url, _print_approval)


def _print_run(config: Serving, run: str) -> None:
    if config.mode in READS_ONLY:
        output.hint(f"replaying run {run}: no server is called")
        return
    verb = "recording" if config.run == NEW else "continuing"
    output.hint(
        f"{verb} run {run}: after a crash continue with --run {run} (or --run {LAST}), and replay "
        f"it without the server with --run {run} --mode offline"
    )


def _print_approval(approval: Approval) -> None:
    grant = f"hansard approvals grant {approval.id}"
    output.hint(f"{approval.request.tool} is waiting for approval {approval.id}: {grant}")


def _print_url(url: str) -> None:
    output.hint(f"clients connect to {url}")


def _print_effects(tools: dict[str, Effects]) -> None:
    by_effects: dict[str, list[str]] = {}
    for name, effects in tools.items():
        by_effects.setdefault(effects.value, []).append(name)
    for policy, names in by_effects.items():
        output.hint(f"{policy}: {', '.join(names)}")


@agent.command("run")
def run_agent(
    folder: Annotated[Path, argument("FOLDER", "AGENTS.md, tools.json, skills/, subagents/.")],
    prompt: Annotated[str, argument("PROMPT", "Task for the agent.")],
    which: Annotated[str | None, option("Continue this run.", "ID", "--run")] = None,
    model: Annotated[str | None, option("Model [the one of agent.json].", "PROVIDER:MODEL")] = None,
    rules: Annotated[
        Path | None, option("Effects of tools, and refusals: docs/mcp.md.", "FILE")
    ] = None,
    yolo: Annotated[
        bool, flag("--yolo", "No approvals: set the policy of agent/NAME to 'off'.")
    ] = False,
    by: By = OS_USER,
) -> None:
    """Run an agent from its folder, through deepagents.

    Needs hansard[agent]. The first start imports the folder into the agent's memory, the space
    agent/NAME, which counts from then on. To continue after a crash, start it again with --run.
    Calls that wait for approval are named on stderr.
    """
    import_extra("deepagents", "'hansard agent run'", "deepagents", "agent")
    rule_file = rule_files.load(rules) if rules is not None else None

    with connect(**connecting()) as record:
        run = run_folder(
            record, folder, prompt, run=which, model=model, rules=rule_file, by=by, asks=not yolo
        )
    output.show(run, _render_agent(run))


def _render_agent(run: AgentRun) -> Iterator[Part]:
    yield run.text
    had = [counted(len(run.tools), "tool"), counted(len(run.subagents), "subagent")]
    yield Hint(f"run {run.run} of {run.agent}, with {' and '.join(had)}")
    if run.differs:
        some = ", ".join(run.differs[:5])
        yield Hint(
            f"the folder says something else than agent/{run.agent} in "
            f"{counted(len(run.differs), 'file')} ({some}): memory counts; bring it in with "
            f"'hansard memory import FOLDER --space agent/{run.agent}'"
        )
