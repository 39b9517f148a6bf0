CREATE VIEW work AS
WITH history AS (
    SELECT url_decode(split_part(stream, '/', 2)) AS run, type, data, actor, logged_at, position
    FROM events WHERE starts_with(type, 'work.')
), newest AS (
    SELECT run, max(position) FILTER (type = 'work.requested.v1') AS requested FROM history GROUP BY run
)
SELECT
    t.run,
    any_value(t.data->>'workflow') FILTER (t.type = 'work.requested.v1') AS workflow,
    any_value(t.actor) FILTER (t.type = 'work.requested.v1') AS requested_by,
    min(t.logged_at) AS requested_at,
    arg_max(split_part(t.type, '.', 2), t.position) AS last_event,
    arg_max(t.data->>'worker', t.position) FILTER (t.type = 'work.claimed.v1') AS worker,
    count(*) FILTER (t.type = 'work.claimed.v1') AS claims,
    arg_max(CAST(t.data->>'code' AS INTEGER), t.position) FILTER (t.type = 'work.ended.v1') AS code,
    arg_max(t.data->>'last', t.position) FILTER (t.type = 'work.ended.v1') AS last_line,
    max(t.logged_at) FILTER (t.type = 'work.ended.v1') AS ended_at,
    max(t.position) AS position
FROM history AS t JOIN newest AS n ON n.run = t.run AND t.position >= n.requested
GROUP BY t.run;
COMMENT ON VIEW work IS
    'One row per fork that a worker was requested to run, by its newest request. last_event: requested, claimed, extended, released or ended. claims: workers that took it. code: exit code of the program.';
