CREATE VIEW thread_checkpoints AS
SELECT
    url_decode(split_part(stream, '/', 2)) AS thread,
    coalesce(data->>'namespace', '') AS namespace,
    data->>'checkpoint' AS checkpoint,
    data->>'parent' AS parent,
    data->>'run' AS run,
    actor AS agent,
    data->'state'->'metadata'->'value'->>'source' AS source,
    CAST(data->'state'->'metadata'->'value'->>'step' AS BIGINT) AS step,
    json_keys(data->'values') AS channels,
    logged_at
FROM events WHERE type = 'thread.checkpointed.v1';
COMMENT ON VIEW thread_checkpoints IS
    'Checkpoints of LangGraph threads, also those that were removed from their thread.';
