"""Commands `hansard import`, `export` and `schema`: runs of other systems, and exported runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import cache, partial
from inspect import cleandoc
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from hansard.agents.exchange.files import Bad, BadRecord, Tally, head
from hansard.agents.exchange.writer import BlobLine, CommitLine, End, Header, Missing
from hansard.agents.exchange.writer import export as write_out
from hansard.agents.workspace import Workspace
from hansard.bus import slices
from hansard.bus.errors import NotFound
from hansard.bus.file_lock import whole
from hansard.cli import output
from hansard.cli.common import Commands, OutputFile, argument, flag, option
from hansard.cli.opening import beginning, reading
from hansard.cli.output import Hint, Part
from hansard.domain import integrity as _all_types  # noqa: F401 # pyright: ignore[reportUnusedImport] -- registers all
from hansard.domain.choices import counted
from hansard.domain.errors import BadValue
from hansard.domain.events import REGISTRY, Commit
from hansard.domain.snapshot import Snapshot
from hansard.ext.importers.chat import WORDS, ImportDefaults
from hansard.ext.importers.reader import STDIN, Importer
from hansard.ext.importers.sources import (
    EMPTY,
    EVENTS,
    NAMES,
    OF_SPANS,
    UNKNOWN,
    hint_of,
    recognised,
)
from hansard.inspect.answer import find_run

# JSON Schemas (2020-12) of exported data, generated from the types that write and read it.

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_REF = "#/$defs/{name}"


class Schema(StrEnum):
    """Kinds of data with a schema.

    Attributes:
        SNAPSHOT: An agent's state: `record.snapshots`, `hansard run show --snapshots --json`.
        EVENTS: A commit with its events: the body of a message, as it is stored.
        EXPORT: A line written by `hansard export`.
    """

    SNAPSHOT = "snapshot"
    EVENTS = "events"
    EXPORT = "export"


def schema(which: Schema) -> dict[str, Any]:
    """Return a JSON Schema; it allows unknown fields, since later versions add some."""
    made: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(_MADE[which]()))
    return made


def _snapshot() -> dict[str, Any]:
    return _document("A snapshot of an agent's state", *_of([Snapshot]))


def _export() -> dict[str, Any]:
    lines = [Header, BlobLine, CommitLine, End]
    schemas, parts = _of(lines)
    for line in lines:
        shape = parts[line.__name__]
        shape["properties"]["digest"] = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
        shape["required"].append("digest")
        shape.pop("additionalProperties", None)
    return _document("A line of exported runs", schemas, parts)


def _event_schemas() -> dict[str, Any]:
    slices.load()
    tags = sorted(tag for tag, cls in REGISTRY.items() if cls.__module__.startswith("hansard."))
    [commit, *data], parts = _of([Commit, *(REGISTRY[tag] for tag in tags)])
    event = parts.pop("Recorded")
    for tag, shape in zip(tags, data, strict=True):
        fields = {**event["properties"], "type": {"const": tag}, "data": shape}
        parts[tag] = {**event, "title": tag, "properties": fields}
    parts["Recorded"] = {"oneOf": [{"$ref": _REF.format(name=tag)} for tag in tags]}
    return _document("A commit with its events", [commit], parts)


_MADE: dict[Schema, Callable[[], dict[str, Any]]] = {
    Schema.SNAPSHOT: _snapshot,
    Schema.EVENTS: _event_schemas,
    Schema.EXPORT: _export,
}


def _of(types: Sequence[Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    items = [_schema_type(each) for each in types]
    schemas, parts = msgspec.json.schema_components(items, ref_template=_REF)
    return list(schemas), parts


def _schema_type(kind: Any) -> Any:
    """Return a type that msgspec can describe: a struct without its raw JSON defaults."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct(kind)
    parts = get_args(kind)
    items = tuple(_schema_type(each) for each in parts)
    if all(new is old for new, old in zip(items, parts, strict=True)):
        return kind
    origin: Any = get_origin(kind)
    return Union[items] if origin in {Union, UnionType} else origin[items]  # noqa: UP007 -- made at run time


_open: set[type[msgspec.Struct]] = set()
"""Structs being described; one nested in itself is described as any object."""


def _struct(cls: type[msgspec.Struct]) -> Any:
    return dict[str, Any] if cls in _open else _rebuilt(cls)


@cache
def _rebuilt(cls: type[msgspec.Struct]) -> type[msgspec.Struct]:
    fields = msgspec.structs.fields(cls)
    _open.add(cls)
    try:
        items = [_schema_type(field.type) for field in fields]
    finally:
        _open.remove(cls)
    raw = [isinstance(field.default, msgspec.Raw) for field in fields]
    same = all(new is field.type for new, field in zip(items, fields, strict=True))
    if same and not any(raw):
        return cls
    shapes: list[Any] = []
    for field, kind, is_raw in zip(fields, items, raw, strict=True):
        default_options: dict[str, Any] = {"default": None if is_raw else field.default}
        if field.default_factory is not msgspec.NODEFAULT:
            default_options = {"default_factory": field.default_factory}
        default = msgspec.field(name=field.encode_name, **default_options)
        shapes.append((field.name, kind) if field.required else (field.name, kind, default))
    config = cls.__struct_config__
    return msgspec.defstruct(
        cls.__name__,
        shapes,
        kw_only=True,
        tag=config.tag,
        tag_field=config.tag_field,
        namespace={"__doc__": cls.__doc__},
    )


def _document(
    title: str, schemas: Sequence[dict[str, Any]], parts: dict[str, Any]
) -> dict[str, Any]:
    whole = schemas[0] if len(schemas) == 1 else {"oneOf": list(schemas)}
    for part in parts.values():
        if "description" in part:
            part["description"] = cleandoc(part["description"])
    return {"$schema": DIALECT, "title": title, **whole, "$defs": dict(sorted(parts.items()))}


app = Commands()

BAD_SHOWN_MAX = 100
"""Most bad records shown to people; the rest are counted. `--json` shows all."""

UNANSWERED_SHOWN_MAX = 5
"""Most calls without a result named in the summary."""


class ImportWatcher:
    """Progress display of an import of a total size in bytes, None if it is unknown."""

    def __init__(self, update: output.Update, size: int | None, *, strict: bool) -> None:
        self._update = update
        self._size = size
        self._strict = strict
        self._done = self._bad = 0

    def read(self, count: int) -> None:
        """Update the progress bar."""
        self._done += count
        self._update("import", self._done, self._size)

    def bad(self, bad: Bad) -> None:
        """Report a bad record. Raises BadRecord under --strict."""
        self._bad += 1
        output.show(bad, self._render(bad))
        if self._strict:
            raise BadRecord(bad)

    def _render(self, bad: Bad) -> Iterator[Part]:
        if self._bad <= BAD_SHOWN_MAX:
            yield Hint(str(bad))
        elif self._bad == BAD_SHOWN_MAX + 1:
            yield Hint("further bad records are only counted; --json lists all")


@app.command("import")
async def import_(
    named: Annotated[
        list[str],
        argument(
            "[FORMAT] FILE...",
            f"FORMAT is {', '.join(NAMES[:-1])} or {NAMES[-1]}; left out, each file is "
            "recognised by its content. '-' is stdin.",
        ),
    ],
    experiment: Annotated[str | None, option("The experiment of runs that name none.")] = None,
    arm: Annotated[str | None, option("The arm of runs that name none.")] = None,
    strict: Annotated[
        bool, flag("--strict", "Stop at the first bad record instead of skipping it.")
    ] = False,
    no_guesses: Annotated[bool, flag("--no-guesses", "Stop where a source lacks a value.")] = False,
) -> int:
    """Import recorded runs.

    Importing again changes nothing. Bad records are shown with file, line and reason, and skipped;
    the command then exits with 1. Assumptions and omitted data are summed up at the end, and
    recorded (docs/chat-jsonl.md).
    """
    format_, *files = named if named[0] in NAMES else ("", *named)
    if not files:
        raise BadValue("import", "no file is named", f"give one: hansard import {format_} FILE")
    paths = [_path(file) for file in files]
    terms = ImportDefaults(experiment, arm)
    _refuse_arm(format_, terms)
    async with beginning() as workspace:
        try:
            with output.progress("import", in_bytes=True) as update:
                watcher = ImportWatcher(update, _size(files), strict=strict)
                tally, stopped = Tally(), False
                groups = {format_: paths} if format_ else {}
                try:
                    groups = groups or _recognised(paths, watcher, tally)
                except BadRecord:
                    stopped = True
                for name in groups:
                    _refuse_arm(name, terms)
                for name, some in groups.items():
                    if stopped:
                        break
                    if take := _reader(name, workspace, watcher):
                        part, stopped = await _files(some, take)
                    else:
                        importer = Importer(workspace, name, terms, watcher, no_guesses=no_guesses)
                        part, stopped = await _chats(importer, some)
                    tally.add(part)
        except OSError as error:
            remedy = "what was read before it stays; try again"
            raise BadValue("import", str(error), remedy) from error
    text = _summary(tally, stopped=stopped, events=[*groups] == [EVENTS])
    output.show([*_lines(tally, stopped=stopped)], text)
    return 1 if tally.bad else 0


_WITHOUT_ARM = {
    EVENTS: "exported runs carry their own",
    **dict.fromkeys(OF_SPANS, "a trace's run is observed, not assigned"),
}
"""Formats whose runs are given no experiment and arm, and why."""


def _refuse_arm(format_: str, terms: ImportDefaults) -> None:
    if format_ in _WITHOUT_ARM and (terms.experiment or terms.arm):
        remedy = f"leave out --experiment and --arm: {_WITHOUT_ARM[format_]}"
        raise BadValue(f"import {format_}", "an experiment or arm is given", remedy)


def _recognised(
    paths: list[Path | None], watcher: ImportWatcher, tally: Tally
) -> dict[str, list[Path | None]]:
    """Group files by format and report the rest. Raises BadRecord, OSError."""
    groups: dict[str, list[Path | None]] = {}
    for path in paths:
        begun = head(path)
        form = recognised(begun) if begun else None
        if form is not None and not form.way:
            groups.setdefault(form.name, []).append(path)
            continue
        reason = form.sentence if form is not None else EMPTY if begun == b"" else UNKNOWN
        tally.bad += 1
        watcher.bad(Bad(str(path) if path is not None else STDIN, 1, reason))
    return groups


async def _chats(importer: Importer, paths: list[Path | None]) -> tuple[Tally, bool]:
    try:
        async with importer:
            for path in paths:
                await importer.take(path)
    except BadRecord:
        return importer.tally, True
    return importer.tally, False


def _reader(
    name: str, workspace: Workspace, watcher: ImportWatcher
) -> Callable[[Path | None], Awaitable[Tally]] | None:
    """Return the function that imports a file of exported runs or of spans; None for chats."""
    if name == EVENTS:
        from hansard.agents.exchange.reader import import_events

        hint = partial(hint_of, format_=EVENTS)
        return lambda path: import_events(workspace, path, watcher, hint)
    if name in OF_SPANS:
        from hansard.ext.otel.files import take

        return lambda path: take(workspace, path, watcher)
    return None


async def _files(
    paths: list[Path | None], take: Callable[[Path | None], Awaitable[Tally]]
) -> tuple[Tally, bool]:
    """Import files; stop at a bad record under --strict."""
    tally = Tally()
    for path in paths:
        try:
            tally.add(await take(path))
        except BadRecord as stopped:
            tally.add(stopped.tally)
            return tally, True
    return tally, False


def _path(file: str) -> Path | None:
    """Return the path of a readable file; None for stdin. Raises NotFound, BadValue."""
    if file == STDIN:
        return None
    path = Path(file)
    if path.is_dir():
        raise BadValue(f"file {file!r}", "it is a directory", f"name its files: {file}/*")
    if not path.exists():
        remedy = f"check its name; '-' is stdin, and a format is one of {', '.join(NAMES)}"
        raise NotFound(f"file {file!r}", remedy)
    if not os.access(path, os.R_OK):
        raise BadValue(f"file {file!r}", "it may not be read", "check its permissions")
    return path


def _size(files: list[str]) -> int | None:
    """Return the total size of the files in bytes, or None if it is unknown."""
    return None if STDIN in files else sum(Path(file).stat().st_size for file in files)


def _lines(tally: Tally, *, stopped: bool) -> Iterator[dict[str, Any]]:
    """Yield what is missing, then the figures; `stopped` if the import ended at a bad record."""
    figures = msgspec.structs.asdict(tally)
    for run, call in figures.pop("unanswered"):
        yield {"kind": "unanswered", "run": run, "call_id": call}
    for blob in figures.pop("absent"):
        yield {"kind": "absent", "blob": blob}
    unanswered = len(tally.unanswered)
    yield {"kind": "summary", **figures, "unanswered": unanswered, "stopped": stopped}


def _summary(tally: Tally, *, stopped: bool, events: bool) -> str:
    text = f"{counted(tally.runs, 'run')}"
    if not events:
        text += f", {counted(tally.messages, 'message')}, {counted(tally.calls, 'call')}"
    text += f": {counted(tally.commits, 'commit')}, {tally.new:,} of them new"
    if tally.duplicates:
        text += f"; {counted(tally.duplicates, 'record')} there twice"
    if tally.unasked:
        text += f"; {counted(tally.unasked, 'result')} without a call"
    if tally.claims:
        text += f"; {counted(tally.claims, 'claimed figure')}"
    if tally.unanswered:
        named = ", ".join(
            f"{call or 'no id'} of {run}" for run, call in tally.unanswered[:UNANSWERED_SHOWN_MAX]
        )
        more = "..." if len(tally.unanswered) > UNANSWERED_SHOWN_MAX else ""
        text += f"; {counted(len(tally.unanswered), 'call')} without a result ({named}{more})"
    if tally.absent:
        text += f"; {len(tally.absent):,} large payloads were missing at the source"
    if stopped:
        text += "; stopped at the first bad record: the records before it are imported"
    elif tally.bad:
        text += f"; {counted(tally.bad, 'bad record')} skipped"
    if tally.left_out:
        text += f"\nnot imported: {_phrases(tally.left_out)}"
    if tally.assumed:
        kinds = {WORDS[kind][0]: count for kind, count in tally.assumed.items()}
        text += f"\nassumed: {_phrases(kinds)} (--no-guesses stops there)"
    return text


def _phrases(kinds: dict[str, int]) -> str:
    """Render counts of kinds of things; the first word of a kind is the thing counted."""
    phrases = []
    for kind, count in kinds.items():
        one, _, rest = kind.partition(" ")
        phrases.append(f"{counted(count, one)} {rest}".rstrip())
    return "; ".join(phrases)


NAMED_MAX = 5
"""Most runs included in addition that are listed by id."""

Write = Callable[[bytes], object]


@app.command(plain=True)
async def export(
    runs: Annotated[list[str], argument("RUN...", "Ids, unique prefixes, or 'last'.")],
    path: OutputFile = None,
    otlp: Annotated[
        str | None,
        option("Send gen_ai spans to this collector instead; -: write them as OTLP JSON.", "URL"),
    ] = None,
    header_env: Annotated[
        list[str] | None,
        option("With --otlp: a header with a variable's value. Repeatable.", "HEADER=NAME"),
    ] = None,
    no_content: Annotated[
        bool, flag("--no-content", "With --otlp: no arguments, results and messages.")
    ] = False,
) -> int:
    """Export runs as JSON lines with their exact stored bytes.

    Includes large payloads, the parents of a fork and the earlier runs of a conversation. 'hansard
    import events' reads the file.

    With --otlp the runs are sent to an OpenTelemetry collector as spans, always with the same ids.
    """
    if otlp is None and (header_env or no_content):
        fact = "there is no --otlp"
        raise BadValue("--header-env, --no-content", fact, "give it, or leave these out")
    async with reading() as workspace:
        known = set(await workspace.log.runs())
        names = [run if run in known else await find_run(workspace, run) for run in runs]
        names = list(dict.fromkeys(names))
        if otlp is not None:
            await _send(workspace, names, otlp, path, header_env or [], content=not no_content)
            return 0
        with _target(path) as write:
            missing = await _export_all(workspace, names, write)
    for each in missing:
        output.hint(f"missing: {each.what}: {each.why}")
    return 1 if missing else 0


async def _send(
    workspace: Workspace,
    names: list[str],
    url: str,
    path: Path | None,
    header_env: list[str],
    *,
    content: bool,
) -> None:
    """Send runs as spans, or write them; an error names the first run that was not sent."""
    from hansard.cli.mcp import headers_of
    from hansard.ext.otel import export as spans

    if url == STDIN:
        with _target(path) as write:
            for run in names:
                listed = [each async for each in spans.spans_of(workspace, run, content=content)]
                for group in spans.batches(listed):
                    write(spans.to_json(group) + b"\n")
        return
    headers = headers_of(None, header_env)
    for run in names:
        sent = await spans.send(workspace, run, url, headers, content=content)
        output.hint(f"run {run}: {counted(sent.spans, 'span')} as trace {sent.trace}")


async def _export_all(workspace: Workspace, names: list[str], write: Write) -> list[Missing]:
    report = await write_out(workspace, names, write)
    others = [run for run in report.carries if run not in names]
    counts = (len(report.carries), "run"), (report.commits, "commit"), (report.blobs, "blob")
    text = ", ".join(counted(number, of) for number, of in counts)
    if others:
        more = ", ..." if len(others) > NAMED_MAX else ""
        text += f"; carried along: {', '.join(others[:NAMED_MAX])}{more}"
    output.hint(text)
    return report.missing


@contextmanager
def _target(path: Path | None) -> Generator[Write]:
    """Open stdout, or a file that is written completely or not at all. Raises Unwritable."""
    if path is None or str(path) == "-":
        yield sys.stdout.buffer.write
        sys.stdout.buffer.flush()
        return
    with whole(path) as file:
        yield file.write


@app.command("schema")
async def show_schema(
    which: Annotated[
        Schema,
        argument(
            "WHAT",
            "snapshot: an agent's state. events: a commit and its events, as they are stored. "
            "export: a line of 'hansard export'.",
        ),
    ],
) -> None:
    """Print a JSON Schema of snapshots, events or exports."""
    made = schema(which)
    pretty = msgspec.json.format(msgspec.json.encode(made), indent=2).decode()
    output.show(made, pretty)
