"""Replays on changed pages: exactly one match counts, and nothing else is touched.

Each page reports what was touched. The right element has `data-is`, which no replay reads.
"""

import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import msgspec
import pytest

import hansard
from hansard import testing
from tests.actions.provider import read

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

NAME = "<label>Name <input data-is=name></label>"
SAVE = "<button data-is=save>Save</button>"
ADA = "<li><span>Ada</span> <button>Remove</button></li>"
BOB = "<li><span>Bob</span> <button data-is=remove>Remove</button></li>"
OTHER_BOB = "<li><span>Bo</span> <button>Remove</button></li>"
FORM, LIST = f"<form>{NAME} {SAVE}</form>", f"<ul>{ADA}{BOB}</ul>"
PAGE = f"<main><h1>Guests</h1>{FORM}{LIST}</main>"

SAYS = """<script>
globalThis.touched = [];
for (const kind of ["click", "input", "submit"]) {
  addEventListener(kind, (event) => {
    if (kind === "submit") return event.preventDefault();
    const at = event.composedPath()[0];
    if (kind === "click" && at.tagName === "INPUT" && at.type !== "submit") return;
    touched.push(at.dataset.is ?? at.outerHTML);
  }, true);
}
</script>"""

SHADOW = f"""<div id=host></div><script>host.attachShadow({{mode: "open"}}).innerHTML =
`{FORM}{LIST}`; host.shadowRoot.querySelector("form").onsubmit = () => false</script>"""
LATE = f"""<main id=late></main><script>setTimeout(() => {{ late.innerHTML =
`<h1>Guests</h1>{FORM}{LIST}` }}, 150)</script>"""
FRAME = f"<main><h1>Guests</h1></main><iframe srcdoc='{FORM}{LIST}'></iframe>"


class Change(msgspec.Struct, frozen=True):
    """A page as it is now, how each element is found, and which a model means by each word."""

    name: str
    body: str
    strategies: tuple[str, ...]
    means: Mapping[str, tuple[str, str]] = {}


ALL = ("enter", "save", "remove")
CHANGES = (
    Change("unchanged", PAGE, ("xpath",) * 3),
    Change("wrapped", f"<div><div>{FORM}<div>{LIST}</div></div></div>", ("role", "role", "row")),
    Change(
        "reordered",
        f"<main><ul>{BOB}{ADA}</ul><h1>Guests</h1><form>{SAVE}{NAME}</form></main>",
        ("xpath", "xpath", "row"),
    ),
    Change(
        "renamed",
        PAGE.replace("<ul", "<ol class=b").replace("</ul", "</ol").replace("<form", "<form id=f"),
        ("xpath", "xpath", "row"),
    ),
    Change(
        "re-labelled",
        PAGE.replace("Name", "Full name").replace(">Save<", ">Store<"),
        ("model", "model", "xpath"),
        {"enter": ("input", ""), "save": ("button", "Store")},
    ),
    Change(
        "translated",
        PAGE.replace("Name", "Nom").replace(">Save<", ">Enregistrer<").replace("Remove", "Ôter"),
        ("model",) * 3,
        {"enter": ("input", ""), "save": ("button", "Enregistrer"), "remove": ("button", "Ôter")},
    ),
    Change(
        "a look-alike added",
        PAGE.replace("</main>", "<p>News <button>Save</button></p></main>"),
        ("xpath", "model", "xpath"),
        {"save": ("button", "Save")},
    ),
    Change(
        "another in its place",
        PAGE.replace(SAVE, f"<button>Discard</button> {SAVE}"),
        ("xpath", "role", "xpath"),
    ),
    Change("into a frame", FRAME, ("",)),
    Change("all of it twice", f"<main><h1>Guests</h1>{FORM}{LIST}{FORM}{LIST}</main>", ("",)),
    Change("gone", f"<main><h1>Guests</h1><form>{NAME}</form>{LIST}</main>", ("xpath", "")),
    Change("its row gone", PAGE.replace(BOB, ""), ("xpath", "xpath", "")),
    Change("another row there", PAGE.replace(BOB, OTHER_BOB), ("xpath", "xpath", "")),
    Change(
        "another element",
        PAGE.replace(SAVE, "<input type=submit value=Save data-is=save>"),
        ("xpath", "model", "xpath"),
        {"save": ("input", "submit")},
    ),
    Change(
        "hidden twins before it",
        PAGE.replace("<main>", "<main hidden>").replace("data-is", "data-was") + PAGE,
        ("role", "role", "row"),
    ),
    Change("into a shadow root", SHADOW, ("role", "role", "row")),
    Change("late", LATE, ("xpath",) * 3),
)


def key(change: Change, question: str) -> str:
    """Pick the last line that an instruction means: a handwritten key, no model."""
    instruction, lines = read(question)
    tag, name = change.means.get(instruction.split()[0], ("", ""))
    fits = [
        each["id"]
        for each in lines
        if each["tag"] == tag and (each["says"] == name or f'"{name}"' in each["about"])
    ]
    if change.name == "a look-alike added":
        fits = fits[:1]
    return json.dumps({"id": fits[-1] if fits else None})


GONE_S = 1.5
"""Timeout for missing elements: ten times the delay of the late page; each poll costs work."""

QUICK = ("reordered", "re-labelled", "its row gone")
"""Changes of `make check`."""


async def replayed(page: Any, site: Any, evidence: Any, changes: Iterable[Change]) -> None:
    """Replay a recording of the original page on the page after each change."""
    start = site(PAGE + SAYS)
    async with testing.record_async() as record:
        async with record.run("guests", agent="ada", role="agent") as session:
            browser = hansard.actions.AsyncBrowser(session, page, timeout_s=3.0)
            await browser.goto(start)
            await browser.act("enter a guest", at="input", method="fill", arguments=["Eve"])
            await browser.act("save it", at="text=Save", effects="idempotent")
            at = "li:has-text('Bob') >> button"
            await browser.act("remove Bob", at=at, effects="idempotent")
            run = session.run
        cache = await record.actions.of_run(run, params={"address": start})
        for change in changes:
            address = site(change.body + SAYS, "changed.html")
            async with record.run("again", agent="ada", role="agent") as session:
                browser = hansard.actions.AsyncBrowser(session, page, timeout_s=GONE_S)
                result = await browser.run_actions(
                    cache, params={"address": address}, fallback=partial(key, change), debug=True
                )
            strategies = tuple(each.strategy for each in result.actions[1:])
            evidence.record(f"actions.changed.{change.name}", found=", ".join(strategies))
            done = [name for name, how in zip(ALL, strategies, strict=False) if how]
            touched = await page.evaluate("touched")
            named = {"enter": "name"}
            assert touched == [named.get(each, each) for each in done], change.name
            assert strategies == change.strategies, (change.name, result.error)
            assert result.success is all(strategies)


async def test_a_change_is_healed_or_refused_and_nothing_else_is_touched(page, site, evidence):
    """An element is found by xpath, row or model; without a single match nothing is done."""
    changes = [each for each in CHANGES if each.name in QUICK]
    assert len(changes) == len(QUICK)
    await replayed(page, site, evidence, changes)


@pytest.mark.thorough(
    quick="tests/actions/test_changed_pages.py::"
    "test_a_change_is_healed_or_refused_and_nothing_else_is_touched"
)
async def test_each_change_is_healed_or_refused_and_nothing_else_is_touched(page, site, evidence):
    """All kinds of change."""
    changes = [each for each in CHANGES if each.name not in QUICK]
    assert changes
    await replayed(page, site, evidence, changes)
