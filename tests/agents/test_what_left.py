"""What went out of a run, or may have: while it is at work, and to addresses that are none."""

import pytest

import hansard


def test_a_call_that_is_under_way_may_have_left(record: hansard.Record):
    """Who is killed there leaves it so: nobody knows whether the mail went out."""
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
def test_an_address_that_is_none_is_told_as_that(record: hansard.Record, url: str):
    """What an agent gives to its browser cannot end the report on it."""
    with record.run("w", agent="a", role="r") as session:

        @session.tool(effects="once", name="browser.goto")
        def goto(url: str) -> str:
            return url

        goto("https://example.org/x")
        goto(url)
    told = [each.destination for each in record.egress(session.run)]
    assert told == ["example.org", "an address that is none"]
