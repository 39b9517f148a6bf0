-- On: labelled
INSERT INTO labels BY NAME
SELECT
    i.id AS event, i.run, i.agent, i.stream, i.version, i.position,
    coalesce(list_filter(string_split(i.label, ' '), lambda w: w <> 'untrusted')[1], 'public')
        AS confidentiality,
    contains(i.label, 'untrusted') AS untrusted
FROM incoming AS i
WHERE i.label IS NOT NULL;
