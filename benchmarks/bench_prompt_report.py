"""How long does the report over a million judged runs of ten versions of a prompt take?

The rows are made in SQL, as a projector leaves them: each run has one call that was given a
version, two scores and its tokens. The macro `prompt_report` is run in turn with the plainest query
for the same means and no intervals, as a ratio.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks import _report
from hansard.projections.store import Store

RUNS = 1_000_000
RUNS_QUICK = 5_000
ROUNDS = 3
VERSIONS = 10

FILL = (
    """INSERT INTO prompt_versions BY NAME SELECT 'rag' AS prompt, i AS version, '' AS text,
        [] AS parents, [] AS feedback_applied, now()::TIMESTAMP AS added_at, 'b' AS added_by,
        'e' || i AS event, i AS position FROM range(1, {versions} + 1) AS r(i)""",
    """INSERT INTO runs BY NAME SELECT 'run-' || i AS run, if(i % 17 = 0, 'failed', 'completed') AS
        status, 0 AS resumed, i AS first_position, i AS last_position FROM range({runs}) AS r(i)""",
    """INSERT INTO steps BY NAME SELECT 'run-' || i AS run, 'ada' AS agent, 'ada' AS role,
        1 AS step, 'ask' AS tool, 'model' AS kind, 'completed' AS status, 1 AS attempts,
        false AS inherited, i AS requested_position,
        [{{'prompt': 'rag', 'version': 1 + i % {versions}, 'alias': NULL}}] AS prompts
        FROM range({runs}) AS r(i)""",
    """INSERT INTO outcomes BY NAME SELECT 'run-' || i AS run, 'success' AS metric,
        (hash(i) % 100 < 50 + i % {versions})::DOUBLE AS value, 'judge' AS judged_by, 3 AS version,
        i AS position, now()::TIMESTAMP AS happened_at FROM range({runs}) AS r(i)""",
    """INSERT INTO outcomes BY NAME SELECT 'run-' || i AS run, 'f1' AS metric,
        (hash(i) % 1000) / 1000 AS value, 'judge' AS judged_by, 3 AS version, i AS position,
        now()::TIMESTAMP AS happened_at FROM range({runs}) AS r(i)""",
    """INSERT INTO usage BY NAME SELECT 'run-' || i AS run, 'ada' AS agent, 'step' AS of, 1 AS step,
        2 AS version, 'output_tokens' AS metric, 100 + hash(i) % 900 AS amount, i AS position,
        now()::TIMESTAMP AS happened_at FROM range({runs}) AS r(i)""",
)

REPORT = "SELECT version, metric, value FROM prompt_report(of_prompt := 'rag') ORDER BY 1, 2"

PLAIN = """
    WITH used AS (SELECT run, prompts[1].version AS version FROM steps WHERE prompts IS NOT NULL)
    SELECT * FROM (
        SELECT u.version, if(o.metric = 'success', 'success_rate', o.metric) AS metric, avg(o.value)
        FROM used AS u JOIN outcomes AS o ON o.run = u.run GROUP BY 1, 2
        UNION ALL
        SELECT u.version, 'completion_rate', avg((r.status = 'completed')::INT)
        FROM used AS u JOIN runs AS r ON r.run = u.run GROUP BY 1
        UNION ALL
        SELECT u.version, 'avg_tokens', avg(t.amount)
        FROM used AS u JOIN usage AS t ON t.run = u.run GROUP BY 1
    ) ORDER BY 1, 2
"""


def timed(store: Store, sql: str) -> tuple[float, list[tuple[object, ...]]]:
    """Return the time of an answer in ms, and the answer with numbers to 9 digits."""
    began = time.perf_counter_ns()
    rows = store.all(sql)
    took = (time.perf_counter_ns() - began) / 1e6
    return took, [(version, metric, round(value, 9)) for version, metric, value in rows]


def main() -> None:
    """Fill, then ask both in turn."""
    runs = _report.sized(RUNS, RUNS_QUICK)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "lab.duckdb")
        for each in FILL:
            store.all(each.format(runs=runs, versions=VERSIONS))
        _report.say(f"{runs:,} runs")
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(ROUNDS):
            took, found = timed(store, REPORT)
            ours.append(took)
            took, other = timed(store, PLAIN)
            theirs.append(took)
            if found != other:
                message = f"{found[:4]} here, {other[:4]} by the plain question"
                raise AssertionError(message)
        store.close()
    _report.emit(
        question=f"How long does the report over {runs:,} judged runs take?",
        results={
            "runs": runs,
            "prompt_report": _report.summary(ours),
            "plain means": _report.summary(theirs),
        },
        ratios={"prompt_report to plain means": median(ours) / median(theirs)},
        goals={},
    )


if __name__ == "__main__":
    main()
