-- On: tool.declared.v1
INSERT INTO tools BY NAME
SELECT
    run, agent, data->>'tool' AS tool, data->>'effects' AS effects,
    data->>'version' AS declared_version, data->>'source' AS source,
    data->>'gives' AS gives, data->>'takes' AS takes, version, position, happened_at
FROM batch
WHERE type = 'tool.declared.v1';
