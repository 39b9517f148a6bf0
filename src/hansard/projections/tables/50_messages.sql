-- On: message.added.v1
CREATE OR REPLACE TEMP TABLE added AS
SELECT
    run, agent, b.role AS agent_role, version, position, happened_at,
    unnest(from_json(data, '{"role": "VARCHAR", "content": "JSON", "tokens": "BIGINT",
        "fields": "JSON", "step": "BIGINT", "usage": "JSON"}'))
FROM batch AS b
WHERE type = 'message.added.v1';

INSERT INTO messages BY NAME
SELECT
    run, agent, agent_role AS role, version, position, happened_at, role AS message_role,
    if(textual, content->>'$', NULL) AS text, if(textual, NULL, content) AS content,
    fields->>'name' AS name, fields->>'tool_call_id' AS tool_call_id,
    if(json_type(fields->'tool_calls') = 'ARRAY', json_array_length(fields->'tool_calls'), NULL)
        AS tool_calls, tokens, step, usage, fields,
    try_cast(usage->>'input_tokens' AS DOUBLE) AS input_tokens,
    try_cast(usage->>'output_tokens' AS DOUBLE) AS output_tokens,
    try_cast(usage->>'cost' AS DOUBLE) AS cost
FROM (SELECT *, starts_with(content, '"') AS textual FROM added);

INSERT INTO usage BY NAME
SELECT
    run, agent, 'message' AS of, step, version, unnest(map_keys(amounts)) AS metric,
    unnest(map_values(amounts)) AS amount, position, happened_at
FROM (
    SELECT *, try_cast(usage AS MAP(VARCHAR, DOUBLE)) AS amounts
    FROM added
    WHERE usage IS NOT NULL
);
