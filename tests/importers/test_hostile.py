"""Damaged and hostile files: a clear reason each, the good records around them, flat memory."""

import json
import subprocess
import sys

import pytest

from hansard.agents.exchange.files import BLANKS, RECORD_BYTES_MAX
from tests.cli.support import environment
from tests.importers.support import chat, made, runs_of, says

pytestmark = pytest.mark.later

GOOD = json.dumps(chat(says("user", "hello"))).encode()


def content(text: bytes) -> bytes:
    """Return a record whose only message's content is given as JSON."""
    return b'{"messages": [{"role": "user", "content": %b}]}' % text


HOSTILE = [
    pytest.param(b"[" * 100_000, "nested too deep", id="100,000 lists"),
    pytest.param(b'{"messages":' * 100_000, "nested too deep", id="100,000 objects"),
    pytest.param(content(b"[" * 100_000 + b"]" * 100_000), "nested too deep", id="deep content"),
    pytest.param(
        content(b"[" * 200 + b"]" * 200), "messages[0]: message[1]", id="deeper than a value may be"
    ),
    pytest.param(
        b'{"messages": [], "outcome": {"error": %b}}' % (b"[" * 500 + b"]" * 500),
        "nested too deep",
        id="deep error",
    ),
    pytest.param(
        b'{"messages": [], "outcome": {"error": %b}}' % (b"[" * 900 + b"]" * 900),
        "nested too deep",
        id="very deep error",
    ),
    pytest.param(content(b'"a\x00b"'), "not JSON", id="NUL in a text"),
    pytest.param(b"\x00" * 100, "not UTF-8 text", id="NULs"),
    pytest.param(content(b'"\xff\xfe"'), "not UTF-8", id="no UTF-8"),
    pytest.param(content(b'"\xed\xa0\x80"'), "not UTF-8", id="a surrogate in UTF-8"),
    pytest.param(content(b'"\\ud800"'), "half a surrogate pair", id="a high surrogate"),
    pytest.param(content(b'"\\udc00 x"'), "half a surrogate pair", id="a low surrogate"),
    pytest.param(content(b'"\\ude00\\ud83d"'), "half a surrogate pair", id="a pair turned round"),
    pytest.param(GOOD.decode().encode("utf-16"), "not UTF-8 text", id="UTF-16"),
    pytest.param(content(b"NaN"), "not JSON", id="NaN"),
    pytest.param(content(b"-Infinity"), "not JSON", id="infinity"),
    pytest.param(content(b"1e999"), "out of range", id="a float beyond floats"),
    pytest.param(content(b"1" * 5_000), "out of range", id="5,000 digits"),
    pytest.param(b'{"messages": [], "trial": %b}' % (b"9" * 30), "trial", id="a huge trial"),
    pytest.param(
        b'{"messages": [{"role": "user", "cost": %b}]}' % (b"9" * 400), "cost", id="a huge cost"
    ),
    pytest.param(
        b'{"messages": [{"role": "user", "timestamp": %b}]}' % (b"9" * 4_000),
        "timestamp",
        id="a huge timestamp",
    ),
    pytest.param(GOOD[:-9], "truncated", id="cut off"),
    pytest.param(GOOD[:10] + b"\x80" + GOOD[11:], "not", id="a flipped bit"),
    pytest.param(b'{"messages": {}}', "$.messages", id="messages that are no list"),
    pytest.param(b'{"messages": [[]]}', "$.messages[0]", id="a message that is no object"),
    pytest.param(b'{"messages": [], "wrkflow": "x"}', "wrkflow", id="a field nobody knows"),
    pytest.param(b'{"messages": [{"content": "x"}]}', "role", id="no role"),
    pytest.param(b'{"messages": [{"role": ""}]}', "messages[0]: message role", id="empty role"),
    pytest.param(b'{"messages": [], "roles": {"": "x"}}', "agent name", id="empty agent"),
    pytest.param(b'{"messages": [], "trial": 1.5}', "$.trial", id="half a trial"),
    pytest.param(b'{"messages": [], "agent": "%b"}' % (b"x" * 2_000), "1000", id="a long name"),
    pytest.param(b'{"messages": [], "agent": "a\\nb"}', "control characters", id="a line in it"),
    pytest.param(
        b'{"messages": [], "run": "%b"}' % (b"x" * 500_000), "run.started.v1", id="a long label"
    ),
    pytest.param(b"17", "Expected `object`", id="a number"),
    pytest.param(b"null", "Expected `object`", id="null"),
    pytest.param(b"{", "truncated", id="a brace"),
]


@pytest.mark.fast(cases=12, slow=0)
@pytest.mark.parametrize(("line", "reason"), HOSTILE)
def test_each_bad_line_has_a_clear_reason(bring_in, home, workspace, tmp_path, line, reason):
    """Each bad line is reported with its number, and the good lines are imported."""
    path = tmp_path / "chats.jsonl"
    path.write_bytes(GOOD + b"\n" + line.replace(b"\n", b"") + b"\n" + GOOD + b" ")
    result = bring_in("chat-jsonl", path)
    assert result.code == 1
    [message] = result.err.splitlines()
    assert message.startswith(f"{path}:2: ")
    assert reason in message
    assert len(message) < 400
    assert runs_of(home, workspace) == {made(json.loads(GOOD)).run}


@pytest.mark.fast(cases=12, slow=0)
@pytest.mark.parametrize(("line", "reason"), HOSTILE)
def test_a_bad_run_of_a_document_is_reported_by_its_number(bring_in, tmp_path, line, reason):
    """An error inside a run rejects that run; one of the document rejects the file."""
    path = tmp_path / "tau.json"
    good = b'{"task_id": 1, "traj": [], "reward": %d}'
    path.write_bytes(b"[" + good % 0 + b"," + line + b"," + good % 1 + b"]")
    result = bring_in("tau-bench", path)
    assert result.code == 1
    [message] = result.err.splitlines()
    whole = message.startswith(f"{path}:2: ")
    assert whole or message.startswith(f"{path}:1: ")
    assert result.out.startswith("2 runs" if whole else "0 runs")
    assert len(message) < 400


def test_a_line_may_begin_and_end_as_windows_has_it(bring_in, home, workspace, tmp_path):
    """Byte order marks, CRLF, blank lines and a missing last line break are accepted."""
    path = tmp_path / "chats.jsonl"
    other = json.dumps(chat(says("user", "é\u2028"), run="other")).encode()
    path.write_bytes(b"\xef\xbb\xbf" + GOOD + b"\r\n\r\n  \r\n\t" + other)
    result = bring_in("chat-jsonl", path)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("2 runs")


def test_a_document_may_begin_with_a_byte_order_mark(bring_in, tmp_path):
    """A tau-bench file may begin with a byte order mark."""
    path = tmp_path / "tau.json"
    path.write_bytes(b'\xef\xbb\xbf[{"task_id": 1, "traj": []}]')
    assert bring_in("tau-bench", path).out.startswith("1 run")


@pytest.mark.slow
def test_a_line_over_the_bound_is_passed_over_in_flat_memory(home, workspace, tmp_path):
    """A line of 300 MB is reported and skipped in flat memory; the next one is imported."""
    path = tmp_path / "chats.jsonl"
    size = 0
    with path.open("wb") as file:
        size += file.write(b'{"messages": [{"role": "user", "content": "')
        for _ in range(300):
            size += file.write(b"x" * 1_000_000)
        size += file.write(b'"}]}\n')
        file.write(GOOD + b"\n")
    program = (
        "import sys\n"
        "from hansard.cli import main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    for line in open('/proc/self/status'):\n"
        "        if line.startswith('VmHWM'):\n"
        "            print(line.strip(), file=sys.stderr)\n"
    )
    argv = ["-w", workspace, "import", "chat-jsonl", str(path)]
    done = subprocess.run(
        [sys.executable, "-c", program, *argv],
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    limit = f"{RECORD_BYTES_MAX:,}"
    message, peak = done.stderr.splitlines()
    assert message == f"{path}:1: the line has {size:,} bytes, the limit is {limit}"
    assert done.stdout.startswith("1 run")
    assert int(peak.split()[1]) < 220 * 1_024  # KiB: 64 MiB of a line once, and Python itself


def test_a_file_that_is_cut_off_loses_only_its_last_record(bring_in, tmp_path):
    """A file whose writer was killed: the last line is bad, all before it are imported."""
    path = tmp_path / "chats.jsonl"
    lines = [json.dumps(chat(run=n)) for n in range(4)]
    path.write_text("\n".join(lines)[:-20])
    result = bring_in("chat-jsonl", path)
    assert result.out.startswith("3 runs")
    assert f"{path}:4: it is not JSON (Input data was truncated)" in result.err


@pytest.mark.real
def test_the_json_test_suite_as_lines(bring_in, tmp_path, real_data):
    """Each file of the JSON test suite as a line is imported whole or reported."""
    files = sorted((real_data / "json-adversarial").rglob("*.json"))
    assert len(files) > 100
    lines = [file.read_bytes().replace(b"\n", b" ").replace(b"\r", b" ") for file in files]
    path = tmp_path / "suite.jsonl"
    path.write_bytes(GOOD + b"\n" + b"".join(line + b"\n" for line in lines) + GOOD)
    result = bring_in("chat-jsonl", path, "--json")
    *bad, summary = result.lines
    blank = {n for n, line in enumerate(lines, 2) if not line.strip(BLANKS)}
    assert {line["line"] for line in bad} == set(range(2, len(files) + 2)) - blank
    assert (summary["runs"], summary["commits"]) == (1, 3)
    by_file = {files[line["line"] - 2].name: line["reason"] for line in bad}
    wrong = [name for name, why in by_file.items() if name.startswith("y_") and "not JSON" in why]
    taken = [name for name, why in by_file.items() if name.startswith("n_") and "Expected" in why]
    assert (wrong, taken) == ([], [])


@pytest.mark.real
@pytest.mark.parametrize("format_", ["tau-bench", "tau2-bench", "chat-jsonl"])
def test_the_json_test_suite_as_files(bring_in, real_data, format_):
    """Each file of the JSON test suite is bad for one reason, and nothing is imported."""
    files = sorted((real_data / "json-adversarial").rglob("*.json"))
    result = bring_in(format_, *files, "--json")
    *bad, summary = result.lines
    assert result.code == 1
    assert {line["file"] for line in bad} == {str(file) for file in files}
    assert (summary["runs"], summary["commits"], summary["new"]) == (0, 0, 0)
