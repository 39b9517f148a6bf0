"""OTLP/HTTP in: `POST /v1/traces` and `/v1/logs`, in JSON or protobuf, plain or compressed.

An accepted span is on disk before it is answered. What cannot be accepted is counted in the answer,
as the protocol's partial success: exporters do not send it again.
"""

from __future__ import annotations

import asyncio
import importlib
import zlib
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.responses import Response

from hansard.client.listening import Call
from hansard.client.record import AsyncRecord
from hansard.domain.errors import ExtraMissing
from hansard.ext.otel import record as recording
from hansard.ext.otel.spans import Read, Unreadable, from_json, from_protobuf, proto

JSON, PROTOBUF = "application/json", "application/x-protobuf"

UNPACKED_BYTES_MAX = 64 * 1024 * 1024
"""Largest body after it is decompressed."""

ROOT_QUIET_S = 2.0
"""Seconds without a new span, after the root has arrived, in which a trace becomes a run."""

QUIET_S = 60.0
"""The same, while the root is missing."""

REASONS_MAX = 3
"""Most reasons of refused spans that an answer states; all are counted."""

_reads = asyncio.Semaphore(2)
"""Bodies that are decompressed and decoded at the same time: each may take ten times its size."""


async def traces(call: Call) -> Response:
    """Answer an `ExportTraceServiceRequest`."""
    return await _export(call, logs=False)


async def logs(call: Call) -> Response:
    """Answer an `ExportLogsServiceRequest`: records that name a span belong to its trace."""
    return await _export(call, logs=True)


async def _export(call: Call, *, logs: bool) -> Response:
    kind = call.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in (JSON, PROTOBUF):
        fact = f"content-type {kind!r:.80}: send {JSON} or {PROTOBUF}"
        return _status(JSON, HTTPStatus.UNSUPPORTED_MEDIA_TYPE, fact)
    try:
        async with _reads:
            read = await asyncio.to_thread(_read, call, kind, logs=logs)
    except Unreadable as error:
        return _status(kind, HTTPStatus.BAD_REQUEST, str(error))
    except ExtraMissing as error:
        return _status(JSON, HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"{error}; or send {JSON}")
    workspace = call.record.workspace
    built = await recording.record_spans(workspace, read.spans, read.logs)
    place = workspace.log.workspace
    _roots.update(((place, span.trace), None) for span in read.spans if not span.parent)
    for oldest in [*_roots][:-ROOTS_MAX]:
        del _roots[oldest]
    for trace in {each.trace for each in read.spans} | {each.trace for each in read.logs}:
        soon = ROOT_QUIET_S if (place, trace) in _roots else QUIET_S
        work = partial(recording.make_run, workspace, trace)
        call.later(f"run of trace {trace} in {place}", soon, work)
    _of_earlier(call)
    return _answer(kind, [*read.refused, *built.refused], logs=logs)


ROOTS_MAX = 10_000
"""Newest traces whose root is known to have arrived."""

_roots: dict[tuple[str, str], None] = {}


def _of_earlier(call: Call) -> None:
    """Have traces that an earlier process left become runs, once for each record."""
    if _looked.get(id(call.record)) is call.record:
        return
    _looked[id(call.record)] = call.record
    name = f"runs of earlier traces in {call.record.workspace.log.workspace}"
    call.later(name, QUIET_S, call.record.noun(recording.Traces).settle)


_looked: dict[int, AsyncRecord] = {}


def _read(call: Call, kind: str, *, logs: bool) -> Read:
    body = _unpacked(call.body, call.headers.get("content-encoding", "").strip().lower())
    return from_json(body) if kind == JSON else from_protobuf(body, logs=logs)


def _unpacked(body: bytes, encoding: str) -> bytes:
    """Return a body decompressed. Raises Unreadable if it is broken or too large."""
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "deflate"):
        raise Unreadable(f"content-encoding {encoding!r:.80}: send gzip, deflate or none")
    built = zlib.decompressobj(zlib.MAX_WBITS | 32)  # the header of either is recognised
    try:
        unpacked = built.decompress(body, UNPACKED_BYTES_MAX + 1)
    except zlib.error as error:
        raise Unreadable(f"the body is not valid {encoding} ({error})") from error
    if len(unpacked) > UNPACKED_BYTES_MAX:
        raise Unreadable(f"the body has more than {UNPACKED_BYTES_MAX:,} bytes unpacked: send less")
    if not built.eof:
        raise Unreadable(f"the body's {encoding} is cut off: send it whole")
    return unpacked


def _answer(kind: str, refused: list[str], *, logs: bool) -> Response:
    """Return the answer of an accepted request, with the number of parts that were refused."""
    reasons = "; ".join(dict.fromkeys(refused[:REASONS_MAX]))
    fields = {"rejectedLogRecords" if logs else "rejectedSpans": str(len(refused))}
    answer = {"partialSuccess": fields | {"errorMessage": reasons}} if refused else {}
    return _response(kind, HTTPStatus.OK, answer, "ServiceResponse", logs=logs)


def _response(
    kind: str, status: HTTPStatus, answer: dict[str, Any], which: str, *, logs: bool = False
) -> Response:
    """Return an answer in the form of its request: JSON, or that message of OTLP's services."""
    if kind == JSON:
        return Response(msgspec.json.encode(answer), status, media_type=JSON)
    json_format = importlib.import_module("google.protobuf.json_format")
    message = json_format.ParseDict(answer, proto(which, logs=logs)())
    return Response(message.SerializeToString(), status, media_type=PROTOBUF)


def _status(kind: str, status: HTTPStatus, fact: str) -> Response:
    """Return a failure as `google.rpc.Status`, in the form of the request."""
    if kind == JSON:
        return _response(kind, status, {"message": fact}, "")
    # the text of a partial success has the same number, 2, as that of a Status
    return _response(kind, status, {"errorMessage": fact}, "PartialSuccess")
