"""How long does the engine take to tell a run's trail, and why a decision was made?

On tables of a million events (a real mix, every tenth run a fork), made from memory: the audit
macros `trail`, `decided` and `why` for decisions spread over the whole record, against the same
question over a plain JSON column of the same events, in turn. Then what all audit views find, over
everything. Goal: one decision's trail in under 20 ms. `--events N` makes another size.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks._report import Findings, say, sized, summary
from benchmarks.bench_project import log_of
from hansard.bus import subjects
from hansard.bus.commits import encode
from hansard.bus.log import RawMessage
from hansard.projections.rows import Rows
from hansard.projections.runner import BATCH_EVENTS_MAX
from hansard.projections.store import Store

EVENTS = 1_000_000
EVENTS_QUICK = 20_000
BEGAN_NS = 1_795_000_000_000_000_000
MILLISECOND_NS = 1_000_000
SIZE = "--events"
VIEWS = (
    *("orphan_intents", "policy_overrides", "retries", "gaps", "threshold_flips(0.01)"),
    *("odd_models", "odd_scores", "odd_selection", "odd_copies", "odd_times", "odd_failures"),
    *("odd_costs", "checked_topics(NULL)", "findings(0.01)"),
)

PLAIN = """
    CREATE TABLE plain AS
    SELECT to_json({'position': position, 'index': event_index, 'id': id, 'type': type,
        'stream': stream, 'run': run, 'agent': agent, 'version': version, 'actor': actor,
        'at': happened_at, 'commit': commit_id, 'data': data}) AS body
    FROM events ORDER BY position, event_index
"""
"""One JSON text an event, as logs of events are often kept."""

PLAIN_TRAIL = """
    SELECT body->>'position', body->>'index', body->>'at', body->>'actor', body->>'type',
        body->'data'
    FROM plain
    WHERE body->>'run' = $1 AND body->>'type' NOT IN ('step.yielded.v1', 'tool.declared.v1')
    ORDER BY (body->>'position')::BIGINT, (body->>'index')::BIGINT
"""
PLAIN_WHY = """
    SELECT p.body->>'type', p.body->>'version', p.body->'data'
    FROM plain AS d
    JOIN plain AS p ON p.body->>'run' = d.body->>'run' AND p.body->>'agent' = d.body->>'agent'
    WHERE d.body->>'id' = $1
    ORDER BY (p.body->>'version')::BIGINT
"""


def size() -> int:
    """Return the requested number of events."""
    if SIZE in sys.argv:
        return int(sys.argv[sys.argv.index(SIZE) + 1])
    return sized(EVENTS, EVENTS_QUICK)


def filled(path: Path, events: int) -> Store:
    """Tables of so many events, and the plain column."""
    store, rows, position = Store(path), Rows(), 0
    for append in log_of(events):
        position += 1
        subject = subjects.subject("lab", append.stream, append.commit.version)
        at_ns = BEGAN_NS + position * MILLISECOND_NS
        rows.add(RawMessage(position, at_ns, subject, encode(append.stream, append.commit)))
        if len(rows) >= BATCH_EVENTS_MAX:
            _write(store, rows, position)
    _write(store, rows, position)
    store.all(PLAIN)
    store.close()
    return Store(path, read_only=True)  # as for queries of a published generation


def _write(store: Store, rows: Rows, position: int) -> None:
    batch = rows.take()
    if batch is not None:
        store.write(batch, position)


def asked(store: Store, sql: str, *given: object) -> Callable[[], int]:
    """Return a function that runs a query and gives its number of rows."""
    return lambda: len(store.all(sql, given))


def taken(works: list[Callable[[], int]]) -> list[float]:
    """Milliseconds of each."""
    times: list[float] = []
    for work in works:
        start = time.perf_counter_ns()
        rows = work()
        times.append((time.perf_counter_ns() - start) / 1e6)
        assert rows, "an answer has no rows: the question was asked of nothing"
    return times


def measure(found: Findings, folder: Path) -> None:
    """Fill the tables, then ask in turn."""
    store = filled(folder / "t.duckdb", size())
    [(events,)] = store.all("SELECT count(*) FROM events")
    say(f"{events:,} events")
    rounds, plain_rounds = sized(40, 5), sized(5, 2)
    decisions = store.all(
        "SELECT decision, run FROM (SELECT *, ntile($1) OVER (ORDER BY decision) AS part "
        "FROM decisions) QUALIFY row_number() OVER (PARTITION BY part ORDER BY decision) = 1",
        [rounds + 1],
    )
    questions: dict[str, list[Callable[[], int]]] = {
        "trail of a run": [asked(store, "FROM trail($1)", run) for _, run in decisions],
        "decisions of a run": [asked(store, "FROM decided($1)", run) for _, run in decisions],
        "why of a decision": [asked(store, "FROM why($1)", each) for each, _ in decisions],
        "trail, plain JSON column": [asked(store, PLAIN_TRAIL, run) for _, run in decisions],
        "why, plain JSON column": [asked(store, PLAIN_WHY, each) for each, _ in decisions],
    }
    middle: dict[str, float] = {}
    for name, works in questions.items():
        few = works[: plain_rounds + 1] if "plain" in name else works
        times = taken(few)[1:]  # the first one warms up
        middle[name] = median(times)
        found.results[f"{name} ({events:,} events)"] = summary(times)
    trail, why = middle["trail of a run"], middle["why of a decision"]
    found.ratios["trail: plain JSON column / tables, time"] = (
        middle["trail, plain JSON column"] / trail
    )
    found.ratios["why: plain JSON column / tables, time"] = middle["why, plain JSON column"] / why
    for view in VIEWS:
        times = taken([asked(store, f"SELECT count(*) FROM {view}")] * sized(3, 1))
        found.results[f"{view}, over all"] = summary(times)
    found.goals["a run's trail < 20 ms in the engine"] = trail < 20
    found.goals["why of one decision < 20 ms in the engine"] = why < 20
    store.close()


def main() -> int:
    """Measure and report."""
    found = Findings()
    with tempfile.TemporaryDirectory(prefix="hansard-bench-") as folder:
        measure(found, Path(folder))
    found.emit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
