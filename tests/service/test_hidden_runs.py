"""A run of which a role is shown nothing is answered as one that does not exist."""

import msgspec
import pytest

from hansard.bus.portal import portal
from hansard.client.restricted.link import Link
from hansard.domain.steps import Verdict
from hansard.operations.declare import Ask
from hansard.operations.protocol.wire import Failed
from hansard.operations.session import OPERATIONS
from tests.service.support import House

RecordCancel = OPERATIONS["record.cancel"].request
RecordFinish = OPERATIONS["record.finish"].request
RecordReopen = OPERATIONS["record.reopen"].request
RecordSettle = OPERATIONS["record.settle"].request
RecordView = OPERATIONS["record.roles.view"].request

ROLES = """
[roles.clerk]
sees = [{ name = "own work", roles = ["clerk"] }]
may = { tools = ["**"], kinds = ["**"], settle = true }
[roles.boss]
sees = [{ name = "all", kinds = ["**"] }]
may = { tools = ["**"], kinds = ["**"] }
"""

REQUESTS = (
    RecordView("RUN"),
    RecordSettle("RUN", "eve#1", Verdict.DID_NOT_HAPPEN),
    RecordReopen("RUN", "t"),
    RecordFinish("RUN"),
    RecordCancel("RUN"),
)


@pytest.fixture
def hidden(house: House) -> House:
    """Return a workspace with a run of which ada's role is shown nothing."""
    house.apply(ROLES)
    with house.trusted() as record, record.run("w", run="hidden", agent="eve", role="boss") as eve:
        eve.message("user", "hello")
    house.login("ada", "clerk")
    return house


def message_of(linked: Link, request: Ask, run: str) -> str:
    """Return the message of a refusal, without the run's name."""
    query = msgspec.structs.replace(request, run=run)
    answer = portal().run(
        linked.outside(
            str(query.__struct_config__.tag).removeprefix("record.").replace(".", "_"), query
        )
    )
    assert isinstance(answer, Failed)
    return answer.fault.message.replace(run, "RUN")


def test_hidden_and_absent_have_one_answer(hidden: House) -> None:
    """A hidden run and an absent one get the same answer to every request."""
    with hidden.link("ada", "clerk") as ada:
        for request in REQUESTS:
            assert message_of(ada, request, "hidden") == message_of(ada, request, "absent")
