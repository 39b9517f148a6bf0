"""MLflow: its tracking server on sqlite, its tracing SDK.

Its defaults but for the server's job runner (online scoring, archival), which is off: it would only
take processor time from it. `background` is the SDK's default; `awaited` is what its documentation
offers where a trace must be stored when the call returns (MLFLOW_ENABLE_ASYNC_TRACE_LOGGING=false).
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.peers._side import ARMS, PAUSE_S, Mode, Questions, Server, Trace, answers, start

QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
EXPERIMENT = "bench"
RETURNED = "the call returned without error; a background thread sends"
AWAITED = "the call returned without error, asynchronous logging being off"


def mlflow() -> Any:
    """Import the module from an environment that type checkers do not see."""
    os.environ.update(QUIET)
    return importlib.import_module("mlflow")


class MlflowWriter:
    """The tracing SDK."""

    def __init__(self, server: Server, mode: Mode) -> None:
        if mode.name == "awaited":
            os.environ["MLFLOW_ENABLE_ASYNC_TRACE_LOGGING"] = "false"
        self._mlflow = mlflow()
        self._mlflow.set_tracking_uri(server.url)
        self._mlflow.set_experiment(EXPERIMENT)
        self.ids: dict[str, Any] = {}

    def write(self, trace: Trace) -> None:
        """Write a span for the run, and one within it for each step."""
        with self._mlflow.start_span(name="agent", span_type="AGENT") as root:
            self._mlflow.update_current_trace(
                tags={"run": trace.name, "batch": trace.batch, "arm": trace.arm, "task": trace.task}
            )
            for step in trace.steps:
                with self._mlflow.start_span(name=step.tool, span_type="TOOL") as span:
                    span.set_inputs(step.arguments)
                    span.set_outputs(step.result)
        self.ids[trace.name] = root.trace_id

    def flush(self) -> None:
        """Wait until the background thread has sent, or has given up."""
        self._mlflow.flush_trace_async_logging()

    def close(self) -> None:
        """Nothing is held."""


class OtlpWriter:
    """OpenTelemetry to the server's endpoint: the SDK sends each span by itself, and loses some."""

    def __init__(self, server: Server) -> None:
        self._mlflow = mlflow()
        self._mlflow.set_tracking_uri(server.url)
        experiment = self._mlflow.set_experiment(EXPERIMENT).experiment_id
        trace = importlib.import_module("opentelemetry.sdk.trace")
        export = importlib.import_module("opentelemetry.sdk.trace.export")
        http = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
        self._provider = trace.TracerProvider()
        exporter = http.OTLPSpanExporter(
            f"{server.url}/v1/traces", headers={"x-mlflow-experiment-id": experiment}, timeout=600
        )
        self._provider.add_span_processor(export.BatchSpanProcessor(exporter))
        self.ids: dict[str, Any] = {}
        self._tags: dict[str, dict[str, str]] = {}

    def write(self, trace: Trace) -> None:
        """Write a span for the run, and one within it for each step."""
        tracer = self._provider.get_tracer("bench")
        with tracer.start_as_current_span("agent", attributes={"mlflow.spanType": "AGENT"}) as root:
            for step in trace.steps:
                values = {
                    "mlflow.spanType": "TOOL",
                    "mlflow.spanInputs": json.dumps(step.arguments),
                    "mlflow.spanOutputs": json.dumps(step.result),
                }
                tracer.start_span(step.tool, attributes=values).end()
        self.ids[trace.name] = f"tr-{root.get_span_context().trace_id:032x}"
        self._tags[self.ids[trace.name]] = {"run": trace.name, "batch": trace.batch}

    def flush(self) -> None:
        """Wait until all is sent, then name the traces."""
        self._provider.force_flush(600_000)
        for trace, tags in self._tags.items():
            for name, value in tags.items():
                self._mlflow.set_trace_tag(trace, name, value)
        self._tags.clear()

    def close(self) -> None:
        """Stop the background thread."""
        self._provider.shutdown()


class Mlflow:
    """The side."""

    modes = (Mode("background", RETURNED), Mode("awaited", AWAITED))
    losses = (
        Mode("background", RETURNED, pause_s=PAUSE_S),
        Mode("background, writer lives", RETURNED, survives=True, pause_s=PAUSE_S),
        Mode("background, flushed", "its flush returned after each run", flush_each=True),
        Mode("awaited", AWAITED),
    )

    def versions(self) -> dict[str, str]:
        """MLflow's."""
        return {"mlflow": metadata.version("mlflow")}

    def serve(self, folder: Path, ports: Sequence[int]) -> Server:
        """`mlflow server`, with the sqlite file that it makes by default."""
        port = ports[0]
        program = str(Path(sys.executable).parent / "mlflow")
        env = QUIET | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        command = [program, "server", "--host", "127.0.0.1", "--port", str(port)]
        url = f"http://127.0.0.1:{port}"
        return start(command, folder, lambda: answers(f"{url}/health"), env, url=url)

    def writer(self, server: Server, mode: Mode) -> MlflowWriter:
        """Return a writer by the SDK."""
        return MlflowWriter(server, mode)

    def _search(self, server: Server, batch: str, *, spans: bool) -> list[Any]:
        module = mlflow()
        module.set_tracking_uri(server.url)
        module.set_experiment(EXPERIMENT)
        found: list[Any] = module.search_traces(
            filter_string=f"tags.batch = '{batch}'", return_type="list", include_spans=spans
        )
        return found

    def readable(self, server: Server, batch: str) -> dict[str, int]:
        """By `search_traces`."""
        found = self._search(server, batch, spans=True)
        return {each.info.tags["run"]: len(each.data.spans) - 1 for each in found}

    def settle(self, server: Server) -> None:
        """Return at once: MLflow does not report it, and `readable` is polled."""

    def score(self, server: Server, ids: Mapping[str, Any], scores: Mapping[str, float]) -> None:
        """Record a feedback for each run."""
        module = mlflow()
        module.set_tracking_uri(server.url)
        for name, value in scores.items():
            module.log_feedback(trace_id=ids[name], name="score", value=value)

    @contextlib.contextmanager
    def questions(self, server: Server, batch: str, ids: Mapping[str, Any]) -> Iterator[Questions]:
        """`get_trace`; `search_traces`, and the metrics that the server works out for its pages."""
        module = mlflow()
        module.set_tracking_uri(server.url)
        experiment = module.get_experiment_by_name(EXPERIMENT).experiment_id
        session = importlib.import_module("requests").Session()

        def searched() -> dict[str, float]:
            scores: dict[str, list[float]] = {}
            for each in self._search(server, batch, spans=False):
                for told in each.info.assessments:
                    scores.setdefault(each.info.tags["arm"], []).append(told.value)
            return {arm: sum(found) / len(found) for arm, found in scores.items()}

        def asked() -> dict[str, float]:
            return {arm: mean_of(arm) for arm in ARMS}

        def mean_of(arm: str) -> float:
            body = {
                "experiment_ids": [experiment],
                "view_type": "ASSESSMENTS",
                "metric_name": "assessment_value",
                "aggregations": [{"aggregation_type": "AVG"}],
                "filters": [f"trace.tag.arm = '{arm}'", f"trace.tag.batch = '{batch}'"],
            }
            told = session.post(
                f"{server.url}/api/3.0/mlflow/traces/metrics", json=body, timeout=60
            )
            told.raise_for_status()
            [point] = told.json()["data_points"]
            return float(point["values"]["AVG"])

        def trail(name: str) -> int:
            return len(module.get_trace(ids[name]).data.spans) - 1

        yield Questions(trail, {"search_traces": searched, "metrics endpoint": asked})
        session.close()


SIDE = Mlflow()
