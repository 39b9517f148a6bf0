"""Formats are recognised by a file's beginning; each has an importer or a conversion."""

import gzip
import json
import os
import subprocess
import sys
import threading
import zipfile

import pytest

from hansard.agents.exchange import files
from hansard.agents.exchange.files import HEAD_BYTES
from hansard.ext.importers.sources import FORMATS, NAMES, READERS, SEE, UNKNOWN, recognised
from tests.importers.support import chat, log_of, says, written
from tests.importers.test_atif import TRAJECTORY
from tests.importers.test_claude_code import SESSION
from tests.importers.test_command import TAU, TAU2
from tests.importers.test_inspect_log import CORRECT

pytestmark = pytest.mark.later

GOOD = chat(says("user", "hello"))


def lines(*records: object) -> bytes:
    """JSON lines."""
    return "".join(json.dumps(record) + "\n" for record in records).encode()


SPAN = {"name": "x", "trace_id": "t", "attributes": {"openinference.span.kind": "LLM"}}

IMPORTED = [
    ("inspect", CORRECT.read_bytes()),
    ("inspect", lines({"version": 2, "status": "success", "eval": {}, "samples": []})),
    ("claude-code", lines(*SESSION)),
    ("claude-code", lines(SESSION[1])),
    ("atif", lines(TRAJECTORY)),
    ("atif", json.dumps(TRAJECTORY, indent=2).encode()),
    ("tau-bench", lines(TAU)),
    ("tau2-bench", lines(TAU2)),
    ("tau2-bench", lines({"model_name": "m", "submission_date": "d", "results": {}})),
    ("devtools", lines({"title": "t", "steps": []})),
    ("chat-jsonl", lines(GOOD, GOOD)),
    ("chat-jsonl", b"\xef\xbb\xbf\n" + lines(GOOD)),
    ("events", b'{"kind":"hansard-events","n":1,"format":1}\n'),
    ("otlp", lines({"resourceSpans": [{"scopeSpans": []}]})),
    ("otlp", lines({"name": "n", "context": {}, "parent_id": None, "attributes": {}})),
    ("openinference", lines(SPAN, SPAN)),
    ("openinference", lines({"context": {"trace_id": "t"}, "span_kind": "LLM"})),
    ("langfuse", lines({"trace": {}, "observations": []})),
    ("langfuse", lines([{"id": "1", "projectId": "p", "htmlPath": "/x", "scores": []}])),
]

MAPPED = [
    ("gzip", gzip.compress(lines(GOOD), mtime=0)),
    ("a ZIP archive", b"PK\x03\x04" + bytes(22) + b"\x05\x00\x00\x00hello"),
    ("results of promptfoo", lines({"evalId": "e", "results": {"version": 3}, "config": {}})),
    ("results of lm-eval", lines({"doc_id": 0, "doc": {}, "target": "x", "resps": [["y"]]})),
    ("results of lm-eval", lines({"results": {}, "configs": {}, "versions": {}, "n-shot": {}})),
    (
        "a file of OpenAI's Batch API",
        lines({"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {}}),
    ),
    (
        "a file of OpenAI's Batch API",
        lines({"id": "b", "custom_id": "1", "response": {"status_code": 200}, "error": None}),
    ),
    ("a table (CSV)", b"question,answer,score\nwhat?,that,1\nwho?,him,0\n"),
    ("a table (CSV)", b"id\tprompt text\n1\thello\n"),
]


@pytest.mark.parametrize(("name", "data"), IMPORTED, ids=range(len(IMPORTED)))
def test_what_has_an_importer_is_recognised(name, data):
    """A format is recognised by the keys of its objects, not by line breaks or name."""
    importer = recognised(data)
    assert importer is not None
    assert importer.name == name
    assert importer.sentence == f"it looks like {name}: use 'hansard import {name}'"


@pytest.mark.parametrize(("name", "data"), MAPPED, ids=range(len(MAPPED)))
@pytest.mark.parametrize("format_", [None, "chat-jsonl", "tau2-bench", "atif"])
def test_what_has_none_is_reported_once_a_file_with_the_way_to_map_it(
    bring_in, home, workspace, tmp_path, name, data, format_
):
    """A format without an importer yields one sentence with the remedy; nothing is recorded."""
    path = tmp_path / "file"
    path.write_bytes(data * (1 if data[:1] == b"\x1f" else 3))
    result = bring_in(*([format_] if format_ else []), path)
    [line] = result.err.splitlines()
    assert line.startswith(f"{path}:1: ")
    assert f"it looks like {name}" in line
    assert "which has no importer: " in line
    assert ("as a line of chat-jsonl" in line and line.endswith(SEE)) or name in {
        "gzip",
        "a ZIP archive",
    }
    assert (result.code, log_of(home, workspace)) == (1, [])


def test_an_empty_file_is_called_empty(bring_in, tmp_path):
    """Without a format, a regular file of no bytes is empty, and so are formats read whole."""
    path = tmp_path / "file"
    path.touch()
    for format_ in ([], ["devtools"], ["tau-bench"]):
        result = bring_in(*format_, path)
        assert result.err == f"{path}:1: the file is empty: give one that holds recorded runs\n"
        assert result.code == 1


@pytest.mark.parametrize("data", [b"hello\nworld\n", b'{"a": 1}', b"[[1, 2]]", b"\x00" * 90])
def test_an_unknown_format_is_refused(bring_in, tmp_path, data):
    """A file of unknown format needs a named format."""
    path = tmp_path / "file"
    path.write_bytes(data)
    result = bring_in(path)
    assert result.err == f"{path}:1: {UNKNOWN}\n"
    assert result.code == 1


def test_a_named_pipe_is_not_recognised_but_read(bring_in, tmp_path):
    """A pipe's bytes come only once, so its format has to be named."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert UNKNOWN in bring_in(pipe).err
    writer = threading.Thread(target=pipe.write_bytes, args=[lines(GOOD)])
    writer.start()
    assert bring_in("chat-jsonl", pipe).out.startswith("1 run")
    writer.join()


def test_files_of_several_formats_are_imported_at_once(bring_in, tmp_path):
    """Each file has its own importer; unknown files are reported, and the sums are of all."""
    chats = written(tmp_path / "a", [GOOD])
    tau = tmp_path / "b"
    tau.write_text(json.dumps([TAU[0]]))
    none = tmp_path / "c"
    none.write_text("hello")
    result = bring_in(chats, tau, none, CORRECT, "--json")
    *bad, summary = result.lines
    assert [(line["file"], line["line"]) for line in bad] == [(str(none), 1)]
    assert (summary["runs"], summary["bad"], result.code) == (5, 1, 1)
    result = bring_in(chats, none, tau, "--strict")
    assert result.out.startswith("0 runs")


def test_a_name_that_is_neither_file_nor_format_is_reported_with_the_formats(bring_in):
    """An unknown name is reported with the formats, since it may be a misspelt one."""
    result = bring_in("tau")
    assert result.code == 2
    assert "file 'tau' was not found" in result.err
    assert ", ".join(NAMES) in result.err
    result = bring_in("inspect")
    assert result.code == 2
    assert "no file is named" in result.err


def test_every_format_can_be_distinguished_from_the_others():
    """Format names are unique, and each has a reader, the slice of spans, or a conversion."""
    assert len({each.name for each in FORMATS}) == len(FORMATS)
    assert {
        each.name
        for each in FORMATS
        if each.name not in READERS and not each.way and not each.of_spans
    } == {"events"}


# ---------------------------------------------------------------- doubled keys


@pytest.mark.parametrize(
    ("format_", "whole"),
    [
        ("chat-jsonl", b'{"messages": [], "labels": {"a": "1", "a": "2"}}'),
        ("tau-bench", b'[{"task_id": 1, "traj": [], "info": {"a": 1, "a": 2}}]'),
        ("tau2-bench", b'{"simulations": [{"id": "1", "a": 1, "a": 2}]}'),
        ("tau2-bench", b'{"info": {"a": 1, "a": 2}, "simulations": []}'),
        ("tau2-bench", b'{"a": 1, "simulations": [], "a": 2}'),
        ("devtools", b'{"title": "t", "steps": [], "a": 1, "a": 2}'),
        ("atif", b'{"schema_version": "ATIF-v1.8", "a": {"a": 1, "a": 2}}'),
        ("inspect", b'{"eval": {"a": 1, "a": 2}, "samples": []}'),
        ("claude-code", b'{"type": "user", "message": {"a": 1, "a": 2}}'),
    ],
)
def test_a_doubled_key_is_an_error(bring_in, home, workspace, tmp_path, format_, whole):
    """A key that occurs twice is an error that names it, and nothing is imported."""
    path = tmp_path / "file"
    path.write_bytes(whole)
    result = bring_in(format_, path)
    assert f"{path}:1: " in result.err
    assert "the key 'a' is there twice" in result.err
    assert (result.code, log_of(home, workspace)) == (1, [])


# ---------------------------------------------------------------- documents in pieces


@pytest.mark.parametrize("piece", [3, 5, 7, 64])
def test_a_document_is_taken_apart_wherever_its_pieces_end(tmp_path, monkeypatch, piece):
    """A document is split rightly wherever its pieces end: in texts, escapes, numbers, blanks."""
    monkeypatch.setattr(files, "PIECE_BYTES", piece)
    runs = [{"a": '}]"\\'}, [1, [2]], 'x\\"[', 1.5, True, None, {}, []]
    whole = {"first": {"{": [1]}, "runs": runs, "last": -17}
    path = tmp_path / "file"
    path.write_bytes(files.BOM + json.dumps(whole, indent=1).encode())
    with files.seekable(path) as file:
        outline = files.outline(file, "runs")
        assert outline.elements is not None
        parts = [json.loads(files.part(file, span)) for span in outline.elements]
        last = files.part(file, outline.members["last"])
    assert (parts, last) == (runs, b"-17")
    assert list(outline.members) == ["first", "runs", "last"]


@pytest.mark.parametrize(
    "data",
    [b"{", b"[1,]", b"[1 2]", b'{"a" 1}', b'{"a": 1,}', b"[1]]", b'["a', b"[[1]", b"7", b"[,]"],
)
def test_a_document_that_is_broken_is_none(tmp_path, data):
    """An invalid document is refused."""
    path = tmp_path / "file"
    path.write_bytes(data)
    with files.seekable(path) as file, pytest.raises(files.NotADocument, match="it is not JSON"):
        files.outline(file)


PROGRAM = """
import sys
from pathlib import Path
from hansard.ext.importers.chat import ChatRun, ImportDefaults
from hansard.ext.importers.sources import records

class Nobody:
    def read(self, count): pass
    def bad(self, bad): pass

found = records(sys.argv[1], Path(sys.argv[2]), ImportDefaults(), Nobody())
print(sum(isinstance(run, ChatRun) for _, run in found))
for line in open('/proc/self/status'):
    if line.startswith('VmHWM'):
        print(line.split()[1])
"""


def peak(format_: str, path: object) -> tuple[int, int]:
    """Return how many runs a file has, and the peak memory of reading them, in KiB."""
    argv = [sys.executable, "-c", PROGRAM, format_, str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)
    runs, kib = done.stdout.split()
    return int(runs), int(kib)


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("format_", ["tau2-bench", "inspect"])
def test_memory_does_not_grow_with_the_file(tmp_path, format_):
    """40 times as many runs need the same memory, apart from their offsets."""
    text = "x" * 100_000
    usage = {"role": "user", "content": text}
    peaks = []
    for count in (10, 400):
        path = tmp_path / f"{count}.json"
        runs = [{"id": f"r{n}", "task_id": 1, "messages": [usage]} for n in range(count)]
        if format_ == "inspect":
            header = {"version": 2, "eval": {"task": "t", "model": "m"}}
            path.write_text(json.dumps({**header, "samples": runs}))
        else:
            path.write_text(json.dumps({"info": {}, "tasks": [text] * 9, "simulations": runs}))
        read, kib = peak(format_, path)
        assert read == count
        peaks.append(kib)
    assert peaks[1] - peaks[0] < 6 * 1_024


def test_the_begin_of_a_file_is_enough(tmp_path):
    """A header longer than the inspected part is recognised by the part."""
    tasks = [{"id": "x" * 1_000}] * (HEAD_BYTES // 500)
    whole = json.dumps({"info": {}, "tasks": tasks, "simulations": []}).encode()
    importer = recognised(whole)
    assert importer is not None
    assert importer.name == "tau2-bench"


def test_an_archive_that_is_no_log_is_named(tmp_path, bring_in):
    """A ZIP archive of another kind is reported as such."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "hello")
    assert "it looks like a ZIP archive" in bring_in(path).err
