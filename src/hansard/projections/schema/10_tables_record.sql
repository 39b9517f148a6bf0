-- Tables of the record: runs, agents, steps and what agents wrote. Every table has a comment here and
-- every column one in columns.toml; the site's pages of tables are generated from both.

CREATE TABLE schema_version (
    version INTEGER NOT NULL,
    digest VARCHAR NOT NULL
);
COMMENT ON TABLE schema_version IS 'One row: the schema of this file. A file with another schema is rebuilt from the log.';

CREATE TABLE progress (
    position BIGINT NOT NULL,
    logged_at TIMESTAMP,
    head BIGINT NOT NULL,
    projected_at TIMESTAMP,
    digest VARCHAR NOT NULL,
    messages BIGINT,
    chain VARCHAR
);
COMMENT ON TABLE progress IS 'One row: the log position up to which the tables are filled. Answers hold as of it.';
INSERT INTO progress VALUES (0, NULL, 0, NULL, '', NULL, NULL);

CREATE VIEW lag AS
SELECT
    position, head, head - position AS behind, logged_at, projected_at,
    date_diff('millisecond', logged_at, projected_at) AS delay_ms
FROM progress;
COMMENT ON VIEW lag IS 'One row: how far the tables were behind the log at the last write.';

CREATE TABLE events (
    position BIGINT NOT NULL,
    event_index INTEGER NOT NULL,
    id VARCHAR NOT NULL,
    type VARCHAR NOT NULL,
    stream VARCHAR NOT NULL,
    run VARCHAR,
    agent VARCHAR,
    role VARCHAR,
    version BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL,
    logged_at TIMESTAMP NOT NULL,
    written_at TIMESTAMP NOT NULL,
    occurred_at VARCHAR,
    actor VARCHAR NOT NULL,
    on_behalf_of VARCHAR[],
    epoch BIGINT NOT NULL,
    commit_id VARCHAR NOT NULL,
    causation VARCHAR,
    correlation VARCHAR,
    traceparent VARCHAR,
    tx VARCHAR,
    origin_log VARCHAR,
    origin_position BIGINT,
    data JSON NOT NULL,
    known_as VARCHAR,
    lifted JSON
);
COMMENT ON TABLE events IS 'Every event of the record, also of unknown types, in log order.';

CREATE TABLE problems (
    position BIGINT NOT NULL,
    event_index INTEGER,
    subject VARCHAR NOT NULL,
    reason VARCHAR NOT NULL
);
COMMENT ON TABLE problems IS 'Messages in the log that Hansard did not write in this form. Empty for a sound log.';

CREATE TABLE runs (
    run VARCHAR NOT NULL,
    workflow VARCHAR,
    status VARCHAR NOT NULL,
    experiment VARCHAR,
    arm VARCHAR,
    task VARCHAR,
    trial BIGINT,
    started_at TIMESTAMP,
    ended_at TIMESTAMP,
    clock VARCHAR,
    error_type VARCHAR,
    error VARCHAR,
    conversation VARCHAR,
    program VARCHAR,
    labels JSON,
    parent VARCHAR,
    effects VARCHAR,
    resumed BIGINT NOT NULL,
    first_position BIGINT NOT NULL,
    last_position BIGINT NOT NULL,
    probe VARCHAR,
    observed BOOLEAN NOT NULL DEFAULT false
);
COMMENT ON TABLE runs IS 'One row per run.';

CREATE TABLE agents (
    run VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    role VARCHAR NOT NULL,
    epoch BIGINT NOT NULL,
    outcome VARCHAR,
    error_type VARCHAR,
    error VARCHAR,
    written_by VARCHAR,
    began_at TIMESTAMP,
    left_at TIMESTAMP,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL
);
COMMENT ON TABLE agents IS 'One row per agent of a run.';

CREATE TABLE steps (
    run VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    role VARCHAR NOT NULL,
    step BIGINT NOT NULL,
    tool VARCHAR,
    kind VARCHAR,
    effects VARCHAR,
    status VARCHAR NOT NULL,
    attempts BIGINT NOT NULL,
    duration_ms DOUBLE,
    input_tokens DOUBLE,
    output_tokens DOUBLE,
    cost DOUBLE,
    usage JSON,
    arguments JSON,
    result JSON,
    error_type VARCHAR,
    error VARCHAR,
    rule VARCHAR,
    call_id VARCHAR,
    key VARCHAR,
    parent_step BIGINT,
    scope VARCHAR,
    after BIGINT[],
    reused_step BIGINT,
    verdict VARCHAR,
    settled_by VARCHAR,
    inherited BOOLEAN NOT NULL,
    requested_at TIMESTAMP,
    ended_at TIMESTAMP,
    requested_version BIGINT,
    outcome_version BIGINT,
    requested_position BIGINT,
    outcome_position BIGINT,
    fingerprint_result VARCHAR,
    fingerprint_full VARCHAR,
    withheld VARCHAR,
    prompts STRUCT(prompt VARCHAR, version BIGINT, alias VARCHAR)[],
    reused_from STRUCT(run VARCHAR, agent VARCHAR, step BIGINT, event VARCHAR, "key" VARCHAR)
);
COMMENT ON TABLE steps IS 'One row per step: a call from an agent to the outside world.';

CREATE TABLE attempts (
    run VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    step BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    error_type VARCHAR,
    error VARCHAR,
    retry_in_ms DOUBLE,
    duration_ms DOUBLE,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE attempts IS 'One row per failed attempt that was retried.';

CREATE TABLE messages (
    run VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    role VARCHAR NOT NULL,
    message_role VARCHAR NOT NULL,
    text VARCHAR,
    content JSON,
    name VARCHAR,
    tool_call_id VARCHAR,
    tool_calls BIGINT,
    tokens BIGINT,
    input_tokens DOUBLE,
    output_tokens DOUBLE,
    cost DOUBLE,
    usage JSON,
    fields JSON,
    step BIGINT,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE messages IS 'One row per message in an agent''s context window, by version.';

CREATE TABLE compactions (
    run VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    role VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    compaction VARCHAR NOT NULL,
    message_role VARCHAR,
    text VARCHAR,
    content JSON,
    messages BIGINT,
    stands_for VARCHAR[],
    remaining VARCHAR[],
    tokens BIGINT,
    tokens_before BIGINT,
    tokens_after BIGINT,
    digest VARCHAR,
    step BIGINT,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE compactions IS 'One row per summary that replaced messages in a context window. The messages stay in `messages`; `compacted` lists them.';

CREATE TABLE usage (
    run VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    of VARCHAR NOT NULL,
    step BIGINT,
    version BIGINT NOT NULL,
    metric VARCHAR NOT NULL,
    amount DOUBLE NOT NULL,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE usage IS 'One row per amount used by a message or by the last attempt of a step.';

CREATE TABLE decisions (
    decision VARCHAR NOT NULL,
    run VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    role VARCHAR NOT NULL,
    question VARCHAR NOT NULL,
    selected VARCHAR NOT NULL,
    score DOUBLE,
    runner_up DOUBLE,
    threshold DOUBLE,
    margin DOUBLE,
    confidence DOUBLE,
    because VARCHAR,
    alternatives BIGINT NOT NULL,
    inputs VARCHAR[],
    after BIGINT[],
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE decisions IS 'One row per decision.';

CREATE TABLE alternatives (
    decision VARCHAR NOT NULL,
    run VARCHAR NOT NULL,
    number BIGINT NOT NULL,
    id VARCHAR NOT NULL,
    score DOUBLE,
    reason VARCHAR,
    rejected_because VARCHAR,
    selected BOOLEAN NOT NULL
);
COMMENT ON TABLE alternatives IS 'One row per alternative of a decision.';

CREATE TABLE checkpoints (
    run VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    data JSON,
    choice JSON,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE checkpoints IS 'One row per checkpoint.';

CREATE TABLE resources (
    run VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    uri VARCHAR NOT NULL,
    operation VARCHAR NOT NULL,
    step BIGINT,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE resources IS 'One row per use of a resource.';

CREATE TABLE handoffs (
    run VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    receiver VARCHAR NOT NULL,
    because VARCHAR,
    payload JSON,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE handoffs IS 'One row per hand-off to another agent or role.';

CREATE TABLE policies (
    run VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    step BIGINT NOT NULL,
    rule VARCHAR NOT NULL,
    verdict VARCHAR NOT NULL,
    reason VARCHAR,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE policies IS 'One row per call that the gate blocked.';

CREATE TABLE settlements (
    run VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    step BIGINT NOT NULL,
    verdict VARCHAR NOT NULL,
    settled_by VARCHAR NOT NULL,
    because VARCHAR,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE settlements IS 'One row per doubt or divergence settled.';

CREATE TABLE outcomes (
    run VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    value DOUBLE NOT NULL,
    judged_by VARCHAR NOT NULL,
    because VARCHAR,
    details JSON,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE outcomes IS 'One row per judged metric of a run.';

CREATE TABLE lineage (
    run VARCHAR NOT NULL,
    parent VARCHAR NOT NULL,
    effects VARCHAR NOT NULL,
    vector JSON NOT NULL,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL,
    swap JSON,
    edits JSON
);
COMMENT ON TABLE lineage IS 'One row per fork.';

CREATE TABLE conversations (
    conversation VARCHAR NOT NULL,
    run VARCHAR NOT NULL,
    number BIGINT NOT NULL,
    position BIGINT NOT NULL
);
COMMENT ON TABLE conversations IS 'One row per run of a conversation.';

CREATE TABLE tools (
    run VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    tool VARCHAR NOT NULL,
    effects VARCHAR NOT NULL,
    declared_version VARCHAR,
    source VARCHAR,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL,
    gives VARCHAR,
    takes VARCHAR
);
COMMENT ON TABLE tools IS 'One row per declaration of a tool: at its first call by an agent, and after each change.';

CREATE TABLE domain_events (
    aggregate VARCHAR,
    aggregate_id VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    tag VARCHAR,
    state JSON,
    run VARCHAR,
    agent VARCHAR,
    step BIGINT,
    event VARCHAR NOT NULL,
    causation VARCHAR,
    correlation VARCHAR,
    position BIGINT NOT NULL,
    counts_from BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE domain_events IS 'One row per event of an aggregate of your program, under its declared name and tag.';

CREATE TABLE imports (
    "import" VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    format VARCHAR NOT NULL,
    files VARCHAR[] NOT NULL,
    more_files BIGINT NOT NULL,
    experiment VARCHAR,
    arm VARCHAR,
    runs BIGINT NOT NULL,
    duplicates BIGINT NOT NULL,
    skipped BIGINT NOT NULL,
    reasons VARCHAR[],
    assumed JSON,
    claims JSON,
    left_out JSON,
    stopped BOOLEAN NOT NULL,
    imported_at TIMESTAMP NOT NULL,
    position BIGINT NOT NULL
);
COMMENT ON TABLE imports IS 'One row per import of recorded runs that changed the record.';
