CREATE VIEW model_calls AS
WITH items AS (
    SELECT
        run, agent, try_cast(data->>'step' AS BIGINT) AS step, position,
        unnest(json_extract(data, '$.items[*]')) AS item
    FROM events
    WHERE type = 'step.yielded.v1'
), exchanges AS (
    SELECT
        run, agent, step,
        arg_max(item->'$.end', position) FILTER (json_exists(item, '$.end')) AS "end",
        arg_max(item->'$.head', position) FILTER (json_exists(item, '$.head')) AS head
    FROM items
    GROUP BY run, agent, step
), shown AS (
    SELECT
        c.run, c.agent, c.role, c.step,
        coalesce(x."end"->>'$.facts.provider', split_part(c.tool, '.', 1)) AS provider,
        coalesce(x."end"->>'$.facts.operation', regexp_replace(c.tool, '^[^.]*[.]', ''))
            AS operation,
        coalesce(nullif(x."end"->>'$.facts.model', ''), c.arguments->>'$.model') AS model,
        c.arguments->>'$.model' AS requested_model, c.status,
        coalesce(try_cast(x."end"->>'$.facts.status' AS BIGINT),
            try_cast(x.head->>'$.status' AS BIGINT)) AS http_status,
        x."end"->>'$.how' AS ended, nullif(x."end"->>'$.facts.finish_reason', '') AS finish_reason,
        c.input_tokens::BIGINT AS input_tokens, c.output_tokens::BIGINT AS output_tokens,
        try_cast(c.usage->>'cached_tokens' AS BIGINT) AS cached_tokens,
        try_cast(c.usage->>'reasoning_tokens' AS BIGINT) AS reasoning_tokens,
        c.cost AS recorded_cost,
        json_extract_string(x."end", '$.facts.tool_calls[*].name') AS tool_calls,
        coalesce(nullif(x."end"->>'$.facts.error', ''), x."end"->>'$.error', c.error) AS error,
        nullif(x."end"->>'$.facts.problem', '') AS problem,
        try_cast(x."end"->>'$.bytes' AS BIGINT) AS bytes,
        try_cast(x."end"->>'$.pieces' AS BIGINT) AS chunks,
        try_cast(x."end"->>'$.first_ms' AS BIGINT) AS first_chunk_ms,
        -- Outcomes of streams of earlier versions have no duration; the end of an exchange has it.
        coalesce(nullif(c.duration_ms, 0), try_cast(x."end"->>'$.ms' AS DOUBLE)) AS duration_ms,
        try_cast(c.arguments->>'$.attempt' AS BIGINT) AS attempt, c.prompts,
        c.arguments->>'$.path' AS path, c.arguments->>'$.identity' AS identity,
        nullif(x."end"->>'$.facts.response_id', '') AS response_id,
        c.inherited, CASE
            WHEN c.withheld <> 'outcome' THEN c.withheld
            WHEN c.inherited OR c.withheld = 'outcome' OR c.reused_step IS NOT NULL
                OR c.reused_from IS NOT NULL THEN 'record'
            WHEN c.verdict = 'happened' THEN 'person'
            ELSE 'provider'
        END AS answered_by, c.requested_at, c.ended_at, c.requested_position AS position
    FROM steps AS c
    LEFT JOIN exchanges AS x ON x.run = c.run AND x.agent = c.agent AND x.step = c.step
    WHERE c.kind = 'model'
), stated AS (
    SELECT model, usage, since, arg_max(amount, version) AS amount
    FROM prices
    WHERE currency = 'USD'
    GROUP BY model, usage, since
), priced AS (
    -- A price of the model that answered counts before one of the model that was requested.
    SELECT
        s.run, s.agent, s.step, p.usage, arg_max(p.amount, (p.model = s.model, p.since)) AS amount
    FROM shown AS s
    JOIN stated AS p ON p.model IN (s.model, s.requested_model) AND p.since <= s.requested_at
    GROUP BY s.run, s.agent, s.step, p.usage
), costs AS (
    SELECT
        run, agent, step, max(amount) FILTER (usage = 'input_tokens') AS input,
        max(amount) FILTER (usage = 'output_tokens') AS output,
        max(amount) FILTER (usage = 'cached_tokens') AS cached
    FROM priced
    GROUP BY run, agent, step
)
SELECT
    s.* EXCLUDE (recorded_cost),
    coalesce(s.recorded_cost, (
        (s.input_tokens - coalesce(s.cached_tokens, 0)) * c.input
        + coalesce(s.cached_tokens, 0) * coalesce(c.cached, c.input)
        + if(coalesce(s.output_tokens, 0) = 0, 0, s.output_tokens * c.output)) / 1e6) AS cost
FROM shown AS s
LEFT JOIN costs AS c USING (run, agent, step);
COMMENT ON VIEW model_calls IS 'One row per call of a model, through the proxy or a framework. answered_by: provider (it was called), record (an earlier answer, for example of the parent of a fork), edit (of a fork; shadow and refused likewise), person (who settled it). Only rows of provider cost anything: sum those.';
