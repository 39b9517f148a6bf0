-- Refill: files that were projected before are made anew from the log.
-- Chains: for whom the holders of tokens act.

ALTER TABLE tokens_issued ADD COLUMN on_behalf_of VARCHAR[];

CREATE OR REPLACE VIEW tokens AS
SELECT
    i.token, i.principal, i.role, i.on_behalf_of, i.expires, i.issued_by, i.logged_at AS issued_at,
    r.logged_at AS revoked_at, r.revoked_by, r.because,
    CASE
        WHEN r.token IS NOT NULL THEN 'revoked'
        WHEN i.expires <= p.logged_at THEN 'expired'
        ELSE 'valid'
    END AS standing,
    i.position
FROM tokens_issued AS i
CROSS JOIN progress AS p
LEFT JOIN (
    SELECT v.principal, v.token, min(v.logged_at) AS logged_at,
        arg_min(v.revoked_by, v.version) AS revoked_by, arg_min(v.because, v.version) AS because
    FROM tokens_revoked AS v
    GROUP BY v.principal, v.token
) AS r ON r.principal = i.principal AND r.token = i.token;
COMMENT ON VIEW tokens IS 'One row a token, as it stands at the log''s time.';
