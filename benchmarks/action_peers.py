"""What do muscle-mem and browser-use need to repeat a recorded form, against the bare script?

The form, its values and the browser are those of `bench_actions`, whose ratio of Hansard is
comparable: each has its own run, so compare ratios, not times.

* the script: playwright's calls, one after another;
* muscle-mem: its engine does the trajectory that it recorded of functions that call playwright;
* browser-use: `rerun_history` of a history that its agent recorded, delays set to 0. At its end it
  asks a model for a summary, which a server on this machine answers at once; a key written by hand
  states the agent's actions, through its own client of OpenAI's interface. It closes its browser
  itself, so opening one is not counted, closing is.

`make bench-action-peers`: it runs in an environment of its own, without Hansard.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import io
import json
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import Page, sync_playwright

from benchmarks._form import ARGUMENTS, PAGE, PARAMS

ROUNDS = 3 if "--quick" in sys.argv else 20
RERUNS = 1 if "--quick" in sys.argv else 5
PROGRAMS = ("chromium", "google-chrome")
FIELD = re.compile(r"\[(\d+)\]<(?:input id=(who|what)|(button))")


def program() -> str | None:
    """Return the browser's path."""
    named = os.environ.get("HANSARD_BROWSER")
    return named or next((found for each in PROGRAMS if (found := shutil.which(each))), None)


def timed(works: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """Milliseconds of each in turn, without its first round."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS + 1):
        for name, work in works.items():
            begin = time.perf_counter()
            work()
            times[name].append((time.perf_counter() - begin) * 1e3)
    return {name: each[1:] for name, each in times.items()}


def scripted(page: Page, address: str) -> Callable[[], None]:
    """Return the bare script."""

    def run() -> None:
        page.goto(address)
        page.locator("#who").fill(PARAMS["who"])
        page.locator("#what").fill(PARAMS["what"])
        page.locator("button").click()

    return run


def remembered(page: Page, address: str) -> Callable[[], None]:
    """Return the replay by muscle-mem's engine, which has recorded it."""
    engine = importlib.import_module("muscle_mem").Engine()

    def goto(url: str) -> None:
        page.goto(url)

    def fill(at: str, text: str) -> None:
        page.locator(at).fill(text)

    def click(at: str) -> None:
        page.locator(at).click()

    opens, fills, clicks = (engine.function()(each) for each in (goto, fill, click))

    def agent() -> None:
        opens(address)
        fills("#who", PARAMS["who"])
        fills("#what", PARAMS["what"])
        clicks("button")

    engine.set_agent(agent).finalize()
    with contextlib.redirect_stdout(io.StringIO()):  # it prints colours
        assert not engine(tags=["form"])

    def run() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            assert engine(tags=["form"]), "muscle-mem asked its agent"

    return run


class Key:
    """OpenAI's interface on this machine, by a key written by hand."""

    def __init__(self) -> None:
        self.asked = 0
        key = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                """Log nothing."""

            def do_GET(self) -> None:
                self._send(PAGE.encode(), "text/html")

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._send(json.dumps(key.answer(body)).encode(), "application/json")

            def _send(self, body: bytes, kind: str) -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the agent's next action; after the last one, a summary."""
        found = FIELD.findall(json.dumps(body["messages"]))
        at = {who or button: int(number) for number, who, button in found}
        steps: list[list[dict[str, Any]]] = [
            [{"navigate": {"url": f"{self.url}/form.html", "new_tab": False}}],
            [
                {"input": {"index": at.get("who", 0), "text": PARAMS["who"]}},
                {"input": {"index": at.get("what", 0), "text": PARAMS["what"]}},
                {"click": {"index": at.get("button", 0)}},
            ],
            [{"done": {"text": "done", "success": True, "files_to_display": []}}],
        ]
        said: dict[str, Any] = {"summary": "ok", "success": True, "completion_status": "complete"}
        if self.asked < len(steps):
            told = ("thinking", "evaluation_previous_goal", "memory", "next_goal")
            said = {**dict.fromkeys(told, ""), "action": steps[self.asked]}
        self.asked += 1
        message = {"role": "assistant", "content": json.dumps(said)}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt-4o",
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }


async def rerun(browser: str) -> list[float]:
    """Milliseconds of each `rerun_history`."""
    use = importlib.import_module("browser_use")
    views = importlib.import_module("browser_use.agent.views")
    key = Key()
    model = use.ChatOpenAI(model="gpt-4o", base_url=f"{key.url}/v1", api_key="none")

    def agent() -> Any:
        profile = use.BrowserProfile(
            headless=True,
            executable_path=browser,
            chromium_sandbox=False,
            user_data_dir=None,
            enable_default_extensions=False,
        )
        opened = use.BrowserSession(browser_profile=profile)
        return use.Agent(
            task="fill in the form",
            llm=model,
            browser_session=opened,
            use_vision=False,
            use_judge=False,
        )

    times: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "history.json"
        recorded = await agent().run(max_steps=4)
        assert recorded.is_done(), recorded.errors()
        recorded.save_to_file(file)
        for _ in range(RERUNS + 1):
            again = agent()
            history = views.AgentHistoryList.load_from_file(file, again.AgentOutput)
            for each in history.history:
                each.metadata.step_interval = None  # it holds the model's time of the recording
            await again.browser_session.start()
            begin = time.perf_counter()
            results = await again.rerun_history(history, delay_between_actions=0.0)
            times.append((time.perf_counter() - begin) * 1e3)
            assert not [each.error for each in results if each.error], results
    return times[1:]


def main() -> int:
    """Measure and report."""
    browser = program()
    if browser is None:
        print("no browser: nothing was measured", file=sys.stderr)
        return 1
    quiet = {"ANONYMIZED_TELEMETRY": "false", "BROWSER_USE_LOGGING_LEVEL": "result"}
    os.environ.update(quiet | {"BROWSER_USE_CLOUD_SYNC": "false"})
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as player:
        path = Path(folder) / "form.html"
        path.write_text(PAGE)
        opened = player.chromium.launch(executable_path=browser, args=list(ARGUMENTS))
        page = opened.new_page()
        address = path.as_uri()
        works = {"script": scripted(page, address), "muscle-mem": remembered(page, address)}
        times = timed(works)
        assert page.inner_text("#said") == PARAMS["who"]
        opened.close()
    times["browser-use"] = asyncio.run(rerun(browser))
    found = {name: round(median(each), 1) for name, each in times.items()}
    report = {
        "benchmark": "action_peers",
        "load": round(os.getloadavg()[0], 1),
        "median_ms": found,
        "ratios": {name: round(each / found["script"], 2) for name, each in found.items()},
    }
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
