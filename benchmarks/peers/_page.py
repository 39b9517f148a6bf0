"""A side with one large trace for each size, and the addresses of their pages.

`python -m benchmarks.peers._page SIDE FOLDER SPANS...` prints them as JSON once the spans can be
read, and serves until its input ends. It runs in the side's own environment.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.peers import _side
from benchmarks.peers._mlflow import OtlpWriter
from benchmarks.peers._side import Server, Writer, free_port, side_of, traces

_side.READY_S = 500.0
READABLE_S_MAX = 600.0

os.environ.setdefault("OTEL_BSP_MAX_QUEUE_SIZE", "100000")
# By default OpenTelemetry drops what is over 2,048 spans; here the page is measured, not the queue.

os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "600")
# By default its client gives up after 120 s, while its server still reads the trace.

PAGES = {
    "mlflow": "/#/experiments/1/traces?selectedEvaluationId={id}",
    "phoenix": "/redirects/traces/{id}",
    "hansard": "/ws/bench/runs/{id}",
}
"""Address of a trace's page, by side."""


WAYS = ("background", "import")


def _http(server: Server, port: int) -> str:
    """Start `hansard up --http` beside a running broker; return the token."""
    token = secrets.token_urlsafe()
    (server.folder / "token").write_text(token)
    (server.folder / "token").chmod(0o600)
    command = [sys.executable, "-m", "hansard", "--data-dir", str(server.folder), "-w", "bench"]
    command += ["up", "--http", f"127.0.0.1:{port}", "--token-file", str(server.folder / "token")]
    url = f"http://127.0.0.1:{port}"
    server.stop()
    started = _side.start(
        command, server.folder, lambda: _side.answers(f"{url}/healthz"), {}, url=url
    )
    server.url, server.process = url, started.process
    return token


def _run(server: Server, batch: str) -> str:
    """Return the imported run of a batch."""
    import hansard  # noqa: PLC0415 -- the peers' environment does not have it

    with hansard.connect(workspace="bench", data_dir=server.folder) as record:
        return next(run for run, life in record.runs() if life.labels.get("batch") == batch)


def main() -> int:
    """Serve and write."""
    name, folder, *numbers = sys.argv[1:]
    side = side_of(name)
    ports = [free_port(), free_port()]
    server: Server = side.serve(Path(folder), ports)
    token = ""
    if name == "hansard":
        token = _http(server, ports[0])
    try:
        writer: Writer
        if name == "mlflow":
            writer = OtlpWriter(server)
        else:
            writer = side.writer(server, next(mode for mode in side.modes if mode.name in WAYS))
        pages: dict[str, Any] = {}
        for number in map(int, numbers):
            batch = f"of-{number}"
            begun_s = time.perf_counter()
            for trace in traces(batch, 1, number - 1, 7):
                writer.write(trace)
                if number - 1 != len(trace.steps):
                    raise AssertionError(trace.name)
            writer.flush()
            until_s = time.monotonic() + READABLE_S_MAX
            while sum(side.readable(server, batch).values()) < number - 1:
                if time.monotonic() > until_s:
                    break  # the page shows what there is; the count says so
                time.sleep(1)
            readable = sum(side.readable(server, batch).values()) + 1
            of_trace = writer.ids.get(f"{batch}-000000") or _run(server, batch)
            trace_id = of_trace[0] if isinstance(of_trace, list) else of_trace
            pages[str(number)] = {
                "address": server.url + PAGES[name].format(id=trace_id),
                "readable": readable,
                "written_s": round(time.perf_counter() - begun_s, 1),
            }
        print(json.dumps({"versions": side.versions(), "token": token, "pages": pages}), flush=True)
        sys.stdin.read()
    finally:
        server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
