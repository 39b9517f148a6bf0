"""Phoenix: its server on sqlite, its OTLP endpoint over HTTP, its own `register` and client.

Its defaults. `awaited` is plain `register()`: each span is one request, and the call waits for the
answer. `background` is `register(batch=True)`, which its documentation recommends for production.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.peers._side import PAUSE_S, Mode, Questions, Server, Trace, answers, start

QUIET = {"PHOENIX_TELEMETRY_ENABLED": "false", "DO_NOT_TRACK": "true"}
PROJECT = "bench"
LIMIT = 1_000_000
RETURNED = "the call returned without error; a background thread sends"
AWAITED = "the call returned without error, each span being sent when it ends"


def module(name: str) -> Any:
    """Import a module from an environment that type checkers do not see."""
    os.environ.update(QUIET)
    return importlib.import_module(name)


class PhoenixWriter:
    """OpenTelemetry as Phoenix registers it."""

    def __init__(self, server: Server, mode: Mode) -> None:
        self._provider = module("phoenix.otel").register(
            endpoint=f"{server.url}/v1/traces",
            project_name=PROJECT,
            protocol="http/protobuf",
            batch=mode.name != "awaited",
            set_global_tracer_provider=False,
            verbose=False,
        )
        self._tracer = self._provider.get_tracer("bench")
        self._using = module("openinference.instrumentation").using_attributes
        self.ids: dict[str, Any] = {}

    def write(self, trace: Trace) -> None:
        """Write a span for the run, and one within it for each step; the session's id is the run's
        name.
        """
        about = {"batch": trace.batch, "arm": trace.arm, "task": trace.task}
        span_of = self._tracer.start_as_current_span
        with (
            self._using(session_id=trace.name, metadata=about),
            span_of("agent", openinference_span_kind="agent") as root,
        ):
            for step in trace.steps:
                with span_of(step.tool, openinference_span_kind="tool") as span:
                    span.set_input(step.arguments)
                    span.set_output(step.result)
            context = root.get_span_context()
        self.ids[trace.name] = [f"{context.trace_id:032x}", f"{context.span_id:016x}"]

    def flush(self) -> None:
        """OpenTelemetry's own: up to 30 s."""
        self._provider.force_flush()

    def close(self) -> None:
        """Stop the background thread, if there is one."""
        self._provider.shutdown()


class Phoenix:
    """The side."""

    modes = (Mode("background", RETURNED), Mode("awaited", AWAITED))
    losses = (
        Mode("background", RETURNED, pause_s=PAUSE_S),
        Mode("background, writer lives", RETURNED, survives=True, pause_s=PAUSE_S),
        Mode("background, flushed", "its flush returned after each run", flush_each=True),
        Mode("awaited", AWAITED),
    )

    def versions(self) -> dict[str, str]:
        """Phoenix's, its client's, OpenTelemetry's."""
        names = ("arize-phoenix", "arize-phoenix-client", "arize-phoenix-otel", "opentelemetry-sdk")
        return {name: metadata.version(name) for name in names}

    def serve(self, folder: Path, ports: Sequence[int]) -> Server:
        """`phoenix serve`, with the sqlite file that it makes by default."""
        port, grpc = ports
        env = QUIET | {
            "PHOENIX_WORKING_DIR": str(folder),
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": str(port),
            "PHOENIX_GRPC_PORT": str(grpc),
        }
        program = str(Path(sys.executable).parent / "phoenix")
        url = f"http://127.0.0.1:{port}"
        command = [program, "serve"]
        return start(command, folder, lambda: answers(f"{url}/healthz"), env, url=url)

    def writer(self, server: Server, mode: Mode) -> PhoenixWriter:
        """OpenTelemetry."""
        return PhoenixWriter(server, mode)

    def _client(self, server: Server) -> Any:
        return module("phoenix.client").Client(base_url=server.url)

    def readable(self, server: Server, batch: str) -> dict[str, int]:
        """By `get_spans_dataframe`."""
        query = module("phoenix.client.types.spans").SpanQuery()
        query = query.where(f"metadata['batch'] == '{batch}'").select("parent_id", "session.id")
        frame = self._client(server).spans.get_spans_dataframe(
            query=query, project_identifier=PROJECT, limit=LIMIT, timeout=120
        )
        if not len(frame):
            return {}
        spans: Counter[str] = Counter(frame["session.id"])
        roots = frame["session.id"][frame["parent_id"].isna()]
        return {run: spans[run] - 1 for run in roots}

    def settle(self, server: Server) -> None:
        """Return at once: Phoenix does not report it, and `readable` is polled."""

    def score(self, server: Server, ids: Mapping[str, Any], scores: Mapping[str, float]) -> None:
        """Record an annotation for each run."""
        self._client(server).spans.log_span_annotations(
            span_annotations=[
                {
                    "span_id": ids[name][1],
                    "name": "score",
                    "annotator_kind": "CODE",
                    "result": {"score": value},
                }
                for name, value in scores.items()
            ],
            sync=True,
        )

    @contextlib.contextmanager
    def questions(self, server: Server, batch: str, ids: Mapping[str, Any]) -> Iterator[Questions]:
        """`get_spans`; the annotated spans as its documentation exports them."""
        client = self._client(server)
        query = module("phoenix.client.types.spans").SpanQuery()
        asked = query.where(f"annotations['score'] and metadata['batch'] == '{batch}'").select(
            "metadata"
        )

        def exported() -> dict[str, float]:
            spans = client.spans.get_spans_dataframe(
                query=asked, project_identifier=PROJECT, limit=LIMIT, timeout=120
            )
            told = client.spans.get_span_annotations_dataframe(
                span_ids=list(spans.index), project_identifier=PROJECT, timeout=120
            )
            both = spans.join(told["result.score"])
            arms = [
                json.loads(each)["arm"] if isinstance(each, str) else each["arm"]
                for each in both["metadata"]
            ]
            means = both["result.score"].groupby(arms).mean()
            return {str(arm): float(mean) for arm, mean in means.items()}

        def trail(name: str) -> int:
            found = client.spans.get_spans(
                project_identifier=PROJECT, trace_ids=[ids[name][0]], limit=10_000
            )
            return len(found) - 1

        yield Questions(trail, {"dataframe of annotated spans": exported})


SIDE = Phoenix()
