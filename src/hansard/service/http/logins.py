"""Links that log in once, sessions of browsers, the operator's tokens: one private file each.

A file is named by the SHA-256 of its secret, which is not stored: a reader of the folder cannot log
in. The files are in the data directory, so that sessions survive a restart of the service, and a
command ends them without a request. Creating a link needs write access to that directory, which is
the access that an operator has.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import msgspec

from hansard.bus.file_lock import PRIVATE_DIR, replace_private
from hansard.domain.errors import HansardError

LINK_S = 60.0
"""Seconds within which a link must be used."""

SESSION_S, IDLE_S = 7 * 86_400.0, 12 * 3_600.0
"""Longest session of a browser, and longest time between two of its requests, in seconds."""

TOKEN_S = 30 * 86_400.0
"""Validity of a token of the operator, in seconds."""

LINKS_MAX, SESSIONS_MAX, SESSIONS_OF_ONE_MAX, TOKENS_MAX = 100, 1_000, 50, 50
"""Unused links, sessions in all, and of one principal or of the operator, and tokens of the
operator; one more ends the oldest.
"""

TOUCH_S = 60.0
"""Seconds between two notes of a session's use."""

SECRET_BYTES = 32
FILE_BYTES_MAX = 4_096


class Grant(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Identity that a link or a session gives: the operator, or the holder of a principal's token.

    `token` is the public id of the token, and `workspace` its workspace; both are empty for the
    operator. Times are seconds since 1970.
    """

    principal: str = ""
    token: str = ""
    workspace: str = ""
    ends_s: float = 0.0

    @property
    def owner(self) -> tuple[str, str]:
        """Workspace and principal; empty for the operator."""
        return self.workspace, self.principal


class Link(msgspec.Struct, frozen=True):
    """A link that logs a browser in once."""

    url: str
    seconds: float

    @classmethod
    def of(cls, base: str, code: str, path: str = "") -> Link:
        """Return the link with a code, which leads to a path of the page."""
        more = f"&next={quote(path, safe='/')}" if path else ""
        return cls(f"{base.rstrip('/')}/login?code={code}{more}", LINK_S)


class Logins:
    """The links and sessions of a data directory."""

    def __init__(self, data_dir: Path) -> None:
        self._links = data_dir / "http" / "links"
        self._sessions = data_dir / "http" / "sessions"
        self._tokens = data_dir / "http" / "tokens"

    def link(self, grant: Grant) -> str:
        """Create a link; return its code, which `redeem` accepts once within LINK_S."""
        self._limit(self._links, LINKS_MAX - 1, LINK_S)
        return _write(self._links, msgspec.structs.replace(grant, ends_s=time.time() + LINK_S))

    def redeem(self, code: str) -> Grant | None:
        """Use a link up; return its grant, None if it is unknown, used or expired."""
        path = self._links / _name(code)
        grant = _read(path)
        try:
            path.unlink()  # of several requests with one code only one gets past this line
        except OSError:
            return None
        return grant

    def begin(self, grant: Grant) -> str:
        """Begin a session; return its secret."""
        mine = [path for path, each in self._all(self._sessions) if each.owner == grant.owner]
        for path in _oldest(mine, SESSIONS_OF_ONE_MAX - 1):
            path.unlink(missing_ok=True)
        self._limit(self._sessions, SESSIONS_MAX - 1, IDLE_S)
        ends_s = time.time() + SESSION_S
        return _write(self._sessions, msgspec.structs.replace(grant, ends_s=ends_s))

    def session(self, secret: str, *, used: bool = True) -> Grant | None:
        """Return the grant of a session; None if it is unknown, ended, expired or idle too long.

        `used`: the session counts as used now.
        """
        path = self._sessions / _name(secret)
        grant = _read(path)
        try:
            idle_s = time.time() - path.stat().st_mtime
            if grant is None or idle_s > IDLE_S:
                path.unlink()
                return None
            if used and idle_s > TOUCH_S:
                os.utime(path)
        except OSError:
            return None
        return grant

    def token(self) -> str:
        """Create a token of the operator, for programs; `is_token` accepts it within TOKEN_S."""
        self._limit(self._tokens, TOKENS_MAX - 1, TOKEN_S)
        return _write(self._tokens, Grant(ends_s=time.time() + TOKEN_S))

    def is_token(self, secret: str) -> bool:
        """Return whether a text is a valid token of the operator."""
        return _read(self._tokens / _name(secret)) is not None

    def end(self, secret: str) -> None:
        """End a session."""
        (self._sessions / _name(secret)).unlink(missing_ok=True)

    def end_all(self) -> int:
        """End all sessions, links and tokens; return the number of sessions."""
        ended = 0
        for folder in (self._links, self._tokens, self._sessions):
            ended = 0
            for path, _ in self._all(folder):
                path.unlink(missing_ok=True)
                ended += 1
        return ended

    def _all(self, folder: Path) -> Iterator[tuple[Path, Grant]]:
        """Yield the files of a folder with their grants; remove those that have expired."""
        for path in list(folder.glob("[0-9a-f]*")):
            grant = _read(path)
            if grant is not None:
                yield path, grant
            else:
                path.unlink(missing_ok=True)

    def _limit(self, folder: Path, most: int, quiet_s: float) -> None:
        """Remove files that were not used for `quiet_s`, and the oldest beyond `most`."""
        paths = [path for path, _ in self._all(folder)]
        late_s = time.time() - quiet_s
        old = [path for path in paths if _used_s(path) < late_s]
        for path in {*old, *_oldest(paths, most)}:
            path.unlink(missing_ok=True)


def _name(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()


def _write(folder: Path, grant: Grant) -> str:
    """Store a grant; return its new secret. Raises HansardError if that is impossible."""
    secret = secrets.token_urlsafe(SECRET_BYTES)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIR)
        replace_private(folder / _name(secret), msgspec.json.encode(grant))
    except OSError as error:
        fact = f"{str(folder)!r} cannot be written ({error.strerror or error})"
        raise HansardError(f"{fact}: check its owner and the space on its disk") from error
    return secret


def _read(path: Path) -> Grant | None:
    """Return an unexpired grant; None for a file that is missing, expired or damaged."""
    try:
        with path.open("rb") as file:
            grant = msgspec.json.decode(file.read(FILE_BYTES_MAX), type=Grant)
    except (OSError, msgspec.DecodeError):
        return None
    return grant if time.time() < grant.ends_s else None


def _used_s(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _oldest(paths: list[Path], most: int) -> list[Path]:
    """Return the paths beyond `most`, those used longest ago."""
    return sorted(paths, key=_used_s)[: max(0, len(paths) - most)]


# Where the service listens, for commands on the same machine.


class Listener(msgspec.Struct, frozen=True):
    """A listening service: its URL and its process."""

    url: str
    pid: int


_ALL = re.compile(r"//(?:0\.0\.0\.0|\[::\]):")


@contextlib.contextmanager
def published(data_dir: Path, url: str) -> Iterator[None]:
    """Name the service's URL in the data directory while the block runs.

    A service on all addresses is reached at `localhost` on this machine.
    """
    url = _ALL.sub("//localhost:", url)
    folder = data_dir / "http"
    folder.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIR)
    path = folder / f"listener-{os.getpid()}-{urlsplit(url).port}.json"
    replace_private(path, msgspec.json.encode(Listener(url, os.getpid())))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def listeners(data_dir: Path) -> list[Listener]:
    """Return the services that run on a data directory, the newest first."""
    paths = sorted((data_dir / "http").glob("listener-*.json"), key=_used_s, reverse=True)
    running: list[Listener] = []
    for path in paths:
        with contextlib.suppress(OSError, msgspec.DecodeError):
            each = msgspec.json.decode(path.read_bytes(), type=Listener)
            os.kill(each.pid, 0)  # raises ProcessLookupError, an OSError, if it has ended
            running.append(each)
    return running
