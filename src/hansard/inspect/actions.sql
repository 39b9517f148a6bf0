-- name: caches
SELECT cache, versions, heals, reviewed_version, heals_unreviewed, changed_at
FROM action_caches ORDER BY cache

-- name: log
SELECT v.cache, v.version, v.kind AS change, v.entry, v.again, v.run, v.author, v.because,
    v.happened_at AS at, v.version <= c.reviewed_version AS reviewed
FROM action_versions AS v JOIN action_caches AS c ON c.cache = v.cache
WHERE v.cache = $1 ORDER BY v.version
