"""What a model's use costs: what is taken as a price, and what stands."""

import re
from datetime import datetime

import msgspec
import pytest

from hansard.domain.errors import BadName, BadValue
from hansard.domain.price import PriceStated, decide, initial

SINCE = datetime.fromisoformat("2024-10-01T00:00:00+00:00")
STATED = PriceStated(usage="input_tokens", amount=2.5, since=SINCE)


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"usage": ""}, "usage name '' is not valid: "),
        ({"amount": -0.01}, "price of input_tokens: -0.01; give what a million of it costs"),
        ({"amount": float("inf")}, "price of input_tokens: inf; give what a million of it costs"),
        ({"since": SINCE.replace(tzinfo=None)}, "since: 2024-10-01T00:00:00 has no zone; give one"),
        ({"currency": "usd"}, "currency: 'usd'; give its three capital letters: USD"),
        ({"currency": "US"}, "currency: 'US'; give its three capital letters: USD"),
        ({"currency": "ÄÖÜ"}, "currency: 'ÄÖÜ'; give its three capital letters: USD"),
        ({"source": "\ud800"}, "source"),
    ],
)
def test_a_price_that_is_none_is_refused(other, says):
    """With the value and the remedy."""
    with pytest.raises((BadName, BadValue), match=re.escape(says)):
        decide(initial(), msgspec.structs.replace(STATED, **other))


def test_a_use_may_be_free():
    """Nothing is a price."""
    free = msgspec.structs.replace(STATED, amount=0.0)
    assert list(decide(initial(), free)) == [free]
