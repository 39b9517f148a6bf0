"""For tests of what you build on the record: a record in memory, and given, when, then.

    from hansard import testing

    testing.given(program).killed_at("writer#3").when(program).then(
        testing.answered("search"), testing.answered("read"), testing.ran("write")
    )

The client is the same as over a broker; what stands in for the broker is a log in this process's
memory. Touches the client and what is below it.
"""

from hansard.testing.memory import Memory, record, record_async
from hansard.testing.programs import (
    Call,
    Decided,
    Decider,
    Decision,
    Given,
    Then,
    answered,
    decided,
    decider,
    given,
    ran,
)

__all__ = [
    "Call",
    "Decided",
    "Decider",
    "Decision",
    "Given",
    "Memory",
    "Then",
    "answered",
    "decided",
    "decider",
    "given",
    "ran",
    "record",
    "record_async",
]
