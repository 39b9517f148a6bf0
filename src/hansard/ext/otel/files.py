"""Files of spans as observed runs: OTLP JSON, the JSON of SDKs, exports of Langfuse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from hansard.agents.exchange import files
from hansard.agents.exchange.files import RECORD_BYTES_MAX, Bad, Tally, Watcher
from hansard.agents.workspace import Workspace
from hansard.ext.otel import record
from hansard.ext.otel.spans import BROKEN, Log, Read, Span, from_document, from_request

BATCH_SPANS_MAX = 500
"""Spans that are recorded together."""


async def take(workspace: Workspace, path: Path | None, watcher: Watcher) -> Tally:
    """Record the spans of a file (standard input for None), and make the runs of their traces.

    A file that is imported again changes nothing. Raises BadRecord if the watcher does, OSError,
    and the log's errors.
    """
    tally = Tally()
    file = str(path) if path is not None else "-"
    traces: dict[str, None] = {}
    spans: list[Span] = []
    logs: list[Log] = []

    def refuse(line: int, reason: str) -> None:
        tally.bad += 1
        watcher.bad(Bad(file, line, reason))

    async def store(line: int) -> None:
        built = await record.record_spans(workspace, spans, logs)
        tally.events += built.new
        tally.duplicates += built.again
        traces.update(dict.fromkeys(each.trace for each in spans))
        spans.clear()
        logs.clear()
        for reason in built.refused:
            refuse(line, reason)

    line = 1
    for line, read in _parts(path, watcher):
        for reason in read.refused:
            refuse(line, reason)
        spans += read.spans
        logs += read.logs
        if len(spans) + len(logs) >= BATCH_SPANS_MAX:
            await store(line)
    await store(line)
    for trace in traces:
        built = await record.make_run(workspace, trace)
        if built is not None:
            tally.runs += 1
            tally.calls += built.calls
            tally.commits += len(built.appends)
            tally.new += built.new
    return tally


def _parts(path: Path | None, watcher: Watcher) -> Iterator[tuple[int, Read]]:
    """Yield what each line of a file holds, or the file where it is one document."""
    with files.seekable(path) as file:
        for line in files.lines(file):
            watcher.read(line.size)
            if line.data is None:
                yield line.number, Read(refused=[files.too_long("the line", line.size)])
            elif line.data:
                read = _document(line.data)
                if isinstance(read, str) and line.number == 1:
                    break  # one document over several lines
                yield line.number, Read(refused=[read]) if isinstance(read, str) else read
        else:
            return
        file.seek(0)
        data = file.read(RECORD_BYTES_MAX + 1)
        watcher.read(len(data))
        read = _document(data)
        if len(data) > RECORD_BYTES_MAX:
            read = files.too_long("the file", len(data))
        yield 1, Read(refused=[read]) if isinstance(read, str) else read


def _document(data: bytes) -> Read | str:
    """Return the spans of a JSON document, or the reason why it is none."""
    try:
        value: Any = msgspec.json.decode(data.removeprefix(files.BOM))
    except BROKEN as error:
        return files.why_not_json(data, error)
    if isinstance(value, dict) and ("resourceSpans" in value or "resourceLogs" in value):
        try:
            return from_request(value)
        except BROKEN as error:
            return f"it is no OTLP request in JSON ({error!s:.200})"
    read = Read.of(from_document(value))
    if not read.spans and not read.refused:
        read.refused.append("it has no spans")
    return read
