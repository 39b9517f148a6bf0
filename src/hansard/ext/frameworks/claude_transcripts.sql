CREATE VIEW claude_transcripts AS
WITH appended AS (
    SELECT stream, position, logged_at, data->>'project' AS project, data->>'session' AS session,
        coalesce(data->>'subpath', '') AS subpath, (data->>'count')::BIGINT AS entries
    FROM events WHERE type = 'claude_session.appended.v1'
), deleted AS (
    SELECT stream, position, coalesce(data->>'subpath', '') AS subpath
    FROM events WHERE type = 'claude_session.deleted.v1'
)
SELECT project, session, subpath, sum(entries)::BIGINT AS entries, max(logged_at) AS changed_at
FROM appended WHERE NOT EXISTS (
    FROM deleted WHERE deleted.stream = appended.stream AND deleted.position > appended.position
        AND deleted.subpath IN ('', appended.subpath)
)
GROUP BY ALL;
COMMENT ON VIEW claude_transcripts IS
'One row per transcript of a Claude session. subpath: that of a subagent; empty for the session.';
