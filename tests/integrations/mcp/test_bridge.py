"""A client of one era and a server of the other understand each other through the proxy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults._warm import python
from tests.integrations.mcp.support import Commands, Setup, ask, everything

pytestmark = pytest.mark.slow

ONE_ERA = Path(__file__).with_name("programs") / "one_era.py"


def speaking(setup: Setup, era: str) -> list[str]:
    """The server of tools that speaks one era alone."""
    return [python(), str(ONE_ERA), era, str(setup.sent), python()]


@pytest.mark.parametrize(
    ("client", "server"),
    [("legacy", "new"), pytest.param("2026-07-28", "old", marks=pytest.mark.thorough)],
)
async def test_what_is_told_is_what_a_server_of_the_same_era_tells(
    setup: Setup, command: Commands, client: str, server: str
):
    """Each kind of request, what is asked back among them: as the same server answers that speaks
    the client's era; and again without it.
    """
    direct = await ask(setup, setup.server, client, everything)
    effects = setup.effects()
    setup.sent.unlink()
    proxied = [*setup.proxy(server=False), "--", *speaking(setup, server)]
    assert await ask(setup, proxied, client, everything) == direct
    assert setup.effects() == effects
    offline = setup.proxy("--run", "last", "--mode", "offline", server=False)
    assert await ask(setup, offline, client, everything) == direct
    assert setup.effects() == effects
    steps = (await command("run", "trace", "last", "--json")).lines
    assert {step["status"] for step in steps if step["tool"] != "fail"} == {"completed"}


@pytest.mark.thorough(
    quick="tests/integrations/mcp/test_bridge.py::"
    "test_what_is_told_is_what_a_server_of_the_same_era_tells"
)
@pytest.mark.parametrize(("client", "server"), [("legacy", "new"), ("2026-07-28", "old")])
async def test_without_the_proxy_they_do_not(setup: Setup, client: str, server: str):
    """The control: so that the test above can fail."""
    with pytest.raises(BaseException) as refused:  # noqa: PT011 -- a group, of the SDK's
        await ask(setup, speaking(setup, server), client, everything)
    assert not isinstance(refused.value, TimeoutError)
