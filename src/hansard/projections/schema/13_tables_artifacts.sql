-- Tables of named, versioned things: prompts, action caches, experiences, memory and offered answers.

CREATE TABLE prompt_versions (
    prompt VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    text VARCHAR,
    digest VARCHAR,
    model VARCHAR,
    parameters JSON,
    parent_version BIGINT,
    parents BIGINT[] NOT NULL,
    feedback_applied VARCHAR[] NOT NULL,
    because VARCHAR,
    claimed MAP(VARCHAR, DOUBLE),
    added_at TIMESTAMP NOT NULL,
    added_by VARCHAR NOT NULL,
    retired_at TIMESTAMP,
    retired_because VARCHAR,
    retired_position BIGINT,
    event VARCHAR NOT NULL,
    position BIGINT NOT NULL
);
COMMENT ON TABLE prompt_versions IS 'One row per version of a prompt.';

CREATE TABLE prompt_moves (
    prompt VARCHAR NOT NULL,
    alias VARCHAR NOT NULL,
    version BIGINT,
    before BIGINT,
    because VARCHAR,
    experiment VARCHAR,
    moved_at TIMESTAMP NOT NULL,
    moved_by VARCHAR NOT NULL,
    event VARCHAR NOT NULL,
    position BIGINT NOT NULL,
    event_index BIGINT NOT NULL
);
COMMENT ON TABLE prompt_moves IS 'One row per move of an alias of a prompt.';

CREATE TABLE prompt_feedback (
    prompt VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    text VARCHAR,
    rating DOUBLE,
    run VARCHAR,
    given_at TIMESTAMP NOT NULL,
    given_by VARCHAR NOT NULL,
    event VARCHAR NOT NULL,
    position BIGINT NOT NULL
);
COMMENT ON TABLE prompt_feedback IS 'One row per feedback on a version of a prompt.';

CREATE TABLE action_versions (
    cache VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    kind VARCHAR NOT NULL,
    entry BIGINT,
    before BIGINT,
    again BIGINT,
    after JSON,
    because VARCHAR,
    run VARCHAR,
    author VARCHAR NOT NULL,
    event VARCHAR NOT NULL,
    position BIGINT NOT NULL,
    event_index BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE action_versions IS 'One row per version of a named action cache: saved, healed in one entry, or reverted.';

CREATE TABLE action_looks (
    cache VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    because VARCHAR,
    author VARCHAR NOT NULL,
    event VARCHAR NOT NULL,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE action_looks IS 'One row per review of an action cache that left it unchanged.';

CREATE TABLE experience_versions (
    experience VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    kind VARCHAR NOT NULL,
    digest VARCHAR,
    parent BIGINT,
    description VARCHAR,
    task VARCHAR,
    level BIGINT,
    tools VARCHAR[] NOT NULL,
    hosts VARCHAR[] NOT NULL,
    checks BIGINT NOT NULL,
    procedure VARCHAR,
    sources VARCHAR[] NOT NULL,
    failed VARCHAR[] NOT NULL,
    node VARCHAR,
    run VARCHAR,
    key VARCHAR,
    license VARCHAR,
    because VARCHAR,
    author VARCHAR NOT NULL,
    event VARCHAR NOT NULL,
    position BIGINT NOT NULL,
    event_index BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE experience_versions IS 'One row per version of an experience.';

CREATE TABLE experience_replays (
    experience VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    run VARCHAR,
    agent VARCHAR,
    step BIGINT,
    success BOOLEAN NOT NULL,
    checks BIGINT NOT NULL,
    done BIGINT NOT NULL,
    level BIGINT NOT NULL,
    failed_check VARCHAR,
    error VARCHAR,
    author VARCHAR NOT NULL,
    event VARCHAR NOT NULL,
    position BIGINT NOT NULL,
    event_index BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE experience_replays IS 'One row per task done or begun by a version of an experience, with its result.';

CREATE TABLE experience_retirements (
    experience VARCHAR NOT NULL,
    because VARCHAR,
    author VARCHAR NOT NULL,
    event VARCHAR NOT NULL,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE experience_retirements IS 'One row per retirement of an experience.';

CREATE TABLE memory_changes (
    space VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    path VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    op VARCHAR NOT NULL,
    was VARCHAR,
    link BOOLEAN NOT NULL,
    is_binary BOOLEAN NOT NULL,
    is_executable BOOLEAN NOT NULL,
    digest_before VARCHAR,
    digest VARCHAR,
    edit JSON,
    because VARCHAR,
    sources JSON,
    author VARCHAR NOT NULL,
    role VARCHAR,
    run VARCHAR,
    step BIGINT,
    label VARCHAR,
    event VARCHAR NOT NULL,
    position BIGINT NOT NULL,
    counts_from BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE memory_changes IS 'One row per file of memory created, edited, renamed or deleted.';

CREATE TABLE memory_rejections (
    space VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    path VARCHAR NOT NULL,
    line BIGINT NOT NULL,
    rule VARCHAR NOT NULL,
    stood VARCHAR,
    allowed VARCHAR,
    because VARCHAR,
    author VARCHAR NOT NULL,
    role VARCHAR,
    run VARCHAR,
    step BIGINT,
    event VARCHAR NOT NULL,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE memory_rejections IS 'One row per problem for which a change of memory was refused; nothing of the change was written.';

CREATE TABLE memory_policies (
    space VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    approval VARCHAR NOT NULL,
    until TIMESTAMP,
    untrusted JSON,
    because VARCHAR,
    author VARCHAR NOT NULL,
    event VARCHAR NOT NULL,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE memory_policies IS 'One row per change of a space''s approval policy.';

CREATE TABLE offered_answers (
    key VARCHAR NOT NULL,
    tool VARCHAR NOT NULL,
    tool_version VARCHAR,
    workflow VARCHAR,
    run VARCHAR,
    role VARCHAR,
    agent VARCHAR,
    step BIGINT,
    digest VARCHAR,
    stale_before BIGINT NOT NULL,
    version BIGINT NOT NULL,
    event VARCHAR NOT NULL,
    position BIGINT NOT NULL,
    offered_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE offered_answers IS 'One row per answer offered for reuse; the newest of a key is used.';

CREATE TABLE invalidated_answers (
    tool VARCHAR,
    run VARCHAR,
    key VARCHAR,
    because VARCHAR,
    author VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    event VARCHAR NOT NULL,
    position BIGINT NOT NULL,
    invalidated_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE invalidated_answers IS 'One row per invalidation of answers, by tool, run or key.';
