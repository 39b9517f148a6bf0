"""Commands `hansard up` and `demo`: run the broker, serve restricted agents, show commits."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ssl
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec

from hansard import settings as configuration
from hansard.broker import private_copy
from hansard.bus.jetstream import JetStreamLog
from hansard.bus.jetstream.log import RawWorkspace
from hansard.bus.log import RawMessage
from hansard.bus.redacted_log import ForwardingLog
from hansard.cli import output
from hansard.cli.common import AllowHost, Commands, GlobalOptions, flag, option
from hansard.cli.opening import settings
from hansard.cli.output import Hint
from hansard.cli.processes import BackgroundPrinter, log_stream, termination_event, until
from hansard.cli.status import MEANING
from hansard.client.opening import Broker, beginning, broker_of, data_dir_of, raw_of
from hansard.demo import main
from hansard.domain import ids
from hansard.domain.choices import counted
from hansard.domain.errors import BadValue, HansardError, import_extra
from hansard.inspect.answer import masked
from hansard.inspect.status import BrokerStatus, CorruptLine, LogEntry, logged
from hansard.service.rolling import rolling
from hansard.service.running import (
    Watcher,
    broker_status,
    projecting,
    reflecting,
    served,
    workspaces,
)
from hansard.settings import Settings

app = Commands()

NONE_YET = (
    "no workspace is there yet: the first program that connects makes one (hansard.connect(NAME), "
    "HANSARD_WORKSPACE), or 'hansard up --workspace NAME'; it is served as soon as it is there"
)


Http = Annotated[
    str | None, option("Serve the page, the API, traces and hooks; 0: a free port.", "[HOST:]PORT")
]
TokenFile = Annotated[
    Path | None, option("With --http: file with the operator's token; created if missing.", "FILE")
]
TlsCert = Annotated[Path | None, option("With --http: certificate chain, to speak HTTPS.", "FILE")]
TlsKey = Annotated[Path | None, option("Private key of --tls-cert.", "FILE")]
BehindProxy = Annotated[
    Path | None,
    option(
        "With --http behind a proxy that speaks HTTPS: file with the key by which it signs the "
        "user's name (docs/login.md); created if missing.",
        "FILE",
    ),
]


@app.command(service=log_stream)
async def up(
    after: Annotated[
        int | None, option("Show the log from here [only new commits].", "POSITION", min=0)
    ] = None,
    all_: Annotated[
        bool,
        flag("--all", "Serve all workspaces, also if the settings name one. The default without."),
    ] = False,
    http: Http = None,
    token_file: TokenFile = None,
    allow_host: AllowHost = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    behind_proxy: BehindProxy = None,
) -> None:
    """Run the broker, fill the tables and serve restricted agents.

    Serves all workspaces, also those created meanwhile; with --workspace (repeatable) only those,
    which are created if missing. Each log is watched for damage: see 'hansard health'.

    With --http it also serves the page and the API to logged-in callers ('hansard login'), and
    accepts OpenTelemetry traces and hooks (docs/otel.md). Addresses beyond this machine require
    --tls-cert and --tls-key, or --behind-proxy.
    """
    config = settings()
    private_copy.refuse(data_dir_of(config))
    only = _only(config, all_=all_)
    mine = only[0] if only is not None and len(only) == 1 else None
    if mine is None and after is not None:
        raise BadValue("--after", "a position is one of a workspace", "name it with --workspace")
    with termination_event() as stop, contextlib.ExitStack() as ends:
        async with broker_of(config) as broker:
            shows = _Shows(stop)
            ends.callback(shows.end)
            made = mine is not None and await _ensure_streams(config)
            watcher = Watcher(broker, data_dir_of(config), partial(shows.trouble, kind="damage"))
            tables = projecting(config, mine, broker, shows.trouble, stop, watcher)
            tls = _tls(tls_cert, tls_key)
            door = _http(config, broker, only, http, token_file, allow_host, tls, behind_proxy)
            async with watcher.keep(), door as shows.http:
                if mine is None:
                    doing = _serve_all(config, broker, only, tables, shows)
                else:
                    one = _One(config, broker, mine, shows)
                    begin = partial(_report_start, config, broker, shows, made=made)
                    doing = _serve_one(one, after, begin, tables)
                await until(stop, doing)
    output.show([], [Hint("stopped")])


def _only(config: Settings, *, all_: bool) -> tuple[str, ...] | None:
    """Return the workspaces to serve; None for all. Raises BadValue, BadName."""
    names = GlobalOptions.workspaces
    if all_ and names:
        raise BadValue("--all", "--workspace names some", "give one of the two")
    if all_ or not configuration.names_workspace(**GlobalOptions.values):
        return None
    return tuple(map(ids.workspace_name, names or (config.workspace,)))


@contextlib.asynccontextmanager
async def _http(
    config: Settings,
    broker: Broker,
    only: tuple[str, ...] | None,
    http: str | None,
    token_file: Path | None,
    allow_host: list[str] | None,
    tls: tuple[Path, Path] | None,
    behind_proxy: Path | None,
) -> AsyncGenerator[str | None]:
    """Listen for HTTP while the block runs; yield the URL, None without --http.

    Raises BadValue, ExtraMissing.
    """
    if http is None:
        if allow_host or any(each is not None for each in (token_file, tls, behind_proxy)):
            options = "--token-file, --allow-host, --tls-cert, --tls-key, --behind-proxy"
            raise BadValue(options, "there is no --http", "give it, or leave these out")
        yield None
        return
    for package in ("starlette", "uvicorn"):
        import_extra(package, "'hansard up --http'", package, "http")
    from hansard.cli.mcp import token_of
    from hansard.client.listening import Address
    from hansard.service.http.app import listening

    address = Address.of(http, allow_host or ())
    token = None if token_file is None else token_of(token_file)
    key = None if behind_proxy is None else token_of(behind_proxy, "--behind-proxy").encode()
    safe: dict[str, Any] = {"token": token, "tls": tls, "proxy_key": key}
    async with listening(config, broker, address, only=only, **safe) as url:
        yield url


def _tls(certificate: Path | None, key: Path | None) -> tuple[Path, Path] | None:
    """Return the files for HTTPS, if given. Raises BadValue for unusable ones."""
    if certificate is None or key is None:
        if certificate is not None or key is not None:
            remedy = "give both, or neither"
            raise BadValue("--tls-cert, --tls-key", "one of them is missing", remedy)
        return None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except OSError as error:  # of a file, or of what it holds
        fact = f"{certificate} with {key} cannot be used: {error.strerror or error}"
        raise BadValue("--tls-cert", fact, "give a certificate and its key in PEM") from error
    return certificate, key


class _Shows:
    """Output of this command, printed in a separate thread.

    A reader that stops reading blocks only the commits that are shown.
    """

    http: str | None = None
    """URL of the HTTP listener, if there is one."""

    def __init__(self, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        self._printer = BackgroundPrinter(self._missed, lambda: _unless_closed(loop, stop.set))

    def later(self, line: dict[str, Any], *hints: str) -> None:
        """Queue a line for programs, or hints for people, to be printed without waiting."""
        self._printer.print_later(lambda: self._show(line, hints))

    def trouble(self, text: str, kind: str = "projector") -> None:
        """Print damage, or why a workspace is not projected or served; the rest continues."""
        self.later({"kind": kind, "fact": text}, text)

    async def commit(self, workspace: str, message: RawMessage, prefix: str) -> None:
        """Print one line for a commit; an undecodable body is shown as corrupt.

        Waits for the reader, so that commits not yet read stay in the log.
        """

        def show() -> None:
            entry = logged(workspace, message)
            self._show(entry, [_line(entry, prefix)])

        await self._printer.print(show)

    def end(self) -> None:
        """Wait for queued lines, for a limited time. Raises BrokenPipeError."""
        self._printer.end()

    def _missed(self, many: int) -> None:
        fact = f"{counted(many, 'line')} were dropped here: the reader was blocked"
        self._show({"kind": "output", "fact": fact}, [fact])

    def _show(self, line: object, hints: Iterable[str]) -> None:
        output.show(line, map(Hint, hints))
        sys.stdout.flush()


def _unless_closed(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # then the command is at its end
        loop.call_soon_threadsafe(call)


async def _ensure_streams(settings: Settings) -> bool:
    """Create or check the workspace's streams; return whether they were created."""
    async with beginning(settings) as workspace:
        log = workspace.log.base if isinstance(workspace.log, ForwardingLog) else workspace.log
        return isinstance(log, JetStreamLog) and log.made


async def _serve_one(
    one: _One,
    after: int | None,
    begin: Callable[..., None],
    tables: AbstractAsyncContextManager[None],
) -> None:
    """Serve and show the workspace of --workspace, and keep its tables meanwhile."""
    serving = asyncio.ensure_future(one.serve(after))
    try:
        await _wait_served(serving, one.begun)
        if serving.done():
            serving.result()
        begin([one.begun.result()])
        one.show("")
        async with tables:
            with _freeze_loaded():
                await serving
    finally:
        serving.cancel()
        await asyncio.wait({serving})


async def _serve_all(
    config: Settings,
    broker: Broker,
    only: tuple[str, ...] | None,
    tables: AbstractAsyncContextManager[None],
    shows: _Shows,
) -> None:
    """Serve and show each existing or new workspace, or only some, and keep their tables."""
    for name in only or ():
        try:
            await _ensure_streams(msgspec.structs.replace(config, workspace=name))
        except HansardError as error:
            shows.trouble(f"workspace {name!r} is not served: {error}")
    known, first = set[str](), True
    async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        looked = workspaces(config, None, broker, shows.trouble)
        async with contextlib.aclosing(looked):
            async for existing in looked:
                names = existing if only is None else existing & {*only}
                ones = [_One(config, broker, name, shows) for name in sorted(names - known)]
                tasks = [group.create_task(one.serve_beside()) for one in ones]
                for one, task in zip(ones, tasks, strict=True):
                    await _wait_served(task, one.begun)
                begun = [one.begun.result() for one in ones if one.begun.done()]
                if first:
                    _report_start(config, broker, shows, begun, made=None)
                    await stack.enter_async_context(tables)
                    stack.enter_context(_freeze_loaded())
                else:
                    for line, _ in begun:
                        shows.later({"kind": "workspace", **line}, _about(line))
                for one in ones:
                    one.show(f"{one.name}  ")
                known, first = known | names, False


@contextlib.contextmanager
def _freeze_loaded() -> Generator[None]:
    """Exempt all objects loaded so far from garbage collection.

    A full collection among the 124,000 objects that a service has loaded stops the loop, and each
    request that waits for it, for 100 ms on an idle machine and 270 to 420 ms on a busy one (two
    cores). Without them it takes less than 0.01 ms.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


async def _wait_served(task: asyncio.Future[None], begun: asyncio.Future[_Served]) -> None:
    """Wait until a workspace is served or has failed."""
    waited: set[asyncio.Future[Any]] = {task, begun}
    await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)


_Served = tuple[dict[str, Any], str]
"""Line for programs about a served workspace, with its head position, and its server's version."""

OPTION_OF = {"nats_url": "nats", "nats_replicas": "replicas"}
"""Names of global options that differ from the name of their setting."""


class _One:
    """Workspace that is served and shown."""

    def __init__(self, config: Settings, broker: Broker, name: str, shows: _Shows) -> None:
        self.name = name
        self.shows = shows
        self.begun: asyncio.Future[_Served] = asyncio.get_running_loop().create_future()
        """Set when the workspace is served."""
        self._settings = msgspec.structs.replace(config, workspace=name)
        self._broker = broker
        self._shown = asyncio.Event()
        self._prefix = ""

    def show(self, prefix: str) -> None:
        """Show its commits from now on, each after a prefix."""
        self._prefix = prefix
        self._shown.set()

    async def serve_beside(self) -> None:
        """Serve as `serve` does; an error is printed and does not stop the other workspaces."""
        try:
            await self.serve(None)
        except HansardError as error:
            self.shows.trouble(f"workspace {self.name!r} is not served: {error}")

    async def serve(self, after: int | None) -> None:
        """Answer restricted agents and show each commit, forever."""
        async with raw_of(self._broker.runtime, self.name) as raw:
            head = (await raw.extent()).last
            unserved = partial(self.shows.trouble, kind="service")
            reflects = reflecting(self._settings, self._command, self._print_reflection)
            rolls = rolling(self._settings, self._broker, self._print_roll)
            async with served(self._settings, self._broker, unserved) as serves, reflects, rolls:
                line = {"workspace": self.name, "position": head, "service": serves}
                self.begun.set_result((line, raw.server_version))
                await self._shown.wait()
                await self._follow(raw, head if after is None else after)

    @property
    def _command(self) -> list[str]:
        """Command line that runs `hansard` with the same options for this workspace."""
        options = {**GlobalOptions.values, "workspace": self.name}
        return [
            *(sys.executable, "-m", "hansard"),
            *(
                f"--{OPTION_OF.get(name, name).replace('_', '-')}={value}"
                for name, value in options.items()
                if value is not None
            ),
        ]

    def _print_reflection(self, text: str) -> None:
        self.shows.trouble(f"workspace {self.name!r}: {text}", kind="memory")

    def _print_roll(self, text: str) -> None:
        self.shows.trouble(f"workspace {self.name!r}: {text}", kind="tiers")

    async def _follow(self, raw: RawWorkspace, after: int) -> None:
        """Print one line per commit."""
        async with contextlib.aclosing(raw.follow(after)) as messages:
            async for message in messages:
                await self.shows.commit(self.name, message, self._prefix)


def _report_start(
    config: Settings, broker: Broker, shows: _Shows, begun: Sequence[_Served], *, made: bool | None
) -> None:
    """Show the workspaces at the start.

    made: whether the workspace of --workspace was created by this command; None without it.
    """
    status = broker_status(config, broker)
    status.version = status.version or next((version for _, version in begun), None)
    lines = [line for line, _ in begun]
    about = [*_of_broker(status), "stop it with Ctrl-C"]
    http = {"http": shows.http} if shows.http is not None else {}
    if http:
        about.insert(-1, f"http        {shows.http} (log in: hansard login; traces: /v1/traces)")
    if made is None:
        start = {"kind": "up", "workspace": None, "workspaces": lines, "broker": status} | http
        shows.later(start, masked("\n".join(about)), *map(_about, lines))
        if not begun:
            shows.later({"kind": "workspace", "workspace": None, "fact": NONE_YET}, NONE_YET)
        return
    [line] = lines
    place = {"workspace": line["workspace"], "position": line["position"]}
    about.insert(0, _about(place) + ", made just now" * made)
    if line["service"]:
        about.insert(-1, "service     answers restricted agents (hansard credentials ROLE)")
    start = {"kind": "up"} | place | {"made": made, "broker": status, "service": line["service"]}
    start |= http
    shows.later(start, masked("\n".join(about)))


def _about(line: dict[str, Any]) -> str:
    answers = ", answers restricted agents" if line.get("service") else ""
    return f"workspace   {line['workspace']}, at position {line['position']}{answers}"


def _of_broker(status: BrokerStatus) -> list[str]:
    """Render a broker as lines."""
    of = f"embedded, pid {status.pid}" if status.embedded else "outside"
    version = f", nats-server {status.version}" if status.version else ""
    lines = [
        f"broker      {status.url} ({of}{version})",
        f"durability  {status.durability}: {MEANING.get(status.durability, '')}",
    ]
    if status.embedded:
        lines.append(f"data        {status.data_dir}")
    return lines


def _line(report: LogEntry, prefix: str) -> str:
    at, line = f"{prefix}{report.position:>8}  {report.time:%H:%M:%S.%fZ}", report.line
    if isinstance(line, CorruptLine):
        return f"{at}  corrupt: {report.error}"
    where = f"run {line.run} " if line.run is not None else ""
    events = ", ".join(line.events)
    return f"{at}  {where}{line.stream}@{line.version}  {events}".replace("\n", " ")


@app.command()
def demo(seed: Annotated[int | None, option("Seed of the kill times.")] = None) -> int:
    """Watch three agents work, be killed, and resume.

    Takes about a minute, offline, on real input: the standard library's source.
    """
    return main(GlobalOptions.json, GlobalOptions.values.get("data_dir"), seed)
