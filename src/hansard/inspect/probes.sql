-- name: noise
FROM probe_noise($1, of_runs := $2, of_question := $3, at_alpha := $4)

-- name: summary
FROM probe_summary($1, of_runs := $2, of_question := $3, at_alpha := $4)
ORDER BY agent, question, value

-- name: comparisons
FROM probe_comparisons($1, of_runs := $2, of_question := $3, at_alpha := $4,
    decision_margin := $5, score_margin := $6)
ORDER BY agent, question, slice, measure = 'score', option, value

-- name: pairs
FROM probe_pairs($1, of_runs := $2, of_question := $3)
ORDER BY agent, question, value, parent
