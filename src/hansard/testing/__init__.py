"""Tests of programs that use Hansard: an in-memory record, and given, when, then.

    from hansard import testing

    testing.given(program).killed_at("writer#3").when(program).then(
        testing.answered("search"), testing.answered("read"), testing.ran("write")
    )

The client is the same as over a broker; a log in this process's memory takes the broker's place.
Depends on the client and the layers below it.
"""

from hansard.testing.programs import (
    Call,
    Decided,
    Decider,
    Decision,
    Given,
    Memory,
    Then,
    answered,
    decided,
    decider,
    given,
    ran,
    record,
    record_async,
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
