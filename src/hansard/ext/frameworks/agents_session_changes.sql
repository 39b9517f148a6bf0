CREATE VIEW agents_session_changes AS
SELECT url_decode(split_part(stream, '/', 2)) AS session, position, logged_at,
    CASE type WHEN 'agents_session.added.v1' THEN 'added' ELSE 'removed' END AS change,
    coalesce((data->>'count')::BIGINT, 0) AS count, data->'items' AS items
FROM events WHERE type IN ('agents_session.added.v1', 'agents_session.removed.v1');
COMMENT ON VIEW agents_session_changes IS
'One row per change of a session of the OpenAI Agents SDK: items added, or removed from its end.';
