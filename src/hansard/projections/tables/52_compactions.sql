-- On: context.compacted.v1
INSERT INTO compactions BY NAME
SELECT
    run, agent, role, version, position, happened_at, compaction, t.role AS message_role,
    if(starts_with(t.summary, '"'), t.summary->>'$', NULL) AS text,
    if(starts_with(t.summary, '"'), NULL, t.summary) AS content,
    len(t.stands_for) AS messages, t.stands_for, coalesce(t.kept, []) AS remaining, t.tokens,
    t.tokens_before, t.tokens_after, t.digest, t.step
FROM (
    SELECT
        b.run, b.agent, b.role, b.version, b.position, b.happened_at, b.id AS compaction,
        from_json(b.data, '{"role": "VARCHAR", "summary": "JSON", "stands_for": ["VARCHAR"],
            "kept": ["VARCHAR"], "tokens": "BIGINT", "tokens_before": "BIGINT",
            "tokens_after": "BIGINT", "digest": "VARCHAR", "step": "BIGINT"}') AS t
    FROM batch AS b
    WHERE b.type = 'context.compacted.v1'
);
