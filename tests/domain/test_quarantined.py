"""What does not fit takes its versions in every aggregate, and nothing else."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from hansard.bus.codec import record, revive
from hansard.domain.events import REGISTRY
from hansard.domain.quarantined import Quarantined
from tests.domain.test_fold import AGGREGATES, histories


@given(histories, st.data())
def test_a_quarantined_event_changes_the_version_alone(history, data):
    """At every point of every history."""
    name, events = history
    initial, fold, _ = AGGREGATES[name]
    cut = data.draw(st.integers(0, len(events)))
    count = data.draw(st.integers(1, 3))
    before = fold(initial(), events[:cut])
    after = fold(before, [Quarantined(reason="x")] * count)
    assert after.version == before.version + count
    assert msgspec.structs.replace(after, version=before.version) == before


def test_no_log_can_hold_one():
    """It is read back by whoever made it, and is registered under no tag."""
    made = Quarantined(reason="x")
    assert revive(record(made, "e")) == made
    assert Quarantined.tag not in REGISTRY
