"""The object store of an archive: a folder, S3, Google Cloud Storage or Azure, through obstore.

Objects are created, never replaced: of several writers of one name exactly one succeeds. A store
that cannot promise that is refused. Credentials are taken from the environment, as by the
providers' own tools (`AWS_ACCESS_KEY_ID`, `GOOGLE_APPLICATION_CREDENTIALS`, ...), and never kept.

obstore's blocking functions are called in threads of our own: its `async` ones end about half of
all short processes with SIGABRT, since their threads call Python while it shuts down.
"""

from __future__ import annotations

import asyncio
import os
import re
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from hansard.bus.errors import ArchiveUnavailable, BadArchive
from hansard.domain.errors import import_extra

REQUEST_S = 10.0
"""Longest time of one request, in seconds: 64 MB at 7 MB/s."""

RETRIES_MAX = 3
RETRY_S = 10.0
"""A request that failed is sent again so many times, for so many seconds."""

CALL_S = 30.0
"""Longest time of a call, with its retries and its wait for a thread, in seconds."""

LIST_MAX = 1_000
"""Most objects of a page of a list."""

THREADS_MAX = 8
"""Most requests at once of one process."""

_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<rest>.*)")
_SCHEMES = ("file", "s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl")
_CREATE_ONLY = "hansard-create-only"

T = TypeVar("T")


def shown(url: str) -> str:
    """Return a URL without a password in it."""
    return re.sub(r"//[^/@]*@", "//", url)


class ObjectStore:
    """The objects below one address."""

    def __init__(self, url: str, what: str = "the archive", extra: str = "archive") -> None:
        """Nothing is requested yet. Raises BadArchive, and ExtraMissing that names the user of the
        store and the extra.
        """
        self._obstore, self._errors, stores = (
            import_extra(f"obstore{part}", what, "obstore", extra)
            for part in ("", ".exceptions", ".store")
        )
        parts = _URL.fullmatch(url)
        if parts is None:
            url = Path(url).absolute().as_uri()
        elif parts["scheme"] not in _SCHEMES or not parts["rest"].strip("/"):
            raise BadArchive(shown(url), "which names no archive")
        self.url = shown(url)
        self.is_folder = url.startswith("file:")
        self._pool = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="hansard-archive")
        self._creates_only = self.is_folder
        self._local = stores.LocalStore
        self._store: Any = None
        try:
            if self.is_folder:
                self._folder = Path(unquote(urlsplit(url).path))
                if self._folder.exists():
                    self._store = self._at()
            else:
                self._store = stores.from_url(
                    url,
                    client_options={
                        "timeout": timedelta(seconds=REQUEST_S),
                        "connect_timeout": timedelta(seconds=REQUEST_S / 2),
                        "allow_http": _allows_http(),
                    },
                    retry_config={
                        "max_retries": RETRIES_MAX,
                        "retry_timeout": timedelta(seconds=RETRY_S),
                    },
                )
        except (self._errors.BaseError, ValueError, OSError) as error:
            raise BadArchive(shown(url), f"which cannot be opened ({_reason(error)})") from error

    async def create(self, name: str, data: bytes) -> bool:
        """Create an object; return False if it exists. Raises ArchiveUnavailable."""
        if not self._creates_only:
            await self._demand_create_only()
        return await self._create(name, data)

    async def get(self, name: str) -> bytes | None:
        """Return an object; None if it does not exist. Raises ArchiveUnavailable."""

        def get() -> bytes:
            return bytes(self._obstore.get(self._at(), name).bytes())

        return await self._call("read", name, get)

    async def ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | None:
        """Return parts of an object, given as offset and size; fewer bytes where it is shorter.
        None if it does not exist. Raises ArchiveUnavailable.
        """
        starts, lengths = [start for start, _ in ranges], [length for _, length in ranges]

        def get() -> list[bytes]:
            if len(ranges) == 1:
                start, length = ranges[0]
                return [
                    bytes(self._obstore.get_range(self._at(), name, start=start, length=length))
                ]
            parts = self._obstore.get_ranges(self._at(), name, starts=starts, lengths=lengths)
            return [bytes(part) for part in parts]

        return await self._call("read", name, get)

    async def size(self, name: str) -> int | None:
        """Return the bytes of an object; None if it does not exist. Raises ArchiveUnavailable."""
        return await self._call("read", name, lambda: self._obstore.head(self._at(), name)["size"])

    async def names(self, prefix: str, *, after: str | None = None) -> dict[str, int]:
        """Return the objects whose names begin with a folder, and follow `after`, by name, with
        their sizes; each page is a call. Raises ArchiveUnavailable.
        """

        def begin() -> Any:
            return self._obstore.list(self._at(), prefix, offset=after, chunk_size=LIST_MAX)

        pages, names = await self._call("list", prefix, begin) or iter(()), dict[str, int]()
        while page := await self._call("list", prefix, lambda: next(pages, None)):
            names |= {item["path"]: item["size"] for item in page}
        return names

    async def delete(self, name: str) -> None:
        """Delete an object. Raises ArchiveUnavailable."""
        await self._call("delete", name, lambda: self._obstore.delete(self._at(), name))

    def _at(self, *, creates: bool = False) -> Any:
        """Return the opened store; only a write creates a folder. Raises FileNotFoundError."""
        if self._store is None:
            if not (creates or self._folder.exists()):
                raise FileNotFoundError(self._folder)
            self._store = self._local(self._folder, mkdir=True)
        return self._store

    async def _create(self, name: str, data: bytes) -> bool:
        def put() -> bool:
            is_new = True
            try:
                self._obstore.put(self._at(creates=True), name, data, mode="create")
            except self._errors.AlreadyExistsError:
                is_new = False
            if self.is_folder:  # also one whose process was killed before it did
                _sync(self._folder / name)
            return is_new

        return bool(await self._call("write", name, put))

    async def _demand_create_only(self) -> None:
        """Raise ArchiveUnavailable if the store replaces objects: some ignore the condition."""
        name = f"{_CREATE_ONLY}-{uuid.uuid4().hex}"
        await self._create(name, b"1")
        replaced = await self._create(name, b"2")
        await self.delete(name)
        if replaced:
            why = "it replaced an object that was to be created only if it did not exist"
            remedy = "use a store that supports the condition If-None-Match (S3 does)"
            raise ArchiveUnavailable(self.url, "write", name, why, remedy)
        self._creates_only = True

    async def _call(self, action: str, name: str, function: Callable[[], T]) -> T | None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CALL_S):
                return await loop.run_in_executor(self._pool, function)
        except FileNotFoundError:
            return None
        except TimeoutError as error:
            why = f"no answer within {CALL_S:.0f} s"
            raise ArchiveUnavailable(self.url, action, name, why) from error
        except (self._errors.BaseError, OSError, ValueError) as error:
            raise ArchiveUnavailable(self.url, action, name, _reason(error)) from error


def _allows_http() -> bool:
    """Return whether an address without TLS is set on purpose, as for a server of one's own."""
    names = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3")
    more = ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT", "GOOGLE_BASE_URL")
    return any(os.environ.get(name, "").startswith("http://") for name in (*names, *more))


def _sync(path: Path) -> None:
    """Put a new file and its folder on the disk: the log's stream may be deleted after that."""
    for each in (path, path.parent):
        fd = os.open(each, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _reason(error: Exception) -> str:
    """Return an error's first line, and the code of an S3 server's answer."""
    text = str(error).strip()
    code = re.search(r"<Code>(\w+)</Code>", text)
    line = text.partition("\n")[0].partition(": <?xml")[0][:300]
    return f"{code[1]}: {line}" if code is not None else line
