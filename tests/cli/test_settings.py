"""Sources of settings: options, the environment, a file beside the record's folder."""

import os
from pathlib import Path

import pytest

from hansard.settings import SettingsError, load
from tests.cli.support import WORKSPACE, ran


@pytest.fixture
def below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory two below `project`, and no settings in the environment."""
    folder = tmp_path / "project" / "src" / "deep"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    for name in list(os.environ):
        if name.startswith("HANSARD_"):
            monkeypatch.delenv(name)
    return folder


def test_the_folder_is_looked_for_upward(below: Path, tmp_path: Path):
    """The nearest folder counts; without one, the working directory's."""
    assert load().data_dir == Path(".hansard")
    (tmp_path / ".hansard").mkdir()
    assert load().data_dir == tmp_path / ".hansard"
    (tmp_path / "project" / ".hansard").mkdir()
    assert load().data_dir == tmp_path / "project" / ".hansard"
    (below / ".hansard").mkdir()
    assert load().data_dir == Path(".hansard")


def test_what_is_named_is_not_looked_for(below: Path, tmp_path: Path, monkeypatch):
    """By an option or in the environment."""
    (tmp_path / "project" / ".hansard").mkdir()
    assert load(data_dir="there").data_dir == Path("there")
    monkeypatch.setenv("HANSARD_DATA_DIR", "elsewhere")
    assert load().data_dir == Path("elsewhere")


def test_a_file_is_below_the_environment_and_options(below: Path, tmp_path: Path, monkeypatch):
    """Its paths are relative to the file."""
    (tmp_path / "project" / "hansard.toml").write_text(
        'workspace = "lab"\ndata_dir = "record"\nnats_ca = "tls/ca.pem"\ndurability = "relaxed"\n'
    )
    config = load()
    assert (config.workspace, config.durability) == ("lab", "relaxed")
    assert config.data_dir == tmp_path / "project" / "record"
    assert config.nats_ca == str(tmp_path / "project" / "tls" / "ca.pem")
    monkeypatch.setenv("HANSARD_WORKSPACE", "env")
    assert load().workspace == "env"
    assert load(workspace="given").workspace == "given"
    assert load(workspace="given").durability == "relaxed"


def test_a_named_folder_brings_its_own_file(below: Path, tmp_path: Path):
    """And not the working directory's, which is of another record."""
    (tmp_path / "project" / "hansard.toml").write_text('workspace = "here"\n')
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "hansard.toml").write_text('workspace = "there"\n')
    assert load().workspace == "here"
    assert load(data_dir=tmp_path / "copy" / ".hansard").workspace == "there"
    assert load(data_dir=tmp_path / "other" / ".hansard").workspace == "default"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('workspce = "lab"', "sets 'workspce'.*did you mean 'workspace'"),
        ("workspace = 7", "sets 'workspace' to 7: give a text"),
        ("workspace = ", "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_taken_says_why(below: Path, tmp_path: Path, text: str, why: str):
    """With its path."""
    path = tmp_path / "project" / "hansard.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=why) as caught:
        load()
    assert str(path) in str(caught.value)


def test_nobody_elses_record_is_taken_from_above(below: Path, tmp_path: Path, monkeypatch):
    """A folder that a stranger put above the working directory would receive all events."""
    (tmp_path / "project" / ".hansard").mkdir()
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    with pytest.raises(SettingsError, match=r"belongs to another user.*--data-dir"):
        load()
    assert load(data_dir=tmp_path / "project" / ".hansard").workspace == "default"


def test_commands_name_the_record_in_use(home, runs, below, tmp_path, monkeypatch, capsys):
    """One line on stderr names a record found elsewhere by default; stdout is unchanged."""
    (tmp_path / "project" / ".hansard").symlink_to(home)
    result = ran(capsys, monkeypatch, ["-w", WORKSPACE, "runs", "--json"])
    assert result.code == 0
    assert len(result.lines) >= 5
    assert f"the record in {tmp_path / 'project' / '.hansard'}" in result.err


def test_commands_say_that_they_do_not_use_credentials(home, runs, below, monkeypatch, capsys):
    """A role's credentials in the environment do not restrict commands, as one line says."""
    monkeypatch.setenv("HANSARD_CREDENTIALS", "ada.json")
    result = ran(capsys, monkeypatch, ["--data-dir", home, "-w", WORKSPACE, "runs", "--json"])
    assert result.code == 0
    assert "HANSARD_CREDENTIALS (ada.json) is not used by commands" in result.err
