"""No operation of a restricted agent sends a secret to the service."""

from __future__ import annotations

import pytest

from tests.privacy.operations import REDACT, SECRET, Place, targets, tried
from tests.service.support import requests_sent

pytestmark = pytest.mark.slow


def test_no_operation_of_a_restricted_agent_sends_a_secret(house, monkeypatch, tmp_path):
    """No request of a restricted agent's client contains a secret, for any operation.

    In a quick run the other half of the arguments is in privacy/test_tools.py.
    """
    with house.trusted() as plain:
        place = Place(plain, tmp_path, by="ada")
        with house.connect(**REDACT) as record:
            sent = requests_sent(monkeypatch)
            wrong: list[str] = []
            for target, reached in targets(record).items():
                wrong += tried(place, target, reached, 0)
        for each in place.waiting:
            each.join()
    wrong += [repr(each[:300]) for each in sent if SECRET.encode() in each]
    assert sent
    assert not wrong, "\n".join(wrong)
