"""Egress of a run: certain or possible, while it is at work, and to invalid addresses."""

import pytest

import hansard


def test_a_call_that_is_under_way_may_have_left(record: hansard.Record):
    """A kill during the call leaves it so: it is unknown whether the mail was sent."""
    seen: list[hansard.types.SentOut] = []
    with record.run("w", agent="a", role="r") as session:

        @session.tool(effects="once")
        def send(to: str) -> str:
            seen.extend(record.egress(session.run))
            return to

        send("ann")
    [sent] = seen
    assert (sent.tool, sent.status, sent.arguments) == ("send", "requested", {"to": "ann"})
    [sent] = record.egress(session.run)
    assert (sent.tool, sent.status) == ("send", "completed")


@pytest.mark.parametrize("url", ["https://[example.org](https://example.org)", "http://["])
def test_an_invalid_address_is_reported_as_such(record: hansard.Record, url: str):
    """An invalid address that an agent gives to its browser does not break the report."""
    with record.run("w", agent="a", role="r") as session:

        @session.tool(effects="once", name="browser.goto")
        def goto(url: str) -> str:
            return url

        goto("https://example.org/x")
        goto(url)
    destinations = [each.destination for each in record.egress(session.run)]
    assert destinations == ["example.org", "an address that is none"]


def test_a_secret_inside_of_a_text_was_passed_too(record: hansard.Record):
    """A header with a token has the token, as an argument that is a secret as a whole does."""
    key = "sk-0123456789"
    with record.run("w", agent="a", role="r", redact={"key": key}) as session:

        @session.tool(effects="once")
        def post(headers: dict[str, str], token: str) -> None: ...

        post({"authorization": f"Bearer {key}"}, "")
        post({}, key)
        post({}, "")
    assert [each.secrets for each in record.egress(session.run)] == [("key",), ("key",), ()]
