"""`HANSARD_REDACT`: secrets are kept out of the record, whatever writes."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hansard
from hansard.domain.errors import BadValue
from hansard.settings import SettingsError
from tests.cli.support import Call
from tests.cli.test_up import up
from tests.privacy.operations import SECRET, stored_secrets

ROLE = """
[roles.writer]
about = "Writes."
sees = [{ name = "its own work", roles = ["writer"] }]
may = { tools = ["*"], kinds = ["message.*"] }
"""


@pytest.fixture
def redact(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the setting, in this environment."""
    variables = {"HANSARD_REDACT": "api-key=THE_KEY", "THE_KEY": SECRET}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return variables


def _late(amount: int) -> str:
    raise TimeoutError(str(amount))


@pytest.mark.later
def test_a_program_and_a_command_keep_out_what_the_setting_names(
    tmp_path: Path, redact: dict[str, str], shell: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None uses `redact=`: neither the sync client nor a command nor a fork of the program."""
    monkeypatch.setenv("HANSARD_DATA_DIR", str(tmp_path))
    with hansard.connect("lab") as record, record.run("w", run="r") as session:
        session.message("user", f"my key is {SECRET}")
        session.tool(name="send", effects="once")(lambda to: to)("ann")
    for run in "ab":
        with (
            pytest.raises(TimeoutError),
            hansard.connect("lab") as record,
            record.run("w", run=run) as session,
        ):
            session.tool(name="pay", effects="once")(_late)(1)
    with hansard.connect("lab") as record:
        record.prompts.add("p", "Be brief.")
    killed = "import hansard, os; record = hansard.connect('lab')\n"
    killed += "runs = [record.run('w', run=run) for run in 'def']\n"
    killed += "sessions = [run.__enter__() for run in runs]\nos._exit(0)"
    subprocess.run([sys.executable, "-c", killed], check=True, timeout=120)
    because = ("--reason", f"rotated {SECRET}")
    for words in (
        ("run", "settle", "a", "agent#1", "--happened", f"got {SECRET}", *because),
        ("run", "settle", "b", "agent#1", "--did-not-happen", *because),
        ("run", "finish", "d", *because),
        ("run", "finish", "e", "--failed", f"for {SECRET}"),
        ("run", "cancel", "f", *because),
        ("run", "score", "r", "reward=1", *because),
        ("prompt", "give-feedback", "p@1", f"less {SECRET}"),
        ("prompt", "alias", "p@1", "production", *because),
    ):
        result = shell(*words, **redact, HANSARD_DATA_DIR=str(tmp_path))
        assert result.code == 0, (words, result.err)
        assert SECRET not in result.out + result.err
    result = shell("runs", HANSARD_REDACT="api-key=NOT_SET", HANSARD_DATA_DIR=str(tmp_path))
    assert result.code == 2
    assert "NOT_SET" in result.err
    with hansard.connect("lab") as record:
        [row] = record.sql("SELECT data::VARCHAR FROM events WHERE type LIKE 'message%'").rows
        assert "<secret:api-key>" in row[0]
    assert stored_secrets(tmp_path) == []


@pytest.mark.thorough(quick="test_a_program_and_a_command_keep_out_what_the_setting_names")
def test_the_service_keeps_out_what_its_own_setting_names(tmp_path: Path, shell: Call) -> None:
    """A restricted agent that redacts nothing sends a secret of the service's."""
    home, file = tmp_path / "data", tmp_path / "ada.json"
    (tmp_path / "roles.toml").write_text(ROLE)
    with up(home, "--json", HANSARD_REDACT="api-key=THE_KEY", THE_KEY=SECRET) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["service"]
        for words in (
            ("roles", "apply", str(tmp_path / "roles.toml")),
            ("credentials", "writer", "--name", "ada", "-o", str(file)),
        ):
            result = shell(*words, HANSARD_DATA_DIR=str(home))
            assert result.code == 0, result.err
        with hansard.connect(credentials=file) as ada, ada.run("w", run="r") as session:
            session.message("user", f"my key is {SECRET}")
        with hansard.connect("lab", data_dir=home) as record:
            [row] = record.sql("SELECT data::VARCHAR FROM events WHERE type LIKE 'message%'").rows
            assert "<secret:api-key>" in row[0]
    assert stored_secrets(home) == []


def test_a_setting_that_cannot_be_taken_is_named(tmp_path, redact, monkeypatch):
    """A variable that is not set, a name that a program gives another secret."""
    with pytest.raises(BadValue, match=re.escape("HANSARD_REDACT")):
        hansard.connect("lab", data_dir=tmp_path, redact={"api-key": "another secret"})
    monkeypatch.delenv("THE_KEY")
    with pytest.raises(SettingsError, match="THE_KEY"):
        hansard.connect("lab", data_dir=tmp_path)
    assert redact
