"""Formats of recorded runs: how each is recognised, and how it is read or what brings it in.

`FORMATS` is the one table. Files are read one run after the other; what is no run is a reason.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

import msgspec

from hansard.agents.importers import atif, claude_code, devtools, files, inspect_log, tau
from hansard.agents.importers.chat import (
    CHAT_JSONL,
    ChatRun,
    ImportDefaults,
    from_chat,
    unknown_field,
)
from hansard.domain.errors import CallerError

# What an import tells while it goes and when it is done.


class Bad(msgspec.Struct, frozen=True, tag_field="kind", tag="bad"):
    """A record that was not imported. `line` counts from 1; in a file that is one JSON document it
    counts that document's records.
    """

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


class BadRecord(CallerError):
    """A record that cannot be imported; nothing of it was written. `tally` is what its file came to
    before it, as far as the importer says so.
    """

    def __init__(self, bad: Bad) -> None:
        super().__init__(str(bad))
        self.bad = bad
        self.tally = Tally(bad=1)


class Tally(msgspec.Struct):
    """What an import came to.

    `runs`, `messages`, `calls`, `commits` and `events` are what was read and is on record now,
    `new` the commits of it that were not there before. `duplicates` are records that were read
    before in the same import; `unanswered` the ids of tool calls whose result the source does not
    have, as run and call id; `unasked` counts results that no call of the source asked for,
    `claims` the figures that submissions claim.
    `assumed` counts what the source does not say and was taken for granted, by kind
    (`hansard.agents.importers.mapping`), `left_out` what was not taken over. `absent` are the large
    payloads, by hash, that the source could not read either.
    """

    runs: int = 0
    messages: int = 0
    calls: int = 0
    commits: int = 0
    events: int = 0
    new: int = 0
    bad: int = 0
    blobs: int = 0
    duplicates: int = 0
    unasked: int = 0
    claims: int = 0
    assumed: dict[str, int] = {}
    left_out: dict[str, int] = {}
    unanswered: list[tuple[str, str]] = []
    absent: list[str] = []

    def add(self, other: Tally) -> None:
        """Count another part of the same import in."""
        for name in self.__struct_fields__:
            mine, theirs = getattr(self, name), getattr(other, name)
            if isinstance(mine, dict):
                setattr(self, name, dict(Counter(mine) + Counter(theirs)))
            else:
                setattr(self, name, mine + theirs)


class Watcher(Protocol):
    """Who is told how an import goes. Neither method raises, unless an import is to stop."""

    def read(self, count: int) -> None:
        """So many more bytes of the input were read."""

    def bad(self, bad: Bad) -> None:
        """A record was skipped; raises BadRecord where the import is strict."""


EVENTS = "events"

SEE = "docs/chat-jsonl.md has the fields"

UNKNOWN = (
    "its format is not recognised: name it, as in 'hansard import claude-code FILE', or write its "
    f"runs as chat-jsonl; {SEE}"
)

EMPTY = "the file is empty: give one that holds recorded runs"

HEAD_BYTES = 256 * 1024
"""Bytes at the begin of a file by which its format is recognised."""

Found = tuple[int, ChatRun | tau.Claims | str]
"""The number of a record, from 1, and its run or claims, or why it is neither."""

_Header = TypeVar("_Header", bound=msgspec.Struct)

_UNREADABLE = (msgspec.DecodeError, files.DoubledKey, RecursionError, UnicodeDecodeError)


def records(
    format_: str, path: Path | None, given: ImportDefaults, watcher: Watcher
) -> Iterator[Found]:
    """A file's records (standard input's for None). Raises OSError."""
    reader = next(each.read for each in FORMATS if each.name == format_)
    assert reader is not None  # noqa: S101 -- the command takes no other names
    try:
        yield from reader(path, given, watcher)
    except files.NotADocument as error:
        yield 1, str(error)


# ---------------------------------------------------------------- readers


def _chat_jsonl(path: Path | None, given: ImportDefaults, watcher: Watcher) -> Iterator[Found]:
    with files.opened(path) as file:
        head = file.peek()  # type: ignore[attr-defined]  # every binary file here is buffered
        is_first = True
        for line in files.lines(file):
            watcher.read(line.size)
            if line.data is None:
                yield line.number, files.too_long("the line", line.size)
                is_first = False
            elif line.data:
                found = _run(line.data, lambda raw: from_chat(raw, given), SEE)
                if is_first and isinstance(found, str):
                    hint = hint_of(head, CHAT_JSONL) or _not_lines(head, line.data)
                    if hint:
                        yield line.number, found + hint
                        return
                yield line.number, found
                is_first = False
        if is_first:
            yield 1, "the file has no records"


def _tau_bench(path: Path | None, given: ImportDefaults, watcher: Watcher) -> Iterator[Found]:
    with files.seekable(path) as file:
        document = _Document(file, tau.TAU_BENCH, watcher)
        if document.members:
            yield 1, f"it is not a {tau.TAU_BENCH} file: it is no list{document.hint}"
            return
        yield from document.runs(lambda raw: tau.from_tau(raw, given))


def _tau2_bench(path: Path | None, given: ImportDefaults, watcher: Watcher) -> Iterator[Found]:
    with files.seekable(path) as file:
        document = _Document(file, tau.TAU2_BENCH, watcher, "simulations")
        whole = document.header(tau.Tau2File)
        if whole.results is not None:
            yield 1, _claims(whole.results, given)
        elif document.elements is None or not document.members:
            fact = "it has neither simulations nor results"
            hint = document.hint or _no_list(document)
            yield 1, f"it is not a {tau.TAU2_BENCH} file: {fact}{hint}"
            return
        if document.elements is not None:
            labels = tau.labels_of_file(whole.info)
            yield from document.runs(lambda raw: tau.from_tau2(raw, given, labels))


def _claims(results: dict[str, Any], given: ImportDefaults) -> tau.Claims | str:
    """Return what a submission claims, or why that is of no use."""
    if not given.experiment:
        return "its results are claims about an arm of an experiment: give --experiment and --arm"
    try:
        return tau.claims_of(results)
    except CallerError as error:
        return str(error)


def _devtools(path: Path | None, given: ImportDefaults, watcher: Watcher) -> Iterator[Found]:
    remedy = "it is no recording of Chrome DevTools' Recorder: export it as JSON"
    limit = devtools.FILE_BYTES_MAX
    convert = devtools.from_devtools
    found = _whole(path, watcher, limit, devtools.DEVTOOLS, lambda raw: convert(raw, given), remedy)
    yield 1, found


def _atif(path: Path | None, given: ImportDefaults, watcher: Watcher) -> Iterator[Found]:
    remedy = "it is no trajectory of ATIF-v1: docs/chat-jsonl.md has what is read"
    limit = files.RECORD_BYTES_MAX
    yield 1, _whole(path, watcher, limit, atif.ATIF, lambda raw: atif.from_atif(raw, given), remedy)


def _whole(
    path: Path | None,
    watcher: Watcher,
    limit: int,
    format_: str,
    convert: Callable[[Any], ChatRun],
    remedy: str,
) -> ChatRun | str:
    """A file that is one run, or why it is none."""
    with files.opened(path) as file:
        data = file.read(limit + 1)
        watcher.read(len(data))
        if not data.removeprefix(files.BOM).strip(files.BLANKS):
            return EMPTY
        if len(data) > limit:
            return f"the file has more than {limit:,} bytes, which is the limit for one run"
    found = _run(data.removeprefix(files.BOM), convert, remedy)
    return found + hint_of(data, format_) if isinstance(found, str) else found


def _claude_code(path: Path | None, given: ImportDefaults, watcher: Watcher) -> Iterator[Found]:
    session = claude_code.Session()
    size = 0
    with files.opened(path) as file:
        head = file.peek()  # type: ignore[attr-defined]  # every binary file here is buffered
        for line in files.lines(file):
            watcher.read(line.size)
            size += line.size
            if line.data is None or size > files.RECORD_BYTES_MAX:
                yield line.number, files.too_long("the session up to here", size)
                return
            if line.data:
                wrong = _taken(session, line.data)
                if wrong is not None:
                    whole = "; a session is imported whole or not at all: take the line out"
                    yield line.number, wrong + (hint_of(head, claude_code.CLAUDE_CODE) or whole)
                    return
    if session.is_empty:
        fact = "the file has no messages of a user or an assistant"
        yield 1, fact + hint_of(head, claude_code.CLAUDE_CODE)
        return
    try:
        yield 1, session.run(given)
    except CallerError as error:
        yield 1, str(error)


def _taken(session: claude_code.Session, data: bytes) -> str | None:
    """Take a line into a session; return why it is none of it."""
    try:
        session.take(files.decode(data))
    except msgspec.ValidationError as error:
        return str(error)
    except _UNREADABLE as error:
        return files.why_not_json(data, error)
    return None


def _inspect(path: Path | None, given: ImportDefaults, watcher: Watcher) -> Iterator[Found]:
    with files.seekable(path) as file:
        if file.read(len(ZIP)) == ZIP:
            yield from _inspect_archive(file, given, watcher)
            return
        document = _Document(file, inspect_log.INSPECT, watcher, "samples", constants=True)
        log = document.header(inspect_log.Log)
        yield from document.runs(lambda raw: inspect_log.from_sample(raw, given, log))


def _inspect_archive(file: BinaryIO, given: ImportDefaults, watcher: Watcher) -> Iterator[Found]:
    archive = inspect_log.Archive(file)
    log, samples = archive.log(), archive.samples()
    watcher.read(file.seek(0, os.SEEK_END) - sum(length for _, length in samples))
    for number, (name, length) in enumerate(samples, 1):
        watcher.read(length)
        try:
            data = archive.read(name)
        except files.NotADocument as error:
            yield number, f"entry {name!r:.200}: {error}"
            continue
        found = _run(
            data,
            lambda raw: inspect_log.from_sample(raw, given, log),
            "it is no sample of an Inspect log",
            constants=True,
        )
        yield number, found if isinstance(found, ChatRun) else f"entry {name!r:.200}: {found}"
    if not samples:
        yield 1, "the log has no samples"


class _Document:
    """A file that is one JSON document, of which one record at a time is in memory.

    Raises NotADocument where it is none, with the format that it seems to have.
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
            outline = files.outline(file, list_)
        except files.NotADocument as error:
            reason = files.why_not_json(self.head, error) if self.head else EMPTY
            raise files.NotADocument(reason + self.hint) from error
        self.members, self.elements = outline.members, outline.elements
        watcher.read(file.seek(0, os.SEEK_END) - sum(span.size for span in self.elements or ()))

    @property
    def hint(self) -> str:
        """Which other format it seems to have, and what to do."""
        return hint_of(self.head, self._format)

    def header(self, type_: type[_Header]) -> _Header:
        """What the file says of all its records."""
        members: dict[str, Any] = {}
        try:
            for name in type_.__struct_fields__:
                if name in self.members:
                    members[name] = self._decoded(self.members[name])
            return msgspec.convert(members, type_)
        except (*_UNREADABLE, msgspec.ValidationError) as error:
            reason = f"it is not a file of {self._format} ({error}){self.hint}"
            raise files.NotADocument(reason) from error

    def runs(self, convert: Callable[[Any], ChatRun]) -> Iterator[Found]:
        """Its records as runs."""
        for number, span in enumerate(self.elements or (), 1):
            self._watcher.read(span.size)
            if span.size > files.RECORD_BYTES_MAX:
                yield number, files.too_long("the record", span.size)
                continue
            data = files.part(self._file, span)
            remedy = "it is no run of this format"
            yield number, _run(data, convert, remedy, constants=self._constants)
        if not self.elements:
            yield 1, f"the file has no runs{self.hint}"

    def _decoded(self, span: files.Span) -> Any:
        if span.size > files.RECORD_BYTES_MAX:
            raise files.NotADocument(files.too_long("its header", span.size))
        return files.decode(files.part(self._file, span), constants=self._constants)


def _run(
    data: bytes, convert: Callable[[Any], ChatRun], remedy: str, *, constants: bool = False
) -> ChatRun | str:
    """A record as a run, or why it is none."""
    try:
        return convert(files.decode(data, constants=constants))
    except msgspec.ValidationError as error:
        return f"{error}; {unknown_field(error)}{remedy}"
    except CallerError as error:
        return str(error)
    except _UNREADABLE as error:
        return files.why_not_json(data, error)


def _no_list(document: _Document) -> str:
    """What to do with a list where one document of tau2-bench is wanted."""
    if document.members:
        return ""
    if b'"simulations"' in document.head or b'"num_trials"' in document.head:
        return "; it is a list of such files: write each to one of its own, such as jq '.[0]' FILE"
    return "; it is a list of simulations: jq '{simulations: .}' FILE makes a file of them"


def _not_lines(head: bytes, first: bytes) -> str:
    """What to do with JSON that is not one record a line."""
    begun = head.removeprefix(files.BOM).lstrip(files.BLANKS)
    if begun.startswith(b"["):
        return "; it is a list, and is to be one record a line: jq -c '.[]' FILE"
    if begun.startswith(b"{") and not _is_json(first):
        return "; if its records stand on several lines, write each on one: jq -c . FILE"
    return ""


def _is_json(line: bytes) -> bool:
    """Whether a line says something whole, or is wrong in another way than by its end."""
    try:
        files.decode(line)
    except msgspec.DecodeError as error:
        return "truncated" not in str(error)
    except (files.DoubledKey, RecursionError, UnicodeDecodeError):
        return True
    return True


# ---------------------------------------------------------------- recognition

GZIP, ZIP = b"\x1f\x8b", b"PK\x03\x04"


class Head(msgspec.Struct, frozen=True):
    """The begin of a file: its bytes, and the keys of the objects that it is, or lists."""

    data: bytes
    is_list: bool
    keys: frozenset[str]

    def has(self, *keys: str) -> bool:
        """Whether all of these keys are there."""
        return self.keys.issuperset(keys)


class Format(msgspec.Struct, frozen=True):
    """A format of recorded runs.

    `name` is its own, and that of the command where `read` reads it; for one without an importer
    `way` says how its runs are brought in.
    """

    name: str
    is_of: Callable[[Head], bool]
    read: Callable[[Path | None, ImportDefaults, Watcher], Iterator[Found]] | None = None
    way: str = ""

    @property
    def sentence(self) -> str:
        """Which format this is, and what to do."""
        if not self.way:
            return f"it looks like {self.name}: use 'hansard import {self.name}'"
        return f"it looks like {self.name}, which has no importer: {self.way}"


_SPEAKER = re.compile(rb'"type"\s*:\s*"(?:user|assistant)"')


def _as_chat(record: str, how: str) -> str:
    """What makes chat-jsonl of another format."""
    return f"write {record} as a line of chat-jsonl, {how}; {SEE}"


FORMATS = (
    Format("gzip", lambda head: head.data.startswith(GZIP), way="gunzip it, import the result"),
    Format(
        inspect_log.INSPECT,
        lambda head: (
            (head.data.startswith(ZIP) and inspect_log.is_archive(head.data))
            or head.has("version", "status", "eval")
        ),
        _inspect,
    ),
    Format(
        "a ZIP archive",
        lambda head: head.data.startswith(ZIP),
        way="unpack it, and import its files",
    ),
    Format(EVENTS, lambda head: b'"hansard-events"' in head.data.partition(b"\n")[0]),
    Format(tau.TAU_BENCH, lambda head: head.is_list and head.has("traj"), _tau_bench),
    Format(
        tau.TAU2_BENCH,
        lambda head: (
            not head.is_list
            and (
                head.has("simulations")
                or head.has("info", "tasks")
                or head.has("results", "model_name", "submission_date")
            )
        ),
        _tau2_bench,
    ),
    Format(
        atif.ATIF,
        lambda head: head.has("schema_version") and b'"ATIF-v' in head.data,
        _atif,
    ),
    Format(
        claude_code.CLAUDE_CODE,
        lambda head: (
            head.has("type", "sessionId")
            or (head.has("type", "message") and _SPEAKER.search(head.data) is not None)
            or head.has("type", "leafUuid")
            or head.has("type", "messageId", "snapshot")
        ),
        _claude_code,
    ),
    Format(devtools.DEVTOOLS, lambda head: head.has("title", "steps"), _devtools),
    Format(
        "an export of Langfuse",
        lambda head: (
            head.has("trace", "observations")
            or head.has("projectId", "observations")
            or head.has("projectId", "htmlPath")
            or head.has("traceId", "startTime", "type")
        ),
        way=_as_chat(
            "each trace",
            "input and output of its generations as the messages, its scores as the outcome",
        ),
    ),
    Format(
        "spans of OpenInference or Phoenix",
        lambda head: (
            b"openinference.span.kind" in head.data
            or head.has("context", "span_kind")
            or head.has("spanContext", "attributes")
            or "context.trace_id" in head.keys
        ),
        way=_as_chat(
            "each trace",
            "llm.input_messages and llm.output_messages of its spans as the messages",
        ),
    ),
    Format(
        "spans of OpenTelemetry (OTLP JSON)",
        lambda head: (
            head.has("resourceSpans")
            or head.has("resourceLogs")
            or head.has("context", "parent_id", "attributes")
        ),
        way=_as_chat(
            "each trace",
            "gen_ai.input.messages and gen_ai.output.messages of its spans as the messages",
        ),
    ),
    Format(
        "results of promptfoo",
        lambda head: (
            head.has("evalId", "results")
            or head.has("results", "config", "shareableUrl")
            or head.has("results", "stats", "table")
        ),
        way=_as_chat(
            "each entry of results.results",
            "the prompt and response.output as the messages, provider as the arm, score as the "
            "outcome",
        ),
    ),
    Format(
        "results of lm-eval",
        lambda head: (
            head.has("doc_id", "resps")
            or head.has("results", "configs", "n-shot")
            or head.has("results", "versions", "config")
        ),
        way=_as_chat(
            "each line of its samples_*.jsonl",
            "arguments and resps as the messages, doc_id as the task, its metrics as the outcome",
        ),
    ),
    Format(
        "a file of OpenAI's Batch API",
        lambda head: head.has("custom_id", "response") or head.has("custom_id", "method", "url"),
        way=_as_chat(
            "each custom_id",
            "body.messages of the input file and response.body.choices[0].message of the output "
            "file as the messages",
        ),
    ),
    Format(
        CHAT_JSONL,
        lambda head: not head.is_list and head.has("messages"),
        _chat_jsonl,
    ),
    Format(
        "a table (CSV)",
        lambda head: _is_table(head.data),
        way=_as_chat(
            "each row", "its prompt and answer as the messages, its scores as the outcome"
        ),
    ),
)
"""Every format that is recognised; the first that a file is of counts."""

NAMES = tuple(each.name for each in FORMATS if not each.way)
"""What `hansard import` takes."""

_MARK = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"(\s*:)?|[{}\[\]]', re.DOTALL)


def recognised(data: bytes) -> Format | None:
    """The format that the begin of a file seems to have."""
    data = data.removeprefix(files.BOM).lstrip(files.BLANKS)[:HEAD_BYTES]
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
    """Which format a file seems to have, where it is another than it was taken for."""
    other = recognised(head)
    return "" if other is None or other.name == format_ else f"; {other.sentence}"


def _is_table(data: bytes) -> bool:
    """Whether the first two lines have equally many fields, at least two, with short names."""
    first, _, rest = data.partition(b"\n")
    second = rest.partition(b"\n")[0]
    for mark in (b",", b";", b"\t"):
        names = first.strip(files.BLANKS).split(mark)
        if len(names) > 1 and mark in second and all(map(_NAME.fullmatch, names)):
            return True
    return False


_NAME = re.compile(rb'"?[\w .:/()-]{1,60}"?')
