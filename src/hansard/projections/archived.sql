-- The view of generations has a row for each archived one, and one for what is not archived:
-- positions, commits, times; bytes of the commits, of their segments, and of the Parquet files.

-- name: columns
SELECT table_name, list(column_name ORDER BY column_index) FROM duckdb_columns()
WHERE NOT internal AND schema_name = 'main' AND table_name IN (
    SELECT table_name FROM duckdb_tables() WHERE NOT internal AND NOT temporary
) AND database_name = current_database()
GROUP BY table_name ORDER BY table_name

-- name: generations
CREATE VIEW log_generations AS
SELECT g.*, min(e.logged_at) AS began, max(e.logged_at) AS ended FROM (
    FROM archived_generations UNION ALL BY NAME
    SELECT any_value(b) + 1 AS first, max(position) AS last, count(DISTINCT position) AS commits
    FROM events, (SELECT coalesce(max(last), 0) AS b FROM archived_generations)
    WHERE position > b HAVING count(*) > 0
) g LEFT JOIN events e ON e.position BETWEEN g.first AND g.last GROUP BY ALL ORDER BY g.first
