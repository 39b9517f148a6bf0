"""A page that invites guests, and runs on it from which experiences are learned."""

from typing import Any

import hansard

FORM = """<div id="notice"><button onclick="notice.remove()">Close</button></div>
<form onsubmit="event.preventDefault(); count.textContent = +count.textContent + 1;
said.textContent = guest.value + ' is expected'">
<label>Guest <input id="guest"></label> <button>Invite</button></form>
<p id="said"></p><p id="count">0</p>
<script>if (!location.search.includes('notice')) notice.remove()</script>"""
GUESTS = (("Ada", False), ("Alan", True), ("Grace", False), ("Edsger", True), ("Tim", False))


async def invited(record: Any, page: Any, address: str, guest: str, *, notice: bool) -> str:
    """Invite a guest in a run; return its id."""
    await page.goto(address + ("?notice" if notice else ""))
    async with record.run("invite", run=guest, agent="host", role="host") as session:
        await session.message("user", f'Invite "{guest}" to dinner.')
        browser = hansard.actions.AsyncBrowser(session, page)
        if notice:
            await browser.act("close the notice", at="text=Close")
        await browser.act("enter the guest", at="#guest", method="fill", arguments=[guest])
        await browser.act("invite", at="text=Invite")
        run: str = session.run
        return run


async def learned(record: Any, page: Any, address: str, guests: Any = GUESTS, **how: Any) -> Any:
    """Return the experience of a run for each guest, without confirmed checks."""
    runs = [await invited(record, page, address, name, notice=seen) for name, seen in guests]
    return await record.experiences.learn("invite-a-guest", runs, **how)


async def sent(page: Any) -> int:
    """Return how often the form was sent."""
    return int(await page.inner_text("#count"))
