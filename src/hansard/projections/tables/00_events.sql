-- On: *
-- `incoming` holds the rows after the projected position, one per event.
INSERT INTO events
SELECT
    position, event_index, id, type, stream, run, agent, role, version, happened_at, logged_at,
    written_at, occurred_at, actor, on_behalf_of, epoch, commit_id, causation, correlation,
    traceparent, tx, origin_log, origin_position, data,
    known_as, lifted
FROM incoming;

-- The events that tables take: known types, upcast to their newest version.
CREATE OR REPLACE TEMP TABLE batch AS
SELECT
    ordinal, position, id, known_as AS type, stream, run, agent, role, lasting, version, happened_at,
    coalesce(lifted, data) AS data, clock_of(occurred_at, actor, on_behalf_of, origin_log) AS clock
FROM incoming
WHERE known_as IS NOT NULL;
