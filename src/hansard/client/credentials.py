"""Credentials files: a login that can reach the service and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import stat
from collections.abc import AsyncGenerator, Generator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from hansard.agents.access import principals
from hansard.agents.workspace import Workspace
from hansard.broker import access
from hansard.broker.access import BadCredentials, Credentials
from hansard.broker.lease import join_in_thread
from hansard.broker.logins import BrokerUser, entry
from hansard.bus import subjects
from hansard.bus.clock import OS_USER
from hansard.bus.file_lock import Unwritable, take
from hansard.bus.loggers import logger
from hansard.client.opening import alongside, data_dir_of, reading
from hansard.domain.errors import BadValue, CallerError, HansardError, Refused
from hansard.domain.principal import PrincipalKind, PrincipalState, Token
from hansard.settings import Settings

CHECK_S = 30.0
"""Seconds between two checks for expired tokens, which the service already refuses."""

_log = logger(__name__)
_LOCAL = ("127.0.0.1", "localhost", "::1")
_LOGIN = re.compile(r"(?<=://)[^@/\s]+@")


async def sync_broker(settings: Settings, workspace: Workspace) -> bool:
    """Bring the embedded server's users up to date with the record; return False for an outside
    one.

    The configuration of an outside server is its operator's. The workspace must be open, since it
    holds the server. Raises AccessNotSynced.
    """
    if settings.nats_url is not None:
        return False
    await access.sync_logins(
        data_dir_of(settings), workspace.log.workspace, partial(principals.broker_users, workspace)
    )
    return True


@contextlib.asynccontextmanager
async def syncing_broker(
    settings: Settings, workspace: Workspace, *, check_s: float = CHECK_S
) -> AsyncGenerator[None]:
    """Keep the embedded server's users up to date while the block runs.

    Holders of expired tokens are disconnected, too, although no event marks the expiry. Raises
    AccessNotSynced if the first update fails.
    """
    if not await sync_broker(settings, workspace):
        yield
        return
    async with alongside(_sync_server(settings, workspace, check_s)):
        yield


async def _sync_server(settings: Settings, workspace: Workspace, check_s: float) -> None:
    report = await principals.broker_users(workspace)
    while True:
        await asyncio.sleep(check_s)
        try:
            users = await principals.broker_users(workspace)
            if users != report:
                await sync_broker(settings, workspace)
                report = users
        except HansardError as error:  # the server may be restarting: try again
            _log.warning("cannot update the broker's users", error=str(error))


async def url_of(settings: Settings) -> str:
    """Return the broker's URL without a login; wait for a broker that is being restarted.

    Raises ServerError.
    """
    if settings.nats_url is not None:
        return _LOGIN.sub("", settings.nats_url)
    lease = await join_in_thread(data_dir_of(settings))
    with lease:
        return lease.info.url


PRIVATE_FILE = 0o600


class Draft:
    """The locked hidden file of credentials in the making: no other process makes the same ones."""

    def __init__(self, place: Path, hidden: Path, fd: int) -> None:
        self._place = place
        self._hidden = hidden
        self._fd = fd

    def load(self) -> Credentials | None:
        """Return the credentials that an earlier attempt wrote; None if there are none."""
        try:
            return access.load(self._hidden)
        except BadCredentials:
            return None

    def write(self, credentials: Credentials) -> None:
        """Write the credentials to disk, before they are registered anywhere. Raises Unwritable."""
        try:
            os.ftruncate(self._fd, 0)
            left = access.encode(credentials)
            written = 0
            while written < len(left):
                written += os.pwrite(self._fd, left[written:], written)
            os.fsync(self._fd)
            _sync(self._place.parent)
        except OSError as error:
            raise Unwritable(self._place, error) from error

    def finish(self) -> None:
        """Move the file to its place. Raises Unwritable."""
        try:
            self._hidden.replace(self._place)
            _sync(self._place.parent)
        except OSError as error:
            raise Unwritable(self._place, error) from error

    def drop(self) -> None:
        """Remove the hidden file, of which nothing can be continued."""
        self._hidden.unlink(missing_ok=True)


@contextlib.contextmanager
def drafting(place: Path) -> Generator[Draft]:
    """Lock the hidden file beside a place.

    Raises Unwritable, and Refused if another process has it.
    """
    hidden = place.parent / f".{place.name}.part"
    if place.exists() and not place.is_file():
        raise Unwritable(place, OSError("not a regular file"))
    try:
        fd = _held(hidden)
    except BlockingIOError:
        message = f"another process is making {str(place)!r} now: wait for it, then try again"
        raise Refused(message) from None
    except OSError as error:
        raise Unwritable(place, error) from error
    try:
        yield Draft(place, hidden, fd)
    finally:
        os.close(fd)


def _held(hidden: Path) -> int:
    """Open and lock the hidden file; return a descriptor of the file that has the name now."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        fd = os.open(hidden, flags, PRIVATE_FILE)
        try:
            _take_own(fd, hidden)
            os.fchmod(fd, PRIVATE_FILE)
            if _is(fd, hidden):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # its last holder has moved it to its place


def _take_own(fd: int, hidden: Path) -> None:
    """Lock the hidden file.

    Raises PermissionError for a file that somebody planted there to read what is written, and
    BlockingIOError if another process holds the lock.
    """
    status = os.fstat(fd)
    is_file = stat.S_ISREG(status.st_mode)
    if not is_file or status.st_uid != os.geteuid() or status.st_nlink > 1:
        raise PermissionError(errno.EPERM, f"{str(hidden)!r} was put there by another")
    if not take(fd):
        raise BlockingIOError


def _is(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def _sync(folder: Path) -> None:
    """Flush a folder's entries to disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


NEVER = "never"
_LIFE = re.compile(r"(?P<count>[1-9][0-9]{0,8})(?P<unit>[smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}

NEVER_HANDED_OVER = "its file was never finished"


class CredentialsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Terms of credentials to make.

    `name` None: the role's name; `kind` None: the principal's present kind, or agent; `output`
    None: a file named after the principal in the current folder. `on_behalf_of` are the principals
    that the holder acts for, the nearest first. `http`: the address of `hansard up --http`; None
    for the broker's.
    """

    role: str
    name: str | None = None
    kind: str | None = None
    expires: str = "30d"
    output: Path | None = None
    about: str = ""
    by: str = OS_USER
    on_behalf_of: tuple[str, ...] = ()
    http: str | None = None

    @property
    def principal(self) -> str:
        """The principal's name."""
        return self.name if self.name is not None else self.role

    @property
    def place(self) -> Path:
        """The absolute path of the credentials file."""
        own = Path(f"hansard-{subjects.token(self.principal)}.json")
        return (self.output if self.output is not None else own).resolve()


class CreatedCredentials(msgspec.Struct, tag_field="kind", tag="credentials", kw_only=True):
    """Credentials that exist, their file and their terms.

    `broker_entry` is the text that the operator of an outside broker adds to its configuration.
    """

    file: str
    new: bool
    workspace: str
    principal: str
    role: str
    on_behalf_of: tuple[str, ...]
    token: str
    expires: str | None
    broker_entry: str | None


async def make(settings: Settings, request: CredentialsRequest) -> CreatedCredentials:
    """Make credentials, or complete an attempt that was killed; keep existing valid ones as they
    are.

    Raises Refused, BadName, BadValue, BadCredentials, Unwritable, NotFound, AccessNotSynced.
    """
    life_s = seconds(request.expires)
    _check_http(request.http)
    principals.addressable("principal", request.principal)
    principals.addressable("role", request.role)
    async with reading(settings) as workspace:
        await principals.usable_role(workspace, request.role)
        await principals.usable_chain(workspace, request.principal, request.on_behalf_of)
        with drafting(request.place) as draft:
            is_first = draft.load() is None
            try:
                made, is_new = await _make(settings, workspace, request, life_s, draft)
            except (CallerError, BadCredentials):  # nothing is on record
                if is_first:
                    draft.drop()
                raise
        state = await principals.read(workspace, request.principal)
    return _sync_login(settings, request, made, state.tokens[_token_id(made)], new=is_new)


def _check_http(url: str | None) -> None:
    """Raise BadValue for an address that is none, or would send the token without encryption."""
    if url is None:
        return
    address = urlsplit(url)
    if address.scheme not in ("http", "https") or not address.hostname:
        remedy = "give the address of 'hansard up --http', such as https://record.example.org"
        raise BadValue("--http", f"{url!r:.80}", remedy)
    if address.scheme == "http" and address.hostname not in _LOCAL:
        fact = f"{url!r:.80} would send the token without encryption"
        raise BadValue("--http", fact, "give the address with https://")


def seconds(text: str) -> float | None:
    """Convert a lifetime such as 90s, 45m, 12h, 30d, 8w to seconds; None for `never`.

    Raises BadValue.
    """
    if text == NEVER:
        return None
    match = _LIFE.fullmatch(text)
    if match is None:
        raise BadValue("expires", f"{text!r:.40}", "give 12h, 30d, 8w or such, or 'never'")
    return float(int(match["count"]) * _SECONDS[match["unit"]])


async def _make(
    settings: Settings,
    workspace: Workspace,
    request: CredentialsRequest,
    life_s: float | None,
    draft: Draft,
) -> tuple[Credentials, bool]:
    """Return the credentials and whether they are new.

    They are then in their file, on record, and known to the broker.
    """
    url = request.http or await url_of(settings)
    existing = _existing(workspace, request)
    state = await principals.read(workspace, request.principal)
    if existing is not None and _is_good(workspace, existing, state):
        _check_terms(request, state.tokens[_token_id(existing)])
        await sync_broker(settings, workspace)  # an earlier attempt may have been killed
        if existing.url == url:
            draft.drop()
            return existing, False
        made = msgspec.structs.replace(existing, url=url)
        draft.write(made)
        draft.finish()
        return made, False
    made = await _begun(workspace, request, url, draft) or _new(workspace, request, url)
    draft.write(made)
    kind = PrincipalKind(request.kind) if request.kind else state.kind or PrincipalKind.AGENT
    await principals.register(
        workspace, request.principal, kind, about=request.about or state.about, by=request.by
    )
    await principals.issue(
        workspace,
        request.principal,
        request.role,
        expires_s=life_s,
        nkey=access.public_key(made.nkey_seed),
        on_behalf_of=request.on_behalf_of,
        by=request.by,
        token=principals.NewToken(_token_id(made), made.token),
    )
    await sync_broker(settings, workspace)
    draft.finish()
    return made, True


def _existing(workspace: Workspace, request: CredentialsRequest) -> Credentials | None:
    """Return the credentials that the file holds now; None if there is no file.

    Raises BadCredentials, and Refused if they belong to another role, principal or workspace.
    """
    if not request.place.exists():
        return None
    existing = access.load(request.place)
    if not _is_for(workspace, existing, request):
        message = (
            f"{str(request.place)!r} holds credentials of principal {existing.principal!r}, role "
            f"{existing.role!r}, workspace {existing.workspace!r}: give another --output"
        )
        raise Refused(message)
    return existing


def _is_for(workspace: Workspace, credentials: Credentials, request: CredentialsRequest) -> bool:
    whose = (credentials.workspace, credentials.role, credentials.principal)
    return whose == (workspace.log.workspace, request.role, request.principal)


def _check_terms(request: CredentialsRequest, token: Token) -> None:
    """Raise Refused if valid credentials in the file act for other principals than requested.

    The terms of credentials never change, and are never kept silently.
    """
    current = token.issued.on_behalf_of
    if current != request.on_behalf_of:
        message = (
            f"{str(request.place)!r} holds valid credentials that act {acting_for(current)}, and "
            f"those requested act {acting_for(request.on_behalf_of)}: give another --output, or "
            f"revoke these first ('hansard principals revoke {token.issued.token}')"
        )
        raise Refused(message)


def acting_for(on_behalf_of: tuple[str, ...]) -> str:
    """Describe in words for whom a principal acts."""
    if not on_behalf_of:
        return "on behalf of nobody else"
    return f"on behalf of {' for '.join(repr(name) for name in on_behalf_of)}"


def _token_id(made: Credentials) -> str:
    parsed = principals.parse(made.token)
    return parsed[0] if parsed is not None else ""


def _is_good(workspace: Workspace, credentials: Credentials, state: PrincipalState) -> bool:
    """Return whether credentials are on record and valid."""
    token = state.tokens.get(_token_id(credentials))
    return (
        token is not None
        and token.is_valid(workspace.clock.now())
        and token.issued.role == credentials.role
        and principals.NewToken(token.issued.token, credentials.token).digest == token.issued.digest
    )


async def _begun(
    workspace: Workspace, request: CredentialsRequest, url: str, draft: Draft
) -> Credentials | None:
    """Return the credentials of a killed attempt; revoke those that do not fit the request."""
    earlier = draft.load()
    if earlier is None or earlier.workspace != workspace.log.workspace:
        return None
    state = await principals.read(workspace, earlier.principal)
    token = state.tokens.get(_token_id(earlier))
    is_issued = token is not None
    is_same = token is None or token.issued.on_behalf_of == request.on_behalf_of
    if (
        _is_for(workspace, earlier, request)
        and is_same
        and (not is_issued or _is_good(workspace, earlier, state))
    ):
        return msgspec.structs.replace(earlier, url=url)
    if is_issued:
        await principals.revoke(
            workspace,
            earlier.principal,
            _token_id(earlier),
            reason=NEVER_HANDED_OVER,
            by=request.by,
        )
    return None


def _new(workspace: Workspace, request: CredentialsRequest, url: str) -> Credentials:
    token = principals.new_token()
    return Credentials(
        url=url,
        workspace=workspace.log.workspace,
        role=request.role,
        principal=request.principal,
        token=token.token,
        nkey_seed=access.new_seed(),
        inbox=subjects.restricted_inbox(token.id),
    )


def _sync_login(
    settings: Settings, request: CredentialsRequest, made: Credentials, token: Token, *, new: bool
) -> CreatedCredentials:
    user = BrokerUser(token.issued.nkey, made.workspace, made.role, made.principal, made.inbox)
    return CreatedCredentials(
        file=str(request.place),
        new=new,
        workspace=made.workspace,
        principal=made.principal,
        role=made.role,
        on_behalf_of=token.issued.on_behalf_of,
        token=token.issued.token,
        expires=token.issued.expires,
        broker_entry=entry(user) if settings.nats_url is not None else None,
    )
