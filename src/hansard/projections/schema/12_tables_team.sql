-- Tables of the team: shared state, tasks, mail, approvals, logins, labels and answers to roles.

CREATE TABLE board_writes (
    run VARCHAR NOT NULL,
    key VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    operation VARCHAR NOT NULL,
    value JSON,
    author VARCHAR NOT NULL,
    role VARCHAR NOT NULL,
    expected BIGINT,
    labels JSON,
    expires_at TIMESTAMP,
    anew BOOLEAN NOT NULL,
    event VARCHAR NOT NULL,
    position BIGINT NOT NULL,
    counts_from BIGINT NOT NULL,
    logged_at TIMESTAMP NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE board_writes IS 'One row per write to a key of a run''s shared state, by version.';

CREATE TABLE task_events (
    run VARCHAR NOT NULL,
    task VARCHAR,
    operation VARCHAR NOT NULL,
    author VARCHAR NOT NULL,
    number BIGINT,
    agent VARCHAR,
    role VARCHAR,
    title VARCHAR,
    what JSON,
    waits_for VARCHAR[],
    waits_for_roles VARCHAR[],
    lease_until TIMESTAMP,
    result JSON,
    error_type VARCHAR,
    error VARCHAR,
    because VARCHAR,
    event VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    logged_at TIMESTAMP NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE task_events IS 'One row per event of a run''s tasks.';

CREATE TABLE mail (
    run VARCHAR NOT NULL,
    sender VARCHAR NOT NULL,
    sender_role VARCHAR,
    to_agent VARCHAR,
    to_role VARCHAR,
    content JSON,
    event VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    logged_at TIMESTAMP NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE mail IS 'One row per message between agents of a run.';

CREATE TABLE approval_events (
    run VARCHAR NOT NULL,
    approval VARCHAR,
    operation VARCHAR NOT NULL,
    author VARCHAR NOT NULL,
    agent VARCHAR,
    role VARCHAR,
    step BIGINT,
    tool VARCHAR,
    arguments JSON,
    rule VARCHAR,
    call VARCHAR,
    fingerprint VARCHAR,
    until TIMESTAMP,
    answered_by VARCHAR,
    because VARCHAR,
    event VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    logged_at TIMESTAMP NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE approval_events IS 'One row per event of a run''s approvals (see `approvals`). requested has the call, granted and denied the answer.';

CREATE TABLE refusals (
    kind VARCHAR NOT NULL,
    run VARCHAR,
    agent VARCHAR,
    role VARCHAR,
    principal VARCHAR,
    what VARCHAR,
    name VARCHAR,
    step BIGINT,
    rule VARCHAR,
    because VARCHAR,
    count BIGINT NOT NULL,
    event VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    logged_at TIMESTAMP NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE refusals IS 'One row per action refused by a role, a label or a login; nothing of it was done. Calls refused by other gate rules are in `policies`.';

CREATE TABLE principals (
    principal VARCHAR NOT NULL,
    kind VARCHAR,
    about VARCHAR,
    registered_by VARCHAR NOT NULL,
    event VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    logged_at TIMESTAMP NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE principals IS 'One row per principal: an agent, person or service that may log in.';

CREATE TABLE tokens_issued (
    token VARCHAR,
    principal VARCHAR NOT NULL,
    role VARCHAR,
    expires TIMESTAMP,
    nkey VARCHAR,
    issued_by VARCHAR NOT NULL,
    event VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    logged_at TIMESTAMP NOT NULL,
    happened_at TIMESTAMP NOT NULL,
    on_behalf_of VARCHAR[]
);
COMMENT ON TABLE tokens_issued IS 'One row per issued token (see `tokens`).';

CREATE TABLE tokens_revoked (
    token VARCHAR,
    principal VARCHAR NOT NULL,
    because VARCHAR,
    revoked_by VARCHAR NOT NULL,
    event VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    logged_at TIMESTAMP NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE tokens_revoked IS 'One row per revoked token (see `tokens`).';

CREATE TABLE queries (
    role VARCHAR NOT NULL,
    asked_by VARCHAR NOT NULL,
    upto VARCHAR,
    rules VARCHAR,
    statement VARCHAR,
    role_position BIGINT,
    rows BIGINT,
    cut BOOLEAN,
    event VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    logged_at TIMESTAMP NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE queries IS 'One row per SQL query answered under a role. Which events an answer used is not recorded.';

CREATE TABLE views_served (
    view VARCHAR NOT NULL,
    run VARCHAR NOT NULL,
    role VARCHAR NOT NULL,
    agent VARCHAR,
    shown_to VARCHAR NOT NULL,
    upto VARCHAR NOT NULL,
    rules VARCHAR,
    events BIGINT NOT NULL,
    digest VARCHAR NOT NULL,
    seen MAP(VARCHAR, VARCHAR) NOT NULL,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE views_served IS 'One row per view shown of a run to a role.';

CREATE TABLE principals_shown (
    event VARCHAR NOT NULL,
    principal VARCHAR NOT NULL,
    label VARCHAR NOT NULL,
    role VARCHAR NOT NULL,
    run VARCHAR,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    logged_at TIMESTAMP NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE principals_shown IS 'One row per raise of a principal''s label after it was shown labelled data. What is written for it then has that label, in every run (see `carried`).';

CREATE TABLE labels (
    event VARCHAR NOT NULL,
    run VARCHAR,
    agent VARCHAR,
    stream VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    confidentiality VARCHAR NOT NULL,
    untrusted BOOLEAN NOT NULL
);
COMMENT ON TABLE labels IS 'One row per labelled event: the join of the labels of all that its writer had been shown. Events without a row are public and trusted.';

CREATE TABLE declassifications (
    event VARCHAR NOT NULL,
    run VARCHAR,
    agent VARCHAR,
    key VARCHAR,
    lowered_to VARCHAR NOT NULL,
    lowered_from VARCHAR NOT NULL,
    approver VARCHAR NOT NULL,
    because VARCHAR,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL,
    principal VARCHAR
);
COMMENT ON TABLE declassifications IS 'One row per lowered label: of an agent or key in a run, or of a principal across runs.';
