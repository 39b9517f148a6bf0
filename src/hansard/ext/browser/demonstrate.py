"""Demonstrations: a person's actions in a browser window as the steps of a run.

Each is recorded as `AsyncBrowser` records it.

The page reports each event before it handles it. A text becomes a step once its field is left, or
something else is done; a click once it is known not to be a double click. The value of a password
field never leaves the page: it is a secret by the field's name.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any, Self

import msgspec

from hansard.domain.actions import METHODS, PageMark, normalized
from hansard.domain.steps import Effects
from hansard.domain.values import Secret
from hansard.ext.browser import browser as browsers
from hansard.ext.browser import elements
from hansard.ext.browser.browser import CallingSession, PageAction, PageActions
from hansard.ext.browser.replays import AsyncBrowser

CLICK_HELD_S = 0.4
"""So long a click may become a double click."""

ARGUMENTS = ("--enable-blink-features=ComputedAccessibilityInfo",)
"""Chromium's flag for reading the role and name of an element at once."""

_UNTOLD = {"several": "several options of one list", "file": "the choice of a file"}


class DemonstratedEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a demonstration.

    Attributes:
        run: The run's id.
        actions: Number of actions on record, the first address included.
        secrets: Names of the secrets that were filled in.
        unrecorded: Things done that cannot be replayed as actions, in words.
    """

    run: str
    actions: int
    secrets: list[str] = []
    unrecorded: list[str] = []


class _Event(msgspec.Struct):
    """An event of a page: a method, the element before it, and the value or the secret's name."""

    method: str
    element: dict[str, Any]
    value: str = ""
    secret: str = ""
    done: bool = True


class _Act(msgspec.Struct):
    """An action that is to be a step."""

    event: _Event
    frame: int
    mark: PageMark
    url: str

    @property
    def place(self) -> tuple[int, Any]:
        """The identity of the event's element."""
        return self.frame, self.event.element.get("number")


class Demonstration:
    """Listens to a page, and records; use it in an `async with`, around what the person does."""

    def __init__(self, session: CallingSession, browser: PageActions) -> None:
        self._session = session
        self._browser = browser
        self._page = browser.page
        self._acts: asyncio.Queue[Callable[[], Awaitable[None]] | None] = asyncio.Queue()
        self._pending: _Act | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_requested = False
        self._opened = 0
        self.actions = 0
        self.secrets: dict[str, None] = {}
        self.unrecorded: list[str] = []

    async def __aenter__(self) -> Self:
        name = f"__hansard{secrets.token_hex(8)}"
        await self._page.context.expose_binding(name, self._heard)
        where = files("hansard.ext.browser")
        page, watch = (where.joinpath(each).read_text("utf-8") for each in ("page.js", "watch.js"))
        script = (
            f"{{ const tell = globalThis.{name}; delete globalThis.{name};\n"
            f"if (tell) (\n{watch})(\n{page}, tell); }}"
        )
        await self._page.context.add_init_script(script)
        client = await self._page.context.new_cdp_session(self._page)
        await client.send("Page.enable")
        client.on("Page.frameRequestedNavigation", self._requested)
        self._page.on("framenavigated", self._navigated)
        self._page.context.on("page", lambda _: self._tell_untold("what was done in other windows"))
        # Without a listener playwright would answer the dialog itself.
        self._page.on("dialog", lambda _: self._tell_untold("the answer to a dialog"))
        self._page.on("download", lambda _: self._tell_untold("a download"))
        self.writing = asyncio.create_task(self._write())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._commit()
        self._acts.put_nowait(None)
        await self.writing

    async def goto(self, url: str) -> None:
        """Open the first address. Raises PageGone."""
        self._opened += 1
        await self._browser.goto(url)
        self.actions += 1

    # Events of the page

    def _heard(self, source: Any, plain: Any) -> None:
        if source["page"] is not self._page:
            return
        try:
            event = msgspec.convert(plain, _Event)
        except msgspec.ValidationError:
            return  # of another program
        if event.method in _UNTOLD:
            self._tell_untold(_UNTOLD[event.method])
            return
        if event.method == "left" and self._pending is not None:
            if self._pending.event.method == "fill":
                self._commit()
            return
        if event.method not in METHODS:
            return
        act = self._act(source["frame"], event)
        pending = self._pending
        same = pending is not None and pending.place == act.place
        if pending is not None and same and event.method in ("fill", "dblclick"):
            before = "fill" if event.method == "fill" else "click"
            if pending.event.method == before:
                act.event.element = pending.event.element
                self._pending = None
        self._commit()
        if event.method == "click" or (event.method == "fill" and not event.done):
            self._pending = act
            if event.method == "click":
                self._timer = asyncio.get_running_loop().call_later(CLICK_HELD_S, self._commit)
            return
        self._put(act)

    def _act(self, frame: Any, event: _Event) -> _Act:
        frames = self._page.frames
        index = frames.index(frame) if frame in frames else 0
        mark = PageMark(
            address=elements.pattern(self._page.url),
            frame=elements.pattern(frame.url) if index else "",
        )
        return _Act(event, index, mark, self._page.url)

    def _requested(self, _: dict[str, Any]) -> None:
        """Note that the page requests an address: the last action led there."""
        self._is_requested = True

    def _navigated(self, frame: Any) -> None:
        """Record a new address of the main frame as the person's, unless the page requested it."""
        if frame is not self._page.main_frame:
            return
        request, self._is_requested = self._is_requested, False
        if self._opened:
            self._opened -= 1
            return
        if not request:
            self._commit()
            url = frame.url
            self._acts.put_nowait(lambda: self._record_goto(url))

    def _tell_untold(self, what: str) -> None:
        if what not in self.unrecorded:
            self.unrecorded.append(what)

    # Recording

    def _commit(self) -> None:
        """Record the held event as an action."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, None
        if pending is not None:
            self._put(pending)

    def _put(self, act: _Act) -> None:
        self._acts.put_nowait(lambda: self._record(act))

    async def _write(self) -> None:
        while (record := await self._acts.get()) is not None:
            await record()

    async def _record_goto(self, url: str) -> None:
        async def was_opened(url: str) -> str:
            return elements.pattern(url)

        arguments = {"url": url}
        spec = browsers.spec("browser.goto", Effects.IDEMPOTENT, was_opened, arguments)
        await self._session.call(spec, (), arguments)
        self.actions += 1

    async def _record(self, act: _Act) -> None:
        event = act.event
        _, effects = METHODS[event.method]
        if event.secret:
            self.secrets[event.secret] = None
        values: list[Any] = [Secret(event.secret)] if event.secret else [event.value]
        description = event.element
        targets = elements.targets_of(description)
        xpath = normalized(description["xpath"]) if description["xpath"] else None
        called = targets.name or targets.label or targets.text or targets.id or targets.tag
        arguments = {
            "instruction": f"{event.method} {called!r:.80}",
            "method": event.method,
            "arguments": values if METHODS[event.method][0] else [],
            "at": elements.selector_of(description),
            "targets": msgspec.to_builtins(targets),
            "frame": act.frame,
            "changes": "",
            "checks": [],
            "mark": msgspec.to_builtins(act.mark),
            "optional": False,
        }
        left = not self._page.is_closed() and self._page.url != act.url
        done = PageAction(
            success=True,
            message="done by a person",
            frame_index=act.frame,
            xpath=xpath,
            method=event.method,
            targets=targets,
            page=act.mark,
            changed="address" if left and event.method != "fill" else "",
        )

        async def was_done(**_: Any) -> Any:
            return msgspec.to_builtins(done)

        once = effects == Effects.ONCE.value
        name = "browser.act_once" if once else "browser.act"
        spec = browsers.spec(name, Effects(effects), was_done, arguments)
        await self._session.call(spec, (), arguments)
        self.actions += 1


async def demonstrated(session: Any, page: Any, url: str, ended: asyncio.Event) -> DemonstratedEnd:
    """Record what a person does to a page from an address on, until the window is closed, it has
    ended, or an action cannot be recorded. Raises PageGone where the address cannot be opened, and
    what recording raises.
    """
    page.on("close", lambda _: ended.set())
    page.context.on("close", lambda _: ended.set())
    browser = AsyncBrowser(session, page)
    async with Demonstration(session, browser) as shown:
        await shown.goto(url)
        waiting = asyncio.create_task(ended.wait())
        await asyncio.wait({waiting, shown.writing}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        with contextlib.suppress(Exception):  # let reports under way arrive; the page may be closed
            await asyncio.wait_for(page.evaluate("1"), 1.0)
    return DemonstratedEnd(
        run=session.run,
        actions=shown.actions,
        secrets=list(shown.secrets),
        unrecorded=shown.unrecorded,
    )
