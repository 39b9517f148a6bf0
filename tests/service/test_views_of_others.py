"""A role permitted to see another's view sees exactly that."""

from typing import Any

import msgspec
import pytest

import hansard
from hansard.agents.errors import RoleRefused
from hansard.bus.errors import NotFound
from tests.service.support import House

pytestmark = pytest.mark.slow

ROLES = """
[roles.writer]
may = { kinds = ["message.*"], view = ["boss"] }
[[roles.writer.sees]]
name = "what writers say, and findings"
kinds = ["message.*", "board.*"]
roles = ["writer"]
[[roles.writer.masks]]
name = "in short"
kinds = ["message.added"]
fields = ["content"]
how = "truncate"
characters = 5
[roles.boss]
clearance = "secret"
sees = [{ name = "all", kinds = ["**"] }]
may = { kinds = ["**"], view = ["*"] }
[roles.reviewer]
sees = [{ name = "its own work", roles = ["reviewer"] }]
may = { view = ["writer", "boss"] }
"""


def seen(record: Any, run: str, **options: Any) -> bytes:
    """Return a view's bytes as sent."""
    return msgspec.json.encode(record.roles.view(run, **options))


def test_it_is_what_that_role_is_shown(house: House) -> None:
    """A view of another role is byte for byte its own; unnamed and higher roles are refused."""
    house.apply(ROLES)
    with house.trusted() as record:
        with record.run("w", run="r1", agent="wil", role="writer") as wil:
            wil.message("user", "a long story")
            wil.message("user", "its end")
            wil.message("user", "a secret story", label="secret")
        with record.run("w", run="hidden", agent="eve", role="boss") as eve:
            eve.message("user", "to nobody")
    with house.connect("wil", "writer") as wil, house.connect("rob", "reviewer") as rob:
        whole = seen(wil, "r1")
        assert seen(rob, "r1", role="writer") == whole != seen(wil, "r1", at=first(wil))
        assert seen(rob, "r1", role="writer", at=first(wil)) == seen(wil, "r1", at=first(wil))
        assert b"a sec" not in whole
        for run in ("r1", "hidden", "none"):
            with pytest.raises(RoleRefused, match="cleared for secret"):
                rob.roles.view(run, role="boss")
            with pytest.raises(RoleRefused, match=r'view = \["reader"\]'):
                rob.roles.view(run, role="reader")
        for run in ("hidden", "none"):
            with pytest.raises(NotFound) as no:
                rob.roles.view(run, role="writer")
            assert str(no.value).replace(run, "") == str(not_found(wil, run)).replace(run, "")
        with pytest.raises(NotFound):
            rob.roles.view("r1")
        assert rob.roles.viewable() == ["reviewer", "writer"]
        assert wil.roles.viewable() == ["writer"]
    with house.connect("eve", "boss") as eve:
        assert eve.roles.viewable() == ["boss", "reviewer", "writer"]
        assert seen(eve, "r1", role="writer") == whole
        assert b"a secret story" in seen(eve, "r1")
    served = who_was_served(house)
    assert served.count(("rob", "writer")) == 2
    assert ("eve", "writer") in served


def first(record: Any) -> str:
    """Return the first event that a role is shown."""
    return str(record.roles.view("r1").events[0][1].id)


def not_found(record: Any, run: str) -> NotFound:
    """Return the role's own error for a run that it is not shown."""
    with pytest.raises(NotFound) as no:
        record.roles.view(run)
    return no.value


def who_was_served(house: House) -> list[tuple[str, str]]:
    """Return the readers of views, each with the role viewed."""
    with hansard.connect(house.workspace, data_dir=house.data_dir) as record:
        return list(record.sql("SELECT shown_to, role FROM views_served").rows)
