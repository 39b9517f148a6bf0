"""Files of every chat format as runs, one after the other; what is no run is a reason."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hansard.agents.importers import _files, devtools, tau
from hansard.agents.importers.chat import CHAT_JSONL, ChatRun, Given, from_chat, unknown_field
from hansard.agents.importers.report import Watcher
from hansard.domain.errors import CallerError

EVENTS = "events"

SEE = "docs/chat-jsonl.md has the fields"

Found = tuple[int, ChatRun | tau.Claims | str]
"""The number of a record, from 1, and its run or claims, or why it is neither."""

_decode = msgspec.json.Decoder().decode
_taus = msgspec.json.Decoder(list[msgspec.Raw])
_tau2 = msgspec.json.Decoder(tau.Tau2File)


def records(format_: str, path: Path | None, given: Given, watcher: Watcher) -> Iterator[Found]:
    """A file's records (standard input's for None). Raises OSError."""
    return SOURCES[format_](path, given, watcher)


def _chat_jsonl(path: Path | None, given: Given, watcher: Watcher) -> Generator[Found]:
    with _files.opened(path) as file:
        head = file.peek()  # type: ignore[attr-defined]  # every binary file here is buffered
        is_first = True
        for line in _files.lines(file):
            watcher.read(line.size)
            if line.data is None:
                limit = f"{_files.LINE_BYTES_MAX:,}"
                yield line.number, f"the line has {line.size:,} bytes, the limit is {limit}"
                is_first = False
            elif line.data:
                found = _run(line.data, lambda raw: from_chat(raw, given), SEE)
                if is_first and isinstance(found, str):
                    hint = _hint(head, CHAT_JSONL) or _not_lines(head, line.data)
                    if hint:
                        yield line.number, found + hint
                        return
                yield line.number, found
                is_first = False
        if is_first:
            yield 1, "the file has no records"


def _tau_bench(path: Path | None, given: Given, watcher: Watcher) -> Generator[Found]:
    with _files.document(path) as data:
        try:
            elements = _taus.decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            yield 1, _no_document(data, error, tau.TAU_BENCH)
            return
        yield from _each(elements, lambda raw: tau.from_tau(raw, given), data, watcher)


def _tau2_bench(path: Path | None, given: Given, watcher: Watcher) -> Generator[Found]:
    with _files.document(path) as data:
        try:
            whole = _tau2.decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            yield 1, _no_document(data, error, tau.TAU2_BENCH)
            return
        if whole.results is not None:
            yield 1, _claims(whole.results, given)
        if whole.simulations is msgspec.UNSET:
            watcher.read(len(data))
            if whole.results is None:
                yield (
                    1,
                    f"it is not a {tau.TAU2_BENCH} file: it has neither simulations nor results",
                )
            return
        labels = tau.labels_of_file(whole.info)
        yield from _each(
            whole.simulations, lambda raw: tau.from_tau2(raw, given, labels), data, watcher
        )


def _claims(results: dict[str, Any], given: Given) -> tau.Claims | str:
    """Return what a submission claims, or why that is of no use."""
    if not given.experiment:
        return "its results are claims about an arm of an experiment: give --experiment and --arm"
    try:
        return tau.claims_of(results)
    except CallerError as error:
        return str(error)


def _devtools(path: Path | None, given: Given, watcher: Watcher) -> Generator[Found]:
    with _files.document(path) as data:
        watcher.read(len(data))
        if not len(data):
            yield 1, "the file is empty"
            return
        if len(data) > devtools.FILE_BYTES_MAX:
            limit = f"{devtools.FILE_BYTES_MAX:,}"
            yield 1, f"the recording has {len(data):,} bytes, the limit is {limit}"
            return
        found = _run(
            msgspec.Raw(bytes(data[: len(data)])),
            lambda raw: devtools.from_devtools(raw, given),
            "it is no recording of Chrome DevTools' Recorder: export it as JSON",
        )
        if isinstance(found, str):
            found += _hint(bytes(data[: _files.PIECE_BYTES]), devtools.DEVTOOLS)
        yield 1, found


SOURCES: Mapping[str, Callable[[Path | None, Given, Watcher], Iterator[Found]]] = {
    CHAT_JSONL: _chat_jsonl,
    tau.TAU_BENCH: _tau_bench,
    tau.TAU2_BENCH: _tau2_bench,
    devtools.DEVTOOLS: _devtools,
}
"""By the name of the format."""


def _each(
    elements: list[msgspec.Raw],
    convert: Callable[[Any], ChatRun],
    data: _files.Document,
    watcher: Watcher,
) -> Iterator[Found]:
    left = len(data)
    for number, element in enumerate(elements, 1):
        size = len(memoryview(element))
        watcher.read(size)
        left -= size
        yield number, _run(element, convert, "it is no run of this format")
    watcher.read(left)
    if not elements:
        yield 1, "the file has no runs"


def _run(
    data: bytes | msgspec.Raw, convert: Callable[[Any], ChatRun], remedy: str
) -> ChatRun | str:
    """A record as a run, or why it is none."""
    try:
        raw = _decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return _files.why_not_json(data, error)
    try:
        return convert(raw)
    except msgspec.ValidationError as error:
        return f"{error}; {unknown_field(error)}{remedy}"
    except CallerError as error:
        return str(error)
    except RecursionError as error:
        return _files.why_not_json(data, error)


def _no_document(data: _files.Document, error: Exception, format_: str) -> str:
    """Why a file is not the document of a format."""
    if not len(data):
        return "the file is empty"
    if isinstance(error, msgspec.ValidationError):
        reason = f"it is not a {format_} file ({error})"
    else:
        reason = _files.why_not_json(data, error)
    head = bytes(data[: _files.PIECE_BYTES])
    return reason + (_hint(head, format_) or _no_list(head, format_))


def _no_list(head: bytes, format_: str) -> str:
    """What to do with a list where one document of tau2-bench is wanted."""
    if format_ != tau.TAU2_BENCH or not head.removeprefix(_files.BOM).lstrip().startswith(b"["):
        return ""
    if b'"simulations"' in head or b'"num_trials"' in head:
        return "; it is a list of such files: write each to one of its own, such as jq '.[0]' FILE"
    return "; it is a list of simulations: jq '{simulations: .}' FILE makes a file of them"


def _hint(head: bytes, format_: str) -> str:
    other = looks_like(head)
    if other in (None, format_):
        return ""
    return f"; it looks like {other}: use 'hansard import {other}'"


def _not_lines(head: bytes, first: bytes) -> str:
    """What to do with JSON that is not one record a line."""
    begun = head.removeprefix(_files.BOM).lstrip(_files.BLANKS)
    if begun.startswith(b"["):
        return "; it is a list, and is to be one record a line: jq -c '.[]' FILE"
    if begun.startswith(b"{") and not _is_json(first):
        return "; if its records stand on several lines, write each on one: jq -c . FILE"
    return ""


def _is_json(line: bytes) -> bool:
    """Whether a line says something whole, or is wrong in another way than by its end."""
    try:
        _decode(line)
    except msgspec.DecodeError as error:
        return "truncated" not in str(error)
    except (RecursionError, UnicodeDecodeError):
        return True
    return True


def looks_like(head: bytes) -> str | None:
    """The format that the begin of a file seems to have."""
    head = head.removeprefix(_files.BOM).lstrip(_files.BLANKS)
    if head.startswith(b"["):
        return tau.TAU_BENCH if b'"traj"' in head else None
    first = head.partition(b"\n")[0]
    for mark, format_ in _MARKS:
        if mark in first:
            return format_
    if head.startswith(b"{") and (b'"simulations"' in head or b'"num_trials"' in head):
        return tau.TAU2_BENCH
    return None


_MARKS = (
    (b'"hansard-events"', EVENTS),
    (b'"simulations"', tau.TAU2_BENCH),
    (b'"messages"', CHAT_JSONL),
)
"""What the first line of a file holds that is of one format and no other."""
