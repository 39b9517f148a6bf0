"""One page of tasks, in many builds: its specification, its usage and how it is read.

1. A text field and a button beside it: the button adds a task of that title at the end, and
   empties the field. Without a title it adds nothing.
2. A task has a checkbox that its title names, and a button that removes it.
3. A `status` says how many tasks are not done, as its first number.
4. `localStorage.tasks` holds `[{title, done}]`, and the page shows that again when it is loaded.

Nothing else is specified: each build chooses its markup, class names and other words.
"""

import asyncio
import contextlib
import functools
import json
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hansard.domain.actions import ActionCheck
from tests.actions.provider import read

SOURCES = Path(__file__).with_name("tasks")
BUILD_S_MAX = 300
SHOWN_S_MAX = 10.0
FRAMEWORKS = ("react", "vue", "preact", "svelte", "lit")

_CHECKBOX = re.compile(r'^\s*- checkbox "(.*?)"( \[checked\])?', re.MULTILINE)


class Shown(msgspec.Struct, frozen=True):
    """Tasks that a page shows and stores."""

    tasks: list[tuple[str, bool]]
    left: int
    stored: list[tuple[str, bool]]


END = Shown(
    tasks=[("Buy milk", True), ("Write home", False)],
    left=1,
    stored=[("Buy milk", True), ("Write home", False)],
)
"""State of the page at the end of `worked`."""


async def shown(page: Any) -> Shown:
    """Read the page by roles, through open shadow roots."""
    tree: str = await page.locator("body").aria_snapshot()
    status: str = await page.get_by_role("status").inner_text()
    stored: str = await page.evaluate("localStorage.getItem('tasks')") or "[]"
    count = re.search(r"\d+", status)
    return Shown(
        tasks=[(name, bool(checked)) for name, checked in _CHECKBOX.findall(tree)],
        left=int(count.group()) if count else -1,
        stored=[(each["title"], each["done"]) for each in json.loads(stored)],
    )


async def shows(page: Any, expected: Shown) -> None:
    """Wait until a page shows that: some pages remove elements slowly."""
    deadline = time.monotonic() + SHOWN_S_MAX
    while (now := await shown(page)) != expected:
        assert time.monotonic() < deadline, now
        await asyncio.sleep(0.02)


async def worked(browser: Any, address: str, says: str = "") -> None:
    """Do the recorded usage: enter three tasks, tick one, remove one; then check for `says`."""
    field, button = "role=textbox", "role=button[name=/add|create/i]"
    row = ":is(li, [role=listitem]):has-text('{}')"
    await browser.goto(address)
    for title in ("Buy milk", "Bake bread", "Write home"):
        await browser.act(f"enter {title}", at=field, method="fill", arguments=[title])
        await browser.act("add the task", at=button, effects="idempotent")
    box = row.format("Buy milk") + " >> input"
    await browser.act("tick Buy milk", at=box, method="check")
    remove = row.format("Bake bread") + " >> button"
    checks = [ActionCheck(kind="visible", value=says)] if says else []
    await browser.act("remove Bake bread", at=remove, effects="idempotent", checks=checks)


def key(question: str) -> str:
    """Pick the line that an instruction means: a handwritten key for the pages of tasks."""
    instruction, lines = read(question)
    verb, _, title = instruction.partition(" ")
    boxes = [at for at, each in enumerate(lines) if "checkbox" in each["about"]]
    buttons = [at for at, each in enumerate(lines) if each["tag"] == "button"]
    field = next(at for at, each in enumerate(lines) if each["tag"] == "input" and at not in boxes)
    add = next(at for at in buttons if at > field)
    removes = [at for at in buttons if at != add]
    titled = [at for at, each in enumerate(lines) if title and each["says"] == title]
    box = min(boxes, key=lambda at: abs(at - titled[0])) if titled and boxes else None
    chosen: int | None = None
    match verb:
        case "enter":
            chosen = field
        case "add":
            chosen = add
        case "tick":
            chosen = box
        case "remove" if box is not None:
            chosen = removes[boxes.index(box)]
        case _:
            pass
    return json.dumps({"id": None if chosen is None else lines[chosen]["id"]})


def built(folder: Path) -> Path:
    """Return the folder of all pages, built with the packages of npm's lock file; or skip."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("npm or node is not installed: no framework's page was built")
    shutil.copytree(SOURCES, folder, dirs_exist_ok=True)
    install = (npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts")
    for command in (install, (node, "build.mjs", "out")):
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=BUILD_S_MAX, check=False
        )
        assert done.returncode == 0, done.stderr[-2_000:]
    for page in SOURCES.glob("*.html"):
        shutil.copy(page, folder / "out")
    return folder / "out"


REPORTS = b"""<script>
const report = () => {
  const asked = new XMLHttpRequest();
  asked.open("POST", "/shown", false);
  const shown = [];
  const walk = (root) => {
    for (const each of root.querySelectorAll("*")) {
      if (each.shadowRoot) walk(each.shadowRoot);
      if (!each.matches("li, output, [role=status], [role=listitem]")) continue;
      const inside = each.shadowRoot ?? each;
      if (/-leave-/.test(each.className)) continue; // Vue takes it away a frame later
      shown.push([inside.textContent.trim(), inside.querySelector("input")?.checked]);
    }
  };
  walk(document);
  asked.send(JSON.stringify({ shown, stored: localStorage.tasks }));
};
const observer = new MutationObserver(report);
const all = { subtree: true, childList: true, characterData: true, attributes: true };
observer.observe(document, all);
const { attachShadow } = Element.prototype;
Element.prototype.attachShadow = function (...told) {
  const root = attachShadow.apply(this, told);
  observer.observe(root, all);
  return root;
};
const { setItem } = Storage.prototype;
Storage.prototype.setItem = function (...told) {
  setItem.apply(this, told);
  report();
};
</script>"""
"""Script that makes a page report to the server what it shows and stores, before any reader."""

BROKEN = """<script>
addEventListener("click", (event) => {
  if (event.composedPath()[0].type === "checkbox") event.preventDefault();
}, true);
</script>"""
"""Script that breaks any page: its boxes cannot be ticked."""


@contextlib.contextmanager
def served(folder: Path, reports: list[str] | None = None) -> Iterator[str]:
    """Serve a folder over HTTP on this machine; `reports` collects what its pages show."""

    class Quiet(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if reports is None or not self.path.endswith(".html"):
                return super().do_GET()
            body = folder.joinpath(self.path[1:]).read_bytes()
            body = body.replace(b"<meta", REPORTS + b"<meta", 1)
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return None

        def do_POST(self) -> None:
            assert reports is not None
            body = self.rfile.read(int(self.headers["Content-Length"]))
            reports.append(body.decode())
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
