"""Who may change an aggregate: `hansard check`, readers and tables agree on what counts."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hansard.bus import subjects
from hansard.bus.codec import encode
from hansard.client.record import Record
from hansard.domain.aggregate_types import AggregateChanged
from hansard.domain.events import Actor, Tx
from hansard.domain.ids import WorkspaceStream
from hansard.domain.values import dump
from tests.aggregates.book import Account
from tests.cli.planting import commit, publish_raw
from tests.cli.support import Call


def credited(amount: int, **more: Any) -> AggregateChanged:
    """An event as a forger writes it."""
    state = {
        "amount": {"$decimal": str(amount)},
        "timestamp": {"$datetime": "2026-01-01T00:00:00+00:00"},
    }
    return AggregateChanged(
        aggregate="account", event="account-credited.v1", state=dump(state), **more
    )


FORGED: dict[str, tuple[list[AggregateChanged], dict[str, Any]]] = {
    "stands alone": ([credited(1, run="r", step=1)], {"actor": Actor("ada")}),
    "no agent of run 'r'": (
        [credited(1, run="r", step=1)],
        {"actor": Actor("eve"), "tx": Tx("t", 0, 1)},
    ),
    "one of them is missing": ([credited(1, step=1)], {"actor": Actor("ada")}),
    "several aggregates or steps": ([credited(1), credited(1, run="r", step=1)], {}),
    "is not a aggregate.changed.v1": ([], {}),
}


@pytest.mark.fast(cases=1, slow=0)
@pytest.mark.parametrize("why", FORGED)
def test_what_nobody_may_have_written_counts_nowhere(
    why: str, record: Record, data_dir: Path, workspace: str, call: Call
):
    """A commit of a step that cannot have written it takes a version and counts nowhere."""
    with record.run("w", run="r", agent="ada", role="writer") as session:
        account = Account("ada")
        session.save(account)
    stream = WorkspaceStream("aggregate", str(account.id))
    events, fields = FORGED[why]
    made = msgspec.structs.replace(commit(2, *(events or [credited(1)]), epoch=0), **fields)
    if not events:
        bad = msgspec.structs.replace(made.events[0], data=msgspec.Raw(b'{"aggregate":1}'))
        made = msgspec.structs.replace(made, events=(bad,))
    publish_raw(data_dir, (subjects.subject(workspace, stream, 2), encode(stream, made)))
    with record.run("w", run="s", agent="ada", role="writer") as session:
        found = session.get(Account, account.id)
        assert (int(found.balance), found.version) == (0, 1 + len(made.events))
        found.credit(Decimal(7))
        session.save(found)
        assert session.get(Account, account.id).balance == 7
    rows = record.sql("SELECT tag FROM domain_events ORDER BY version").rows
    assert [tag for (tag,) in rows] == ["account-opened.v1", "account-credited.v1"]
    told = call("check")
    assert told.code == 1
    assert why in told.out
