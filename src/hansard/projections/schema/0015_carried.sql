-- Refill: files that were projected before are made anew from the log.
-- Carried labels: what principals were shown, and what of it was lowered.

CREATE TABLE principals_shown (
    event VARCHAR NOT NULL,
    principal VARCHAR NOT NULL,
    label VARCHAR NOT NULL,
    role VARCHAR NOT NULL,
    run VARCHAR,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    logged_at TIMESTAMP NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE principals_shown IS 'One row a time that a principal came to carry a higher label, since its holder was shown what has it. What is written for it from then on has that label, in whichever run (see carried).';

ALTER TABLE declassifications ALTER COLUMN run DROP NOT NULL;
ALTER TABLE declassifications ADD COLUMN principal VARCHAR;
COMMENT ON TABLE declassifications IS 'One row a label that somebody lowered: of an agent or of a key of shared state in a run, or of what a principal carries from run to run. Before a fork, the parent''s count.';

CREATE VIEW carried AS
WITH told AS (
    SELECT s.principal, s.label, s.version, s.position, s.logged_at FROM principals_shown AS s
    UNION ALL
    SELECT d.principal, coalesce(nullif(d.lowered_to, ''), 'public'), d.version, d.position, d.happened_at
    FROM declassifications AS d
    WHERE d.principal IS NOT NULL
)
SELECT t.principal, t.label, t.position, t.logged_at AS since
FROM told AS t
QUALIFY row_number() OVER (PARTITION BY t.principal ORDER BY t.version DESC) = 1;
COMMENT ON VIEW carried IS 'One row a principal that was ever shown what is labelled: the label that it carries now.';
