"""Coverage of a generator: a law shows little about cases that are never drawn."""

import random
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import Phase, find, settings
from hypothesis.errors import NoSuchExample
from hypothesis.strategies import SearchStrategy

EXAMPLES_MAX = 5_000
"""Number of examples after which a missing kind counts as never drawn by the laws."""


def not_reached(
    examples: SearchStrategy[Any], required: Iterable[Any], kinds: Callable[[Any], Iterable[Any]]
) -> set[Any]:
    """Draw until each required kind was seen; return the kinds missing after EXAMPLES_MAX
    examples.
    """
    missing = set(required)

    def all_seen(example: Any) -> bool:
        missing.difference_update(kinds(example))
        return not missing

    try:
        find(
            examples,
            all_seen,
            settings=settings(max_examples=EXAMPLES_MAX, phases=[Phase.generate], database=None),
            random=random.Random(random.getrandbits(32)),
        )
    except NoSuchExample:
        assert missing
    return missing
