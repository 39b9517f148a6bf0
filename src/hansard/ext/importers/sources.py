"""Formats of recorded runs: how each is recognised, and its reader or a conversion hint.

`formats.toml` is the one table. A file is read one run at a time; a record that is not a run yields
a reason instead.

Long because it has the readers of all formats.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from hansard.agents.exchange.files import (
    BLANKS,
    BOM,
    HEAD_BYTES,
    RECORD_BYTES_MAX,
    DoubledKey,
    NotADocument,
    Span,
    Watcher,
    decode,
    lines,
    opened,
    outline,
    part,
    seekable,
    too_long,
    why_not_json,
)
from hansard.domain.errors import CallerError, ExtraMissing, import_extra
from hansard.ext.importers import devtools, formats
from hansard.ext.importers.chat import CHAT_JSONL, ChatRun, ImportDefaults, from_chat, unknown_field

EVENTS = "events"

SEE = "docs/chat-jsonl.md has the fields"

UNKNOWN = (
    "its format is not recognised: name it, as in 'hansard import claude-code FILE', or write its "
    f"runs as chat-jsonl; {SEE}"
)

EMPTY = "the file is empty: give one that holds recorded runs"

Found = tuple[int, ChatRun | formats.Claims | str]
"""A record's number, from 1, and its run or claims, or the reason that it is neither."""

Reader = Callable[[Path | None, ImportDefaults, Watcher], Iterator[Found]]
"""Yields the records of a file, of standard input for None."""

_Header = TypeVar("_Header", bound=msgspec.Struct)

_UNREADABLE = (msgspec.DecodeError, DoubledKey, RecursionError, UnicodeDecodeError)


def records(
    format_: str, path: Path | None, defaults: ImportDefaults, watcher: Watcher
) -> Iterator[Found]:
    """Yield a file's records (standard input's for None). Raises OSError."""
    try:
        yield from READERS[format_](path, defaults, watcher)
    except NotADocument as error:
        yield 1, str(error)


# ---------------------------------------------------------------- readers


def _chat_jsonl(path: Path | None, defaults: ImportDefaults, watcher: Watcher) -> Iterator[Found]:
    with opened(path) as file:
        head = file.peek()  # type: ignore[attr-defined]  # every binary file here is buffered
        is_first = True
        for line in lines(file):
            watcher.read(line.size)
            if line.data is None:
                yield line.number, too_long("the line", line.size)
                is_first = False
            elif line.data:
                record = _run(line.data, lambda raw: from_chat(raw, defaults), SEE)
                if is_first and isinstance(record, str):
                    hint = hint_of(head, CHAT_JSONL) or _not_lines(head, line.data)
                    if hint:
                        yield line.number, record + hint
                        return
                yield line.number, record
                is_first = False
        if is_first:
            yield 1, "the file has no records"


def _tau_bench(path: Path | None, defaults: ImportDefaults, watcher: Watcher) -> Iterator[Found]:
    with seekable(path) as file:
        document = _Document(file, formats.TAU_BENCH, watcher)
        if document.members:
            yield 1, f"it is not a {formats.TAU_BENCH} file: it is not a list{document.hint}"
            return
        yield from document.runs(lambda raw: formats.from_tau(raw, defaults))


def _tau2_bench(path: Path | None, defaults: ImportDefaults, watcher: Watcher) -> Iterator[Found]:
    with seekable(path) as file:
        document = _Document(file, formats.TAU2_BENCH, watcher, "simulations")
        whole = document.header(formats.Tau2File)
        if whole.results is not None:
            yield 1, _claims(whole.results, defaults)
        elif document.elements is None or not document.members:
            fact = "it has neither simulations nor results"
            hint = document.hint or _no_list(document)
            yield 1, f"it is not a {formats.TAU2_BENCH} file: {fact}{hint}"
            return
        if document.elements is not None:
            labels = formats.labels_of_file(whole.info)
            yield from document.runs(lambda raw: formats.from_tau2(raw, defaults, labels))


def _claims(results: dict[str, Any], defaults: ImportDefaults) -> formats.Claims | str:
    """Return a submission's claims, or the reason that they cannot be imported."""
    if not defaults.experiment:
        return "its results are claims about an arm of an experiment: give --experiment and --arm"
    try:
        return formats.claims_of(results)
    except CallerError as error:
        return str(error)


def _whole(
    format_: str, limit: int, convert: Callable[[Any, ImportDefaults], ChatRun], remedy: str
) -> Reader:
    """Return the reader of a format whose files are one run each."""

    def read(path: Path | None, defaults: ImportDefaults, watcher: Watcher) -> Iterator[Found]:
        with opened(path) as file:
            data = file.read(limit + 1)
        watcher.read(len(data))
        content = data.removeprefix(BOM)
        if not content.strip(BLANKS):
            yield 1, EMPTY
        elif len(data) > limit:
            yield 1, f"the file has more than {limit:,} bytes, which is the limit for one run"
        else:
            record = _run(content, lambda raw: convert(raw, defaults), remedy)
            yield 1, record + hint_of(data, format_) if isinstance(record, str) else record

    return read


_devtools = _whole(
    devtools.DEVTOOLS,
    devtools.FILE_BYTES_MAX,
    devtools.from_devtools,
    "it is not a recording of Chrome DevTools' Recorder: export it as JSON",
)
_atif = _whole(
    formats.ATIF,
    RECORD_BYTES_MAX,
    formats.from_atif,
    "it is not a trajectory of ATIF-v1: docs/chat-jsonl.md lists what is read",
)


def _claude_code(path: Path | None, defaults: ImportDefaults, watcher: Watcher) -> Iterator[Found]:
    session = formats.Session()
    size = 0
    with opened(path) as file:
        head = file.peek()  # type: ignore[attr-defined]  # every binary file here is buffered
        for line in lines(file):
            watcher.read(line.size)
            size += line.size
            if line.data is None or size > RECORD_BYTES_MAX:
                yield line.number, too_long("the session up to here", size)
                return
            if line.data:
                wrong = _add_line(session, line.data)
                if wrong is not None:
                    whole = "; a session is imported whole or not at all: take the line out"
                    yield line.number, wrong + (hint_of(head, formats.CLAUDE_CODE) or whole)
                    return
    if session.is_empty:
        fact = "the file has no messages of a user or an assistant"
        yield 1, fact + hint_of(head, formats.CLAUDE_CODE)
        return
    try:
        yield 1, session.run(defaults)
    except CallerError as error:
        yield 1, str(error)


def _add_line(session: formats.Session, data: bytes) -> str | None:
    """Add a line to a session; return the reason if it does not belong to one."""
    try:
        session.take(decode(data))
    except msgspec.ValidationError as error:
        return str(error)
    except _UNREADABLE as error:
        return why_not_json(data, error)
    return None


def _inspect(path: Path | None, defaults: ImportDefaults, watcher: Watcher) -> Iterator[Found]:
    with seekable(path) as file:
        if file.read(len(ZIP)) == ZIP:
            yield from _inspect_archive(file, defaults, watcher)
            return
        document = _Document(file, formats.INSPECT, watcher, "samples", constants=True)
        log = document.header(formats.Log)
        yield from document.runs(lambda raw: formats.from_sample(raw, defaults, log))


def _inspect_archive(file: BinaryIO, defaults: ImportDefaults, watcher: Watcher) -> Iterator[Found]:
    archive = Archive(file)
    log, samples = archive.log(), archive.samples()
    watcher.read(file.seek(0, os.SEEK_END) - sum(length for _, length in samples))
    for number, (name, length) in enumerate(samples, 1):
        watcher.read(length)
        try:
            data = archive.read(name)
        except NotADocument as error:
            yield number, f"entry {name!r:.200}: {error}"
            continue
        record = _run(
            data,
            lambda raw: formats.from_sample(raw, defaults, log),
            "it is not a sample of an Inspect log",
            constants=True,
        )
        yield number, record if isinstance(record, ChatRun) else f"entry {name!r:.200}: {record}"
    if not samples:
        yield 1, "the log has no samples"


ZSTANDARD = 93
"""Zstandard's method number in a ZIP archive; `zipfile` supports it from Python 3.14 on."""

ENTRIES_MAX = 1_000_000
"""Largest number of entries in an archive; their names are all in memory."""


class Archive:
    """A log that is a ZIP archive; one entry is in memory at a time.

    Raises NotADocument if it cannot be read.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._broken: tuple[type[Exception], ...] = (
            *(zipfile.BadZipFile, zlib.error, EOFError, OSError),
            *(NotImplementedError, RuntimeError, ValueError),  # raised for an encrypted entry
        )
        try:
            self._zip: zipfile.ZipFile = zipfile.ZipFile(file)
            methods = {entry.compress_type for entry in self._zip.infolist()}
            if ZSTANDARD in methods and sys.version_info < (3, 14):
                what = "a .eval file of this version of Inspect"
                name = "backports.zstd"
                module = import_extra(f"{name}.zipfile", what, name, "inspect")
                zstd_error = import_extra(name, what, name, "inspect").ZstdError
                self._broken += (module.BadZipFile, zstd_error)
                self._zip = module.ZipFile(file)
        except ExtraMissing as error:
            raise NotADocument(str(error)) from error
        except self._broken as error:
            reason = f"it is not a complete ZIP archive ({error}): copy it again"
            raise NotADocument(reason) from error
        self._entries = {entry.filename: entry for entry in self._zip.infolist()}
        if len(self._entries) > ENTRIES_MAX:
            fact = f"the archive has {len(self._entries):,} entries, the limit is {ENTRIES_MAX:,}"
            raise NotADocument(fact)

    def log(self) -> formats.Log:
        """Return the log's header. Raises NotADocument."""
        for name in ("header.json", "_journal/start.json"):
            if name in self._entries:
                try:
                    header = decode(self.read(name), constants=True)
                    return msgspec.convert(header, formats.Log)
                except (msgspec.DecodeError, ValueError, RecursionError) as error:
                    raise NotADocument(f"entry {name!r}: {error}") from error
        raise NotADocument("it is not a log of Inspect: it has no entry header.json")

    def samples(self) -> list[tuple[str, int]]:
        """Return the names of the sample entries, with their compressed length in bytes."""
        return [
            (name, entry.compress_size)
            for name, entry in self._entries.items()
            if name.startswith("samples/") and name.endswith(".json")
        ]

    def read(self, name: str) -> bytes:
        """Read an entry. Raises NotADocument."""
        size = self._entries[name].file_size
        if size > RECORD_BYTES_MAX:
            raise NotADocument(too_long("it", size))
        try:
            return self._zip.read(self._entries[name])
        except self._broken as error:
            raise NotADocument(f"it cannot be read ({error}): copy the log again") from error


def is_archive(head: bytes) -> bool:
    """Return whether the start of a ZIP archive is that of a log."""
    name = head[30:][: int.from_bytes(head[26:28], "little")]
    return name.startswith((b"_journal/", b"samples/")) or name in (
        b"header.json",
        b"summaries.json",
    )


class _Document:
    """A file that is one JSON document, with one record in memory at a time.

    Raises NotADocument if it is not one, naming the format that it resembles.
    """

    def __init__(
        self,
        file: BinaryIO,
        format_: str,
        watcher: Watcher,
        list_: str = "",
        *,
        constants: bool = False,
    ) -> None:
        self._file, self._format, self._watcher = file, format_, watcher
        self._constants = constants
        file.seek(0)
        self.head = file.read(HEAD_BYTES)
        try:
            parts = outline(file, list_)
        except NotADocument as error:
            reason = why_not_json(self.head, error) if self.head else EMPTY
            raise NotADocument(reason + self.hint) from error
        self.members, self.elements = parts.members, parts.elements
        watcher.read(file.seek(0, os.SEEK_END) - sum(span.size for span in self.elements or ()))

    @property
    def hint(self) -> str:
        """The other format that the file resembles, and the remedy."""
        return hint_of(self.head, self._format)

    def header(self, type_: type[_Header]) -> _Header:
        """Return the fields that all records of the file share."""
        members: dict[str, Any] = {}
        try:
            for name in type_.__struct_fields__:
                if name in self.members:
                    members[name] = self._decoded(self.members[name])
            return msgspec.convert(members, type_)
        except (*_UNREADABLE, msgspec.ValidationError) as error:
            reason = f"it is not a file of {self._format} ({error}){self.hint}"
            raise NotADocument(reason) from error

    def runs(self, convert: Callable[[Any], ChatRun]) -> Iterator[Found]:
        """Yield the file's records as runs."""
        for number, span in enumerate(self.elements or (), 1):
            self._watcher.read(span.size)
            if span.size > RECORD_BYTES_MAX:
                yield number, too_long("the record", span.size)
                continue
            data = part(self._file, span)
            remedy = "it is not a run of this format"
            yield number, _run(data, convert, remedy, constants=self._constants)
        if not self.elements:
            yield 1, f"the file has no runs{self.hint}"

    def _decoded(self, span: Span) -> Any:
        if span.size > RECORD_BYTES_MAX:
            raise NotADocument(too_long("its header", span.size))
        return decode(part(self._file, span), constants=self._constants)


def _run(
    data: bytes, convert: Callable[[Any], ChatRun], remedy: str, *, constants: bool = False
) -> ChatRun | str:
    """Convert a record to a run, or return the reason that it is none."""
    try:
        return convert(decode(data, constants=constants))
    except msgspec.ValidationError as error:
        return f"{error}; {unknown_field(error)}{remedy}"
    except CallerError as error:
        return str(error)
    except _UNREADABLE as error:
        return why_not_json(data, error)


def _no_list(document: _Document) -> str:
    """Return the remedy for a list where one tau2-bench document is expected."""
    if document.members:
        return ""
    if b'"simulations"' in document.head or b'"num_trials"' in document.head:
        return "; it is a list of such files: write each to one of its own, such as jq '.[0]' FILE"
    return "; it is a list of simulations: jq '{simulations: .}' FILE makes a file of them"


def _not_lines(head: bytes, first: bytes) -> str:
    """Return the remedy for JSON that is not one record a line."""
    begun = head.removeprefix(BOM).lstrip(BLANKS)
    if begun.startswith(b"["):
        return "; it is a list; write one record a line: jq -c '.[]' FILE"
    if begun.startswith(b"{") and not _is_json(first):
        return "; if a record spans several lines, write each on one: jq -c . FILE"
    return ""


def _is_json(line: bytes) -> bool:
    """Return whether a line is complete JSON, or invalid for another reason than truncation."""
    try:
        decode(line)
    except msgspec.DecodeError as error:
        return "truncated" not in str(error)
    except (DoubledKey, RecursionError, UnicodeDecodeError):
        return True
    return True


# ---------------------------------------------------------------- recognition

GZIP, ZIP = b"\x1f\x8b", b"PK\x03\x04"


class Head(msgspec.Struct, frozen=True):
    """Start of a file: its bytes, and the keys of its object, or of the objects in its list."""

    data: bytes
    is_list: bool
    keys: frozenset[str]

    def has(self, *keys: str) -> bool:
        """Return whether all of these keys are present."""
        return self.keys.issuperset(keys)


class Format(msgspec.Struct, frozen=True):
    """A format of recorded runs.

    A file is of it if its objects have all keys of one group in `keys`, or by one of `TESTS`.
    `name` is also the command's argument unless it has a `way` to convert its runs: it has no
    importer. Spans are read by `hansard.ext.otel`.
    """

    name: str
    keys: tuple[str, ...] = ()
    is_list: bool | None = None
    way: str = ""
    of_spans: bool = False

    def is_of(self, head: Head) -> bool:
        """Return whether the start of a file is of this format."""
        if self.is_list in (None, head.is_list) and any(
            head.has(*group.split()) for group in self.keys
        ):
            return True
        return self.name in TESTS and TESTS[self.name](head)

    @property
    def sentence(self) -> str:
        """The format's name, and the remedy."""
        if not self.way:
            return f"it looks like {self.name}: use 'hansard import {self.name}'"
        return f"it looks like {self.name}, which has no importer: {self.way}"


_SPEAKER = re.compile(rb'"type"\s*:\s*"(?:user|assistant)"')

READERS: dict[str, Reader] = {
    formats.INSPECT: _inspect,
    formats.TAU_BENCH: _tau_bench,
    formats.TAU2_BENCH: _tau2_bench,
    formats.ATIF: _atif,
    formats.CLAUDE_CODE: _claude_code,
    devtools.DEVTOOLS: _devtools,
    CHAT_JSONL: _chat_jsonl,
}
"""Readers of formats by name."""

TESTS: dict[str, Callable[[Head], bool]] = {
    "gzip": lambda head: head.data.startswith(GZIP),
    formats.INSPECT: lambda head: head.data.startswith(ZIP) and is_archive(head.data),
    "a ZIP archive": lambda head: head.data.startswith(ZIP),
    EVENTS: lambda head: b'"hansard-events"' in head.data.partition(b"\n")[0],
    formats.ATIF: lambda head: head.has("schema_version") and b'"ATIF-v' in head.data,
    formats.CLAUDE_CODE: lambda head: (
        head.has("type", "message") and bool(_SPEAKER.search(head.data))
    ),
    "openinference": lambda head: b"openinference.span.kind" in head.data,
    "a table (CSV)": lambda head: _is_table(head.data),
}
"""Further tests of the start of a file, by the format's name."""

FORMATS = msgspec.convert(
    tomllib.loads(Path(__file__).with_name("formats.toml").read_text("utf-8"))["formats"],
    tuple[Format, ...],
)
"""Every recognised format; the first match wins."""

NAMES = tuple(each.name for each in FORMATS if not each.way)
"""Formats that `hansard import` accepts."""

OF_SPANS = frozenset(each.name for each in FORMATS if each.of_spans)
"""Those that are spans of traces."""

_MARK = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"(\s*:)?|[{}\[\]]', re.DOTALL)


def recognised(data: bytes) -> Format | None:
    """Return the format that the start of a file resembles, or None."""
    data = data.removeprefix(BOM).lstrip(BLANKS)[:HEAD_BYTES]
    is_list = data.startswith(b"[")
    keys: set[str] = set()
    depth = 0
    for mark in _MARK.finditer(data if data[:1] in (b"[", b"{") else b""):
        if mark[1] is None:
            depth += 1 if mark[0] in b"{[" else -1
        elif mark[2] and depth == 1 + is_list:
            keys.add(mark[1].decode(errors="replace"))
    head = Head(data, is_list, frozenset(keys))
    return next((each for each in FORMATS if each.is_of(head)), None)


def hint_of(head: bytes, format_: str) -> str:
    """Return a hint at the format a file resembles, if that is not `format_`."""
    other = recognised(head)
    return "" if other is None or other.name == format_ else f"; {other.sentence}"


def _is_table(data: bytes) -> bool:
    """Return whether the first line has at least two short names, and the second the same
    separator.
    """
    first, _, rest = data.partition(b"\n")
    second = rest.partition(b"\n")[0]
    for mark in (b",", b";", b"\t"):
        names = first.strip(BLANKS).split(mark)
        if len(names) > 1 and mark in second and all(map(_NAME.fullmatch, names)):
            return True
    return False


_NAME = re.compile(rb'"?[\w .:/()-]{1,60}"?')
