"""Reads of the page's views beside those of `reads.py`: reports in words, histories, the search.

A report has the lines of `--json` and its blocks: headings, sentences and tables. A role gets those
that an operation gives it (`record.why`, `record.experiments.compare`); the others are refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any, Literal

import msgspec

from hansard.agents.edits import find_step
from hansard.agents.memory.store import MemoryStore
from hansard.agents.steps import payloads
from hansard.client.opening import data_dir_of, reading_raw
from hansard.domain.errors import BadValue
from hansard.inspect import audit as audits
from hansard.inspect import bisect as bisection
from hansard.inspect import comparison_parts
from hansard.inspect import experiments as reports
from hansard.inspect import memory as memories
from hansard.inspect.answer import Answer, find_run
from hansard.inspect.fork_plan import MENTION_CHARACTERS_MIN, mentioned, strings
from hansard.inspect.run import KeyHistory, key_history
from hansard.inspect.trace import Payloads
from hansard.projections import full_text
from hansard.projections.errors import Held, Unusable
from hansard.projections.snapshots import Reader
from hansard.service.http.routes import Context, read

HITS_MAX = 200
"""Most events that one search returns."""


class Lines(msgspec.Struct, kw_only=True):
    """An answer.

    Attributes:
        lines: The lines that the command prints with `--json`.
        blocks: The report in words: each is a `heading`, a `paragraph`, a `table` or a `plot`.
        position: The position as of which it holds.
    """

    lines: list[Any]
    blocks: list[dict[str, Any]] = []
    position: int | None = None


def _lines(answer: Answer | Iterable[object], blocks: Iterable[object] = ()) -> Lines:
    rows = answer.lines() if isinstance(answer, Answer) else answer
    position = getattr(answer, "position", None)
    return Lines(lines=list(rows), blocks=[_block(each) for each in blocks], position=position)


def _block(block: Any) -> dict[str, Any]:
    """Return a block with the name of its kind; a plot names its metric, and `lines` has it."""
    name = type(block).__name__.lower()
    if isinstance(block, comparison_parts.Plot):
        return {"block": name, "kind": block.kind, "metric": block.part.metric}
    return {"block": name, **msgspec.structs.asdict(block)}


# ---------------------------------------------------------------- decisions and values


class Why(Lines, kw_only=True):
    """The reasons of a decision.

    Attributes:
        causes: Results behind the inputs, level by level, at most `CAUSES_MAX`: each with its
            `address`, and that of the result in which it was used (`of`).
    """

    causes: list[dict[str, Any]] = []


CAUSES_MAX, LEVELS_MAX = 500, 8
"""Most results behind the inputs of a decision, and most steps back from it."""

_CAUSES = """
    WITH ended AS (
        SELECT s.*, CAST(s.result AS VARCHAR) AS text,
            address_of(e.position, e.event_index) AS address
        FROM steps AS s JOIN events AS e
            ON e.run = s.run AND e.agent = s.agent AND e.version = s.outcome_version
        WHERE s.run = $1
    )
    SELECT f.address AS of, c.address, c.agent, c.step, c.tool, left(c.text, 200) AS words,
        c.agent = f.agent AND list_contains(f.after, c.step) AS is_next
    FROM ended AS f JOIN ended AS c
        ON c.outcome_position <= f.requested_position AND c.address <> f.address AND (
            (c.agent = f.agent AND list_contains(f.after, c.step))
            OR (json_type(c.result) = 'VARCHAR' AND length(c.text) > $3
                AND contains(CAST(f.arguments AS VARCHAR), substr(c.text, 2, length(c.text) - 2)))
            OR (f.tool = 'board.get' AND starts_with(c.tool, 'board.') AND c.tool <> f.tool
                AND c.arguments->>'key' = f.arguments->>'key')
        )
    WHERE list_contains($2::VARCHAR[], f.address)
    ORDER BY c.outcome_position DESC LIMIT $4
"""
"""The results that were used in the calls whose results are at some addresses."""


class _Causes(Answer):
    rows: list[dict[str, Any]]


def _causes(run: str, addresses: list[str], reader: Reader) -> _Causes:
    """Return the results behind some results, step by step, the nearest first."""
    causes: list[dict[str, Any]] = []
    known = set(addresses)
    for _ in range(LEVELS_MAX):
        left = CAUSES_MAX - len(causes)
        if not addresses or left <= 0:
            break
        rows = reader.rows(_CAUSES, (run, addresses, MENTION_CHARACTERS_MIN + 1, left))
        causes += rows
        addresses = [*dict.fromkeys(row["address"] for row in rows if row["address"] not in known)]
        known.update(addresses)
    return _Causes(causes)


@read("/report/why")
async def why(context: Context, *, of: str) -> Why:
    """Explain a decision, or list the decisions of a run.

    Args:
        of: A decision's id or address, or a run: its only decision, or the list.
    """
    answer: Any = await context.record.why(of)
    if isinstance(answer, audits.Decisions) and len(answer.rows) == 1:
        answer = await context.record.why(answer.rows[0]["decision"])
    lines = _lines(answer, audits.blocks(answer))
    causes: list[dict[str, Any]] = []
    if isinstance(answer, audits.DecisionFacts):
        named = {row["name"]: row["value"] for row in answer.rows if row["part"] == "decision"}
        inputs = [row["address"] for row in answer.rows if row["part"] == "input"]
        reads = partial(
            _causes, msgspec.json.decode(named["run"]), [each for each in inputs if each]
        )
        causes = (await context.tables.read(reads, "why", of)).rows
    return Why(lines=lines.lines, blocks=lines.blocks, position=lines.position, causes=causes)


class Origin(msgspec.Struct, kw_only=True):
    """The writes and the reads of a key of shared state.

    Attributes:
        history: The value now, and each write, as of `hansard board RUN KEY --json`.
        reads: The calls that read the key, in order: run, agent, step, address, time.
        position: The position as of which it holds.
    """

    history: Lines
    reads: list[dict[str, Any]]
    position: int | None = None


_READS_OF_KEY = """
    SELECT s.run, s.agent, s.role, s.step, s.tool, address_of(e.position, e.event_index) AS address,
        s.requested_position AS position, s.requested_at AS at, s.arguments, s.result
    FROM steps AS s
    JOIN events AS e ON e.position = s.requested_position AND e.version = s.requested_version
        AND e.agent = s.agent
    WHERE s.run = $1 AND (
        (s.tool = 'board.get' AND s.arguments->>'key' = $2)
        OR (s.tool = 'board.commit' AND contains(
            CAST(s.arguments->'reads' AS VARCHAR), concat('[', CAST(to_json($2) AS VARCHAR), ',')
        ))
    )
    ORDER BY s.requested_position
"""


@read("/runs/{run}/origin/{key}")
async def origin(context: Context, run: str, key: str, *, at: str | None = None) -> Origin:
    """Return each write of a key of a run's shared state, and the calls that read it afterwards.

    Args:
        run: The run.
        key: The key.
        at: The point up to which writes are listed; by default now.
    """
    workspace = context.trusted("the history of a key").workspace
    run = await find_run(workspace, run)
    up_to = await workspace.points.up_to(run, at)
    history: KeyHistory = await key_history(workspace, run, key, up_to, Payloads(workspace))
    reads = await context.tables.read(
        lambda reader: reader.rows(_READS_OF_KEY, [run, key]), "steps"
    )
    return Origin(history=_lines(history), reads=reads, position=history.now.position)


class ResultTrail(msgspec.Struct, kw_only=True):
    """Where a call's arguments have their texts from, and where its result was used.

    Attributes:
        step: The call, as `agent#number`.
        tool: The tool.
        arguments: The arguments.
        result: The result; the items of a stream.
        sources: Earlier events that have a text of the arguments, the newest first.
        uses: Later events that follow the result in its scope, name it, or have a text of it.
        characters: The shortest text that is searched.
        limit: The most events of each list.
        position: The position as of which it holds.
    """

    step: str
    tool: str
    arguments: Any
    result: Any
    sources: list[dict[str, Any]]
    uses: list[dict[str, Any]]
    characters: int = MENTION_CHARACTERS_MIN
    limit: int = HITS_MAX
    position: int | None = None


_EVENTS_WITH = """
    SELECT * REPLACE (left(value, 200) AS value) FROM (
    SELECT replace(type, '.v1', '') AS type, agent, actor,
        address_of(position, event_index) AS address, logged_at AS at,
        coalesce(data->>'tool', data->>'question', data->>'role', '') AS name,
        data->>'step' AS step,
        coalesce(data->>'result', data->>'content', data->>'value') AS value,
        agent = $2 AND list_contains(TRY_CAST(data->'after' AS BIGINT[]), $3) AS is_next
    FROM events
    WHERE run = $1 AND position > $4 AND position < $5 AND (
        (agent = $2 AND list_contains(TRY_CAST(data->'after' AS BIGINT[]), $3))
        OR len(list_filter($6::VARCHAR[], lambda text: contains(CAST(data AS VARCHAR), text))) > 0
        OR (length(value) >= $8 AND contains($9, value))
    )
    ORDER BY position {} LIMIT $7)
"""


@read("/runs/{run}/result/{step}")
async def result_trail(context: Context, run: str, step: str) -> ResultTrail:
    """Return where the texts of a call's arguments are from, and which events used its result.

    Texts of other events are compared as they are recorded; what is kept as a blob is not searched.

    Args:
        run: The run.
        step: The call, as `agent#number`, or the address of one of its events.
    """
    workspace = context.trusted("the origin of a result").workspace
    run = await find_run(workspace, run)
    view = await workspace.states.run(run)
    agent, call = find_step(view, await workspace.points.step_name(run, step))
    stream = view.stream_of(agent)
    steps, values = payloads.Reader(lambda: view.agents[agent]), Payloads(workspace)
    arguments = await values.get(steps.arguments(call), call.arguments)
    result = await values.get(steps.result(call), call.result)
    if call.streamed:
        result = [await values.value(item) for item in call.items]
    begin = await workspace.states.position_of(stream, call.version) or 0
    outcome = call.outcome_version or call.version
    end = await workspace.states.position_of(stream, outcome) or 0
    commit = (await workspace.log.at(end)).commit
    named = [*mentioned(result), commit.events[outcome - commit.version].id]

    def texts(values: list[str]) -> list[str]:
        return [msgspec.json.encode(each)[1:-1].decode() for each in values]

    def read(reader: Reader) -> list[list[dict[str, Any]]]:
        searched, least = texts(mentioned(arguments)), MENTION_CHARACTERS_MIN
        whole = "\n".join(strings(arguments))
        sources = (run, agent, 0, 0, begin, searched, HITS_MAX, least, whole)
        end_of_run = view.position + 1
        uses = (run, agent, call.number, end, end_of_run, texts(named), HITS_MAX, least, "")
        return [
            reader.rows(_EVENTS_WITH.format("DESC"), sources),
            reader.rows(_EVENTS_WITH.format("ASC"), uses),
        ]

    before, after = await context.tables.read(read, "events")
    return ResultTrail(
        step=f"{agent}#{call.number}",
        tool=call.tool,
        arguments=arguments,
        result=result,
        sources=before,
        uses=after,
        position=view.position,
    )


@read("/runs/{run}/bisect")
async def bisect(
    context: Context,
    run: str,
    *,
    test: bisection.Relation,
    pointer: str = "",
    value: str = "null",
    agent: str | None = None,
) -> Lines:
    """Find the first step after which a condition on the state no longer holds, by binary search.

    Args:
        run: The run.
        test: The test of the value: it must hold at the beginning of the run, and not at its end.
        pointer: The tested value, as a JSON Pointer into the state: `/life/board/plan/value`.
        value: The other side of the test, as JSON; anything else is a text. The empty text is `""`.
        agent: Only the steps of this agent.
    """
    workspace = context.trusted("the search for a step").workspace
    run = await find_run(workspace, run)
    if not value:
        raise BadValue("value", "it is empty", 'give JSON or a text; the empty text is ""')
    try:
        other: Any = msgspec.json.decode(value)
    except msgspec.DecodeError:
        other = value
    condition = bisection.Condition(pointer=pointer, test=test, value=other)
    check = partial(condition.check, workspace, run)
    return _lines(await bisection.bisected(workspace, run, agent, str(condition), check))


# ---------------------------------------------------------------- reports


@read("/report/compare")
async def compare(
    context: Context,
    *,
    experiment: str,
    metric: str | None = None,
    baseline: str | None = None,
    by: str | None = None,
    missing: Literal["failure", "excluded", "worst-case"] | None = None,
    all_pairs: bool = False,
) -> Lines:
    """Compare the arms of an experiment.

    Args:
        experiment: The experiment.
        metric: Judge by this metric instead of the plan's.
        baseline: Compare with this arm.
        by: Also by each value of this label of runs.
        missing: How a trial without a value counts, instead of the plan's rule.
        all_pairs: Compare each pair of arms, and rank them.
    """
    options: dict[str, Any] = {"metric": metric, "baseline": baseline, "by": by}
    options |= {"missing": missing, "all_pairs": all_pairs}
    made = await context.record.experiments.compare(experiment, **options)
    return _lines(made, comparison_parts.blocks(made.report))


# ---------------------------------------------------------------- prompts and memory


@read("/prompts/{name}/{version}")
async def prompt_version(context: Context, name: str, version: str) -> reports.ShownPrompt:
    """Return a version of a prompt: its text, its parents and its feedback.

    Args:
        name: The prompt.
        version: A number, or an alias.
    """
    return await reports.show(context.trusted("a prompt").workspace, f"{name}@{version}")


@read("/prompts/{name}/{version}/diff/{after}")
async def prompt_diff(context: Context, name: str, version: str, after: str) -> reports.PromptDiff:
    """Compare two versions of a prompt.

    Args:
        name: The prompt.
        version: The earlier version.
        after: The later version.
    """
    workspace = context.trusted("a prompt").workspace
    return await reports.diff(workspace, f"{name}@{version}", f"{name}@{after}")


@read("/memory/file")
async def memory_file(context: Context, *, space: str, path: str, at: str | None = None) -> Lines:
    """Return a file of memory, and each of its versions.

    Args:
        space: Its space.
        path: Its path.
        at: A version of the space, a position or a time.
    """
    store = MemoryStore(context.trusted("memory").workspace, space)
    return _lines([await store.entry(path, at), *await store.versions(path)])


@read("/memory/diff")
async def memory_diff(
    context: Context, *, space: str, before: str, path: str | None = None, after: str | None = None
) -> memories.MemoryDiff:
    """Return the changes of files between two points as a diff.

    Args:
        space: The space.
        before: The earlier point.
        path: Only this file.
        after: The later point; by default now.
    """
    store = MemoryStore(context.trusted("memory").workspace, space)
    return memories.MemoryDiff(space=space, diff=await store.diff(path, before, after))


@read("/memory/blame")
async def memory_blame(context: Context, *, space: str, path: str, at: str | None = None) -> Lines:
    """Return the lines of a file, each with the change that wrote it.

    Args:
        space: The space.
        path: The file.
        at: A version of the space, a position or a time.
    """
    blamed = await MemoryStore(context.trusted("memory").workspace, space).blame(path, at)
    return _lines(blamed)


# ---------------------------------------------------------------- search


class Found(msgspec.Struct, kw_only=True):
    """Events that a search matches, best first.

    Attributes:
        hits: As of `hansard search --json`; `marks` are the begin and end of each match.
        more: True if there are more.
        limit: The most hits of this answer.
        position: The position up to which the text is indexed.
    """

    hits: list[dict[str, Any]]
    more: bool
    limit: int
    position: int


@read("/search")
async def search(
    context: Context,
    *,
    q: str,
    run: str | None = None,
    agent: str | None = None,
    type: str | None = None,  # noqa: A002 -- the option's name
    limit: int = 50,
) -> Found:
    """Search the text of events, best match first; payloads kept as blobs are not searched.

    Args:
        q: Words that must all occur; `"..."` is a phrase.
        run: Only events of this run.
        agent: Only events of this agent.
        type: Only events of this type.
        limit: Most events.
    """
    settings = context.workspace.settings
    context.trusted("the search")
    place = full_text.IndexPlace.of(data_dir_of(settings), settings.workspace)
    limit = max(1, min(limit, HITS_MAX))
    query = full_text.Question(words=q, run=run, agent=agent, type=type, limit=limit)
    busy: Held | None = None
    async with reading_raw(settings) as raw:
        try:
            await full_text.bring_up(raw, place, lambda *_: None)
        except Held as error:
            busy = error
    answer = await asyncio.to_thread(full_text.ask, place, query)
    if answer is None:
        raise busy or Unusable(place.path, "it was removed meanwhile", place.remedy)
    return Found(
        hits=[_hit(each) for each in answer.hits],
        more=answer.more,
        limit=limit,
        position=answer.position,
    )


def _hit(hit: full_text.Hit) -> dict[str, Any]:
    fields = msgspec.structs.asdict(hit)
    snippet = fields.pop("snippet")
    return {**fields, "address": hit.address, "snippet": snippet.text, "marks": snippet.marks}
