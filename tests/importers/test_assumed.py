"""What an import reads of what sources write in several ways, and what it says where it cannot."""

from pathlib import Path

import msgspec
import pytest

from tests.cli.support import Call

ASKED = {"role": "user", "content": "hello"}


def imported(call: Call, folder: Path, text: str) -> str:
    """What the command says of a file of this text."""
    file = folder / "chats.jsonl"
    file.write_text(text)
    return call("import", "chat-jsonl", file).err


@pytest.mark.parametrize(
    "said",
    [
        "2025-01-01T00:00:00Z",
        "2025-01-01T01:00:00+01:00",
        1735689600,
        1735689600000,
        "1735689600.0",
    ],
)
def test_a_time_is_read_however_it_is_written(call: Call, tmp_path: Path, said: str | float):
    """ISO 8601 with its zone, seconds, milliseconds: one moment."""
    record = {"messages": [ASKED | {"timestamp": said}]}
    assert imported(call, tmp_path, msgspec.json.encode(record).decode()) == ""
    (row,) = call(*("sql", "--json", "SELECT happened_at::VARCHAR AS at FROM messages")).lines[:1]
    assert row["at"] == "2025-01-01 00:00:00"


@pytest.mark.parametrize("said", ["yesterday", "12:30", 7, "2025-13-01", "1e400", -5])
def test_what_is_no_time_is_an_error(call: Call, tmp_path: Path, said: str | float):
    """It would stand as the time of the import."""
    record = {"messages": [ASKED, ASKED | {"timestamp": said}]}
    told = imported(call, tmp_path, msgspec.json.encode(record).decode())
    assert f"messages[1].timestamp: '{said}' is no time; give ISO 8601" in told
    assert call("runs", "--json").lines == []


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ('[{"messages": []}]', "jq -c '.[]' FILE"),
        ('{\n  "messages": [\n  ]\n}\n', "jq -c . FILE"),
        ('{"messages": [], "outcome": {"reward": NaN}}', "NaN and Infinity are no JSON"),
        ('{"messages": [], "outcom": {"reward": 1}}', "did you mean 'outcome'?"),
    ],
)
def test_a_file_that_is_nearly_right_is_told_what_to_do(
    call: Call, tmp_path: Path, text: str, remedy: str
):
    """One sentence, with the remedy; nothing is written."""
    told = imported(call, tmp_path, text)
    assert told.count(remedy) == 1
    assert call("runs", "--json").lines == []


def test_a_record_names_its_model(call: Call, tmp_path: Path):
    """It is the run's label `model`; said otherwise by a label it is refused."""
    record = {"messages": [ASKED], "model": "gpt-4o-2024-08-06"}
    assert imported(call, tmp_path, msgspec.json.encode(record).decode()) == ""
    (run,) = call("runs", "--json").lines
    assert run["labels"]["model"] == "gpt-4o-2024-08-06"
    twice = record | {"labels": {"model": "another"}}
    assert "say it once" in imported(call, tmp_path, msgspec.json.encode(twice).decode())
