"""JSONTestSuite as payloads: the values of JSON parsers are recorded exactly or refused."""

import json

import msgspec
import pytest

import hansard
from hansard.domain import values
from hansard.domain.errors import BadValue
from tests.domain.test_values import same

pytestmark = pytest.mark.real

FILES = 90
"""Least number of files of the suite; fewer means that the wrong folder was read."""


@pytest.fixture(scope="module")
def suite(real_data):
    """Return the files of JSONTestSuite by name."""
    folder = real_data / "json-adversarial"
    files = {path.name: path.read_bytes() for path in sorted(folder.rglob("test_*/*.json"))}
    assert len(files) >= FILES
    return files


def _parsed(raw):
    """Return the value of a file by Python's lenient parser; None where it fails."""
    try:
        return [json.loads(raw)]
    except (ValueError, RecursionError):
        return None


def test_every_parsed_value_comes_back_exactly_or_is_refused(suite):
    """Each parsed value is recorded exactly or refused with BadValue."""
    refused = []
    for name, raw in suite.items():
        parsed = _parsed(raw)
        if parsed is None:
            continue
        try:
            plain = values.plain(parsed[0])
        except BadValue as error:
            refused.append((name, error.fact))
            continue
        assert same(values.load(values.dump(plain)), parsed[0]), name
    assert not [name for name, _ in refused if name.startswith("y_")]
    assert all("surrogate" in fact or "nested deeper" in fact for _, fact in refused)


def test_raw_files_are_payloads_like_any_other(suite):
    """The bytes and texts of every file come back exactly."""
    for name, raw in suite.items():
        assert values.load(values.dump(values.plain(raw))) == raw, name
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            continue
        assert values.load(values.dump(values.plain(text))) == text, name


def test_forged_records_are_corrupt_or_plain(suite):
    """Forged stored values are read by the rules of JSON, or refused by name."""
    for name, raw in suite.items():
        try:
            loaded = values.load(raw)
        except (BadValue, msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            assert not name.startswith("y_") or b'"$' in raw
            continue
        assert not name.startswith("n_"), name
        assert loaded is not NotImplemented


def test_all_of_it_through_a_recorded_tool(suite, data_dir, workspace):
    """Each value and its bytes pass a recorded tool, live and in a strict replay."""
    parsed = {name: _parsed(raw) for name, raw in suite.items()}
    with hansard.connect(workspace, data_dir=data_dir) as record:
        ran: list[bytes] = []
        count = 0
        for mode in (None, "strict"):
            with record.run("w", run="r", mode=mode) as session:

                @session.tool(effects="pure")
                def echo(value: object, raw: bytes) -> list[object]:
                    ran.append(raw)
                    return [value, raw]

                count = 0
                for name, raw in suite.items():
                    value = (parsed[name] or [None])[0]
                    try:
                        values.plain(value)
                    except BadValue:
                        with pytest.raises(BadValue):
                            echo(value, raw)
                        continue
                    assert same(echo(value, raw), [value, raw]), name
                    count += 1
        assert len(record.state("r").agents["agent"].steps) == count == len(ran)
