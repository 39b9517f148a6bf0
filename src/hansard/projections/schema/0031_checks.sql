-- A score is held against the stored checks themselves, also where the parts beside them were changed with it.

CREATE OR REPLACE VIEW checked_scores AS
SELECT
    s.*, CASE
        WHEN s.checks IS NOT NULL AND s.basis IS NULL AND s.checks <> s.value THEN concat('its judge says ', s.checks)
        WHEN s.bad IS NOT NULL AND s.value > 0 THEN concat('its check ', s.bad, ' is 0')
        WHEN s.stored <> s.value THEN concat('its checks (', array_to_string(s.basis, ', '), ') come to ', s.stored)
        WHEN s.broken_down <> s.value THEN concat('the parts that it is made of (', array_to_string(s.basis, ', '), ') come to ', s.broken_down)
    END AS contradiction
FROM (
    SELECT
        j.run, j.metric, j.value, j.judged_by, j.position, j.version, j.basis,
        coalesce(try_cast(j.details->>'$.reward_info.reward' AS DOUBLE), if(j.value IN (0, 1), try_cast(list_filter(json_extract_string(j.details,
            ['$.passed', '$.success', '$.resolved', '$.correct']), lambda n: n IN ('true', 'false'))[1] AS BOOLEAN)::DOUBLE, NULL)) AS checks,
        CASE WHEN try_cast(j.details->>'$.reward_info.info.r_actions' AS DOUBLE) = 0 THEN 'r_actions'
            WHEN try_cast(j.details->>'$.reward_info.info.r_outputs' AS DOUBLE) = 0 THEN 'r_outputs' END AS bad,
        if(len(j.parts) > 0 AND len(list_filter(j.parts, lambda p: p IS NULL)) = 0, list_product(j.parts), NULL) AS stored,
        if(len(j.sums) > 0 AND len(list_filter(j.sums, lambda p: p IS NULL)) = 0, list_product(j.sums), NULL) AS broken_down
    FROM (
        SELECT b.*,
            list_transform(b.basis, lambda p: coalesce(CASE p
                WHEN 'DB' THEN coalesce(try_cast(b.details->>'$.db_check.db_match' AS BOOLEAN)::DOUBLE, try_cast(b.details->>'$.db_check.db_reward' AS DOUBLE))
                WHEN 'ACTION' THEN all_true(json_extract_string(b.details, '$.action_checks[*].action_match'))
                WHEN 'COMMUNICATE' THEN all_true(json_extract_string(b.details, '$.communicate_checks[*].met'))
                WHEN 'NL_ASSERTION' THEN all_true(json_extract_string(b.details, '$.nl_assertions[*].met'))
                WHEN 'ENV_ASSERTION' THEN all_true(json_extract_string(b.details, '$.env_assertions[*].met'))
            END, try_cast(json_extract_string(b.details, '$.reward_breakdown.' || p) AS DOUBLE))) AS parts,
            list_transform(b.basis, lambda p: try_cast(json_extract_string(b.details, '$.reward_breakdown.' || p) AS DOUBLE)) AS sums
        FROM (
            SELECT o.*, try_cast(o.details->'$.reward_basis' AS VARCHAR[]) AS basis
            FROM outcomes AS o
            WHERE o.metric IN ('reward', 'success', 'resolved', 'passed', 'correct', 'score')
                AND json_type(o.details) = 'OBJECT'
            QUALIFY row_number() OVER (PARTITION BY o.run, o.metric ORDER BY o.version DESC) = 1
        ) AS b
    ) AS j
) AS s
WHERE coalesce(s.checks, s.stored, s.broken_down) IS NOT NULL;
COMMENT ON VIEW checked_scores IS 'One row a score beside which its judge stored checks (of tau-bench, of tau2-bench, or passed, success, resolved, correct), and in what they contradict it.';
