-- The program's own aggregates: the events of each, by the tags that the program declared.

CREATE VIEW aggregates AS
SELECT
    aggregate_id, arg_max(aggregate, version) AS aggregate, max(version) AS version,
    arg_max(tag, version) AS last_tag, arg_max(run, version) AS last_run,
    arg_max(agent, version) AS last_agent, min(happened_at) AS began_at,
    max(happened_at) AS changed_at, max(position) AS position
FROM domain_events
GROUP BY aggregate_id;
COMMENT ON VIEW aggregates IS 'One row per aggregate of your program: its version and newest event. Its state is rebuilt by your classes (`session.get`).';
