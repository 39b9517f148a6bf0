-- On: import.ended.v1
INSERT INTO imports BY NAME
SELECT
    b.lasting AS "import", b.version, fields.format, fields.files, coalesce(fields.more_files, 0) AS more_files, fields.experiment, fields.arm, fields.runs,
    coalesce(fields.duplicates, 0) AS duplicates,
    coalesce(fields.skipped, 0) AS skipped, fields.reasons, fields.assumed, fields.claims, fields.left_out,
    coalesce(fields.stopped, false) AS stopped, b.happened_at AS imported_at, b.position
FROM (
    SELECT *, from_json(data, '{"format": "VARCHAR", "files": ["VARCHAR"], "more_files": "BIGINT", "experiment": "VARCHAR",
        "arm": "VARCHAR", "runs": "BIGINT", "duplicates": "BIGINT",
        "skipped": "BIGINT", "reasons": ["VARCHAR"], "assumed": "JSON", "claims": "JSON",
        "left_out": "JSON", "stopped": "BOOLEAN"}') AS fields
    FROM batch
    WHERE type = 'import.ended.v1'
) AS b;
