"""The view `model_calls`: facts of exchanges, costs by the stated prices, calls of frameworks."""

from datetime import UTC, datetime

import pytest

import hansard
from hansard.domain.steps import Effects
from hansard.ext.steps import call, step

pytestmark = pytest.mark.slow

FACTS = {
    "provider": "openai", "operation": "responses", "model": "gpt-9-2026", "status": 200,
    "finish_reason": "completed", "response_id": "resp_1",
    "tool_calls": [{"id": "1", "name": "mail", "arguments": {"to": "a"}}, {"id": "2", "name": "f"}],
}  # fmt: skip


def test_calls_have_their_facts_and_costs(data_dir, workspace):
    """An exchange has its facts; its cost is that of the newest price for the model that answered,
    cached tokens by their own price; a framework's call has its usage.
    """
    with hansard.connect(workspace, data_dir=data_dir) as record:
        for model, amounts, since in (
            ("gpt-9", {"input_tokens": 99.0}, datetime(2026, 1, 2, tzinfo=UTC)),
            (
                "gpt-9-2026",
                {"input_tokens": 5.0, "cached_tokens": 1.0, "output_tokens": 10.0},
                datetime(2026, 1, 1, tzinfo=UTC),
            ),
            ("gpt-9-2026", {"input_tokens": 4.0}, datetime(2026, 1, 2, tzinfo=UTC)),
            ("gpt-9-2026", {"input_tokens": 77.0}, datetime(2099, 1, 1, tzinfo=UTC)),
        ):
            record.experiments.price(model, amounts, since=since)
        with record.run("w", run="r") as session:

            def exchange():
                yield {"head": {"status": 200, "headers": []}}
                yield {"chunk": {"data": "ab", "sizes": [1], "ms": [12, 15]}}
                session.usage(input_tokens=1000, cached_tokens=400, output_tokens=50)
                sizes = {"bytes": 2, "pieces": 2, "first_ms": 12, "ms": 20}
                yield {"end": {"how": "complete", **sizes, "facts": FACTS}}

            options = {"kind": "model", "effects": Effects.IDEMPOTENT}
            asked = {"model": "gpt-9", "path": "/v1/responses", "identity": "x", "body": {}}
            list(
                call(session, step("openai.responses", exchange, aside=["body"], **options), asked)
            )

            def answer():
                session.usage(input_tokens=7, output_tokens=3)
                return "Hi"

            call(session, step("pydantic.model", answer, **options), {"model": "claude"})
        table = record.sql(
            "SELECT provider, operation, model, requested_model, http_status, ended, "
            "finish_reason, tool_calls, input_tokens, cached_tokens, output_tokens, bytes, chunks, "
            "first_chunk_ms, round(cost, 9), error FROM model_calls ORDER BY step"
        )
        assert table.rows == [
            ("openai", "responses", "gpt-9-2026", "gpt-9", 200, "complete", "completed",
             ["mail", "f"], 1000, 400, 50, 2, 2, 12,
             (600 * 4.0 + 400 * 1.0 + 50 * 10.0) / 1e6, None),
            ("pydantic", "model", "claude", "claude", None, None, None, None, 7, None, 3,
             None, None, None, None, None),
        ]  # fmt: skip
        took = record.sql(
            "SELECT s.duration_ms, c.duration_ms FROM steps AS s JOIN model_calls AS c USING (step)"
        )
        assert len(took.rows) == 2
        assert all(one == other > 0 for one, other in took.rows)
