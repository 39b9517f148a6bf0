-- On: principal.*
INSERT INTO principals BY NAME
SELECT
    b.lasting AS principal, b.data->>'kind' AS kind, b.data->>'about' AS about,
    i.actor AS registered_by,
    b.id AS event, b.version, b.position, i.logged_at, b.happened_at
FROM batch AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
WHERE b.type = 'principal.registered.v1';

INSERT INTO tokens_issued BY NAME
SELECT
    b.data->>'token' AS token, b.lasting AS principal, b.data->>'role' AS role,
    (try_cast(b.data->>'expires' AS TIMESTAMPTZ) AT TIME ZONE 'UTC') AS expires,
    b.data->>'nkey' AS nkey,
    coalesce(try_cast(b.data->'on_behalf_of' AS VARCHAR[]), []) AS on_behalf_of,
    i.actor AS issued_by,
    b.id AS event, b.version, b.position, i.logged_at, b.happened_at
FROM batch AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
WHERE b.type = 'principal.token_issued.v1';

INSERT INTO tokens_revoked BY NAME
SELECT
    b.data->>'token' AS token, b.lasting AS principal, b.data->>'because' AS because,
    i.actor AS revoked_by,
    b.id AS event, b.version, b.position, i.logged_at, b.happened_at
FROM batch AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
WHERE b.type = 'principal.token_revoked.v1';

INSERT INTO principals_shown BY NAME
SELECT
    b.lasting AS principal, b.data->>'label' AS label, b.data->>'role' AS role,
    nullif(b.data->>'run', '') AS run,
    b.id AS event, b.version, b.position, i.logged_at, b.happened_at
FROM batch AS b
JOIN incoming AS i ON i.ordinal = b.ordinal
WHERE b.type = 'principal.shown.v1';
