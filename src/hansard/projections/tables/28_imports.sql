-- On: import.ended.v1
INSERT INTO imports BY NAME
SELECT
    b.lasting AS "import", b.version, told.format, told.files, coalesce(told.more_files, 0) AS more_files, told.experiment, told.arm, told.runs,
    coalesce(told.duplicates, 0) AS duplicates,
    coalesce(told.skipped, 0) AS skipped, told.reasons, told.assumed, told.claims, told.left_out,
    coalesce(told.stopped, false) AS stopped, b.happened_at AS imported_at, b.position
FROM (
    SELECT *, from_json(data, '{"format": "VARCHAR", "files": ["VARCHAR"], "more_files": "BIGINT", "experiment": "VARCHAR",
        "arm": "VARCHAR", "runs": "BIGINT", "duplicates": "BIGINT",
        "skipped": "BIGINT", "reasons": ["VARCHAR"], "assumed": "JSON", "claims": "JSON",
        "left_out": "JSON", "stopped": "BOOLEAN"}') AS told
    FROM batch
    WHERE type = 'import.ended.v1'
) AS b;
