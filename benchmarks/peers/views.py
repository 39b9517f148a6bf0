"""How soon is a trace of 1,000, 10,000 and 30,000 spans usable in the pages of three systems?

The same generated trace in MLflow, Phoenix and Hansard, written through each one's own client, read
by the same browser, one side after the other: time until 10 rows of its spans are painted; then 40
places all over the list are scrolled to, each until the first task after its frame, and the longest
time that the page held the browser meanwhile; the memory of its JavaScript after garbage
collection. Ratios are a peer's figure over Hansard's: above 1 is in Hansard's favour.

Beside it the processor time of browser and server until then, which other work on the machine
changes less.

`python -m benchmarks.peers.views [--quick] [--only SIDE] [--spans N]`; HANSARD_PEERS is a Python
that has the peers, where it is not that of `make bench-peers`. MLflow's page needs graphql-core
before 3.3, and Phoenix a later one: measure MLflow with an environment of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks._report import QUICK_FLAG, Findings, benchmark, say, summary
from benchmarks.bench_page import ARGUMENTS
from benchmarks.peers.__main__ import NAMED, PYTHON, ROOT
from hansard.ext.browser import chromium

SPANS = (1_000, 10_000, 30_000)
SHOWN_S_MAX = 300.0
"""Longest wait for a page, in seconds; one that is not readable by then is not opened again."""

NO_ANSWER = f"none within {SHOWN_S_MAX:g} s"
READY_S_MAX = 1_800.0
ROWS = 10

SHOWN = """() => {
  const words = /(^|\\s|ƒ)search($|\\s|\\()/;
  let rows = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node && rows < 200; node = walker.nextNode()) {
    if (words.test(node.data) && node.parentElement.checkVisibility()) {
      const box = node.parentElement.getBoundingClientRect();
      if (box.height > 0 && box.top < innerHeight && box.bottom > 0) rows++;
    }
  }
  return rows;
}"""
"""Counts the visible rows that name the tool of the trace's spans."""

SCROLL = """([turns]) => new Promise((done) => {
  const words = /(^|\\s|ƒ)search($|\\s|\\()/;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let box = null;
  let looked = 0;
  for (let node = walker.nextNode(); node && looked < 100; node = walker.nextNode()) {
    if (!words.test(node.data)) continue;
    looked++;
    for (let at = node.parentElement; at; at = at.parentElement) {
      if (at.scrollHeight <= at.clientHeight + 50) continue;
      if (!/auto|scroll/.test(getComputedStyle(at).overflowY)) continue;
      if (at.scrollHeight > (box?.scrollHeight ?? 0)) box = at;
      break;
    }
  }
  if (!box) return done({ times: [], held: 0, height: 0 });
  const times = [];
  let held = 0;
  let before = performance.now();
  const watch = setInterval(() => {
    held = Math.max(held, performance.now() - before);
    before = performance.now();
  }, 5);
  const next = () => {
    if (times.length === turns) {
      clearInterval(watch);
      return done({ times, held, height: box.scrollHeight });
    }
    const start = performance.now();
    box.scrollTop = (box.scrollHeight - box.clientHeight) * ((times.length * 7919) % turns) / turns;
    requestAnimationFrame(() => {
      const after = new MessageChannel();
      after.port1.onmessage = () => {
        times.push(performance.now() - start);
        setTimeout(next, 20);
      };
      after.port2.postMessage(0);
    });
  };
  next();
})"""
"""Scrolls the list of spans to places all over it, and takes the time of each frame."""


def processor_s() -> float:
    """Return the processor time of this process's descendants that run, in seconds."""
    ticks: dict[int, int] = {}
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            process = int(stat.parent.name)
            parents[process], ticks[process] = int(fields[1]), int(fields[11]) + int(fields[12])
    family, size = {os.getpid()}, 0
    while len(family) > size:
        size = len(family)
        family |= {process for process, parent in parents.items() if parent in family}
    return sum(ticks[each] for each in family - {os.getpid()}) / os.sysconf("SC_CLK_TCK")


async def page(view: Any, address: str) -> dict[str, Any]:
    """Open a trace's page, and measure it."""
    from playwright.async_api import Error  # noqa: PLC0415 -- only where a browser is

    begun_s, before_s = time.monotonic(), processor_s()
    try:
        await view.goto(address, wait_until="commit", timeout=SHOWN_S_MAX * 1_000)
    except Error:
        return {"shown_ms": None, "rows": 0}
    rows = 0
    while rows < ROWS and time.monotonic() < begun_s + SHOWN_S_MAX:
        await asyncio.sleep(0.02)
        try:
            rows = await asyncio.wait_for(view.evaluate(SHOWN), SHOWN_S_MAX)
        except TimeoutError:
            break
        except Error:  # the page navigates
            continue
    if rows < ROWS:
        return {"shown_ms": None, "rows": rows}
    shown_ms, used_s = (time.monotonic() - begun_s) * 1_000, processor_s() - before_s
    await asyncio.sleep(1)
    scrolled = await asyncio.wait_for(view.evaluate(SCROLL, [40]), SHOWN_S_MAX)
    session = await view.context.new_cdp_session(view)
    await session.send("HeapProfiler.collectGarbage")
    used = (await session.send("Runtime.getHeapUsage"))["usedSize"] / 1e6
    if folder := os.environ.get("HANSARD_PICTURES"):
        await view.screenshot(
            path=Path(folder) / f"{abs(hash(address))}.png", timeout=SHOWN_S_MAX * 1_000
        )
    return {"shown_ms": shown_ms, "processor_s": used_s, "heap_mb": used, **scrolled}


async def side(name: str, sizes: tuple[int, ...], program: str, report: Findings) -> dict[int, Any]:
    """Measure the pages of a side."""
    from playwright.async_api import async_playwright  # noqa: PLC0415 -- only where a browser is

    python = (
        os.environ.get("HANSARD_PEERS", str(PYTHON[name])) if name != "hansard" else sys.executable
    )
    measured: dict[int, Any] = {}
    with tempfile.TemporaryDirectory(prefix="hansard-bench-", ignore_cleanup_errors=True) as folder:
        process = await asyncio.create_subprocess_exec(
            *(python, "-m", "benchmarks.peers._page", name, f"{folder}/data", *map(str, sizes)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=ROOT,
        )
        assert process.stdout is not None
        assert process.stdin is not None
        line = await asyncio.wait_for(process.stdout.readline(), READY_S_MAX)
        if not line.startswith(b"{"):
            say(f"   left out: it ended with exit code {await process.wait()}")
            return {}
        served = json.loads(line)
        report.results[f"{NAMED[name]}: versions"] = served["versions"]
        async with async_playwright() as player:
            for size in sizes:
                opened = await player.chromium.launch(executable_path=program, args=list(ARGUMENTS))
                headers = {"Authorization": f"Bearer {served['token']}"} if served["token"] else {}
                view = await opened.new_page(
                    viewport={"width": 1440, "height": 900},
                    bypass_csp=True,
                    extra_http_headers=headers,
                )
                facts = served["pages"][str(size)]
                first = await page(view, facts["address"])
                figures = first
                if first["shown_ms"] is not None:
                    figures = await page(view, facts["address"].replace("/#", "/?again#"))
                measured[size] = figures
                key = f"{NAMED[name]}, {size:,} spans"
                report.results[key] = {
                    "readable spans": facts["readable"],
                    "until readable, s": facts["written_s"],
                    "shown, first, ms": first["shown_ms"] or NO_ANSWER,
                    "shown, again, ms": figures["shown_ms"] or NO_ANSWER,
                    "processor, again, s": figures.get("processor_s"),
                    "scroll": summary(figures["times"]) if figures.get("times") else None,
                    "held, ms": figures.get("held"),
                    "memory, MB": figures.get("heap_mb"),
                }
                say(f"   {key}: {report.results[key]}")
                await opened.close()
        process.stdin.close()
        await asyncio.wait_for(process.wait(), 60)
    return measured


async def measure(report: Findings) -> None:
    """Measure each side, and note the ratios."""
    program = chromium.program(window=True)
    assert program is not None, "set HANSARD_BROWSER or install chromium"
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(QUICK_FLAG, action="store_true", help="200 spans: to see that it works")
    parser.add_argument("--only", choices=PYTHON, action="append", help="sides to measure")
    parser.add_argument("--spans", type=int, action="append", help="sizes of the trace")
    given = parser.parse_args()
    sizes = tuple(given.spans or ((200,) if given.quick else SPANS))
    sides = {name: await side(name, sizes, program, report) for name in given.only or list(PYTHON)}
    ours = sides.get("hansard", {})
    for name, theirs in sides.items():
        for size in theirs if name != "hansard" else ():
            for figure in ("shown_ms", "processor_s", "heap_mb", "held"):
                mine, other = ours.get(size, {}).get(figure), theirs[size].get(figure)
                if mine and other:
                    report.ratios[f"{figure}, {size:,} spans: {NAMED[name]} / Hansard"] = (
                        other / mine
                    )


if __name__ == "__main__":
    benchmark(measure, __doc__)
