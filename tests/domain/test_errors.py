"""What errors say, for people and for programs."""

import inspect

import pytest

from hansard.domain.errors import BadName, BadOption, BadValue, Corrupt, UnknownEvent


@pytest.mark.parametrize("kind", [BadName, BadOption, BadValue, Corrupt, UnknownEvent])
def test_each_part_of_a_message_is_an_attribute(kind):
    """The value, the fact and the remedy of an error are attributes and in its message."""
    _, *names = inspect.signature(kind.__init__).parameters
    parts = {name: f"the {name}" for name in names}
    error = kind(**parts)
    assert {name: getattr(error, name) for name in names} == parts
    assert all(part in str(error) for part in parts.values())
