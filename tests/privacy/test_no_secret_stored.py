"""No operation of a trusted program stores a secret."""

from __future__ import annotations

import pytest

import hansard
from tests.privacy.operations import REDACT, SECRET, Place, stored_secrets, targets, tried

pytestmark = pytest.mark.slow


def test_no_operation_of_a_trusted_program_stores_a_secret(tmp_path, capfd):
    """A secret in any text of any operation is in no stored byte, output or error."""
    folder = tmp_path / "data"
    wrong: list[str] = []
    with (
        hansard.connect("lab", data_dir=folder) as plain,
        hansard.connect("lab", data_dir=folder, **REDACT) as record,
    ):
        place = Place(plain, tmp_path)
        for target, reached in targets(record, agent="a", role="r").items():
            wrong += tried(place, target, reached, 1)
        for each in place.waiting:
            each.join()
        record.sql("SELECT count(*) FROM events")
        wrong += stored_secrets(folder)
    wrong += stored_secrets(folder)
    output = "".join(capfd.readouterr())
    assert not wrong, "\n".join(wrong)
    assert SECRET not in output
