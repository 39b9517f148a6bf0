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
COMMENT ON TABLE board_writes IS 'One row a write to a key of a run''s shared state, in order of version. Before a fork, the parent''s count (see board_history).';

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
COMMENT ON TABLE task_events IS 'One row an event of a run''s tasks. Before a fork, the parent''s count (see task_history).';

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
COMMENT ON TABLE mail IS 'One row a message between agents of a run.';

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
COMMENT ON TABLE approval_events IS 'One row an event of a run''s approvals (see approvals).';

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
COMMENT ON TABLE refusals IS 'One row a thing that was refused to an agent or to somebody who logged in, by a role, a label or a login. Nothing of it was done. Calls that other rules of a gate refused are in policies.';

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
COMMENT ON TABLE principals IS 'One row a principal: an agent, a person or a service that may log in.';

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
COMMENT ON TABLE tokens_issued IS 'One row a token that was issued (see tokens).';

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
COMMENT ON TABLE tokens_revoked IS 'One row a token that was revoked (see tokens).';

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
COMMENT ON TABLE queries IS 'One row a question that was answered in SQL as a role. Which events an answer drew on is not known: it had the tables of the role by these rules, up to this point.';

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
COMMENT ON TABLE views_served IS 'One row a view that was served: what a role was shown of a run. Before a fork, the parent''s count (see lineage).';

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
COMMENT ON TABLE principals_shown IS 'One row a time that a principal came to carry a higher label, since its holder was shown what has it. What is written for it from then on has that label, in whichever run (see carried).';

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
COMMENT ON TABLE labels IS 'One row an event whose commit has a label: the join of all that its writer had been shown. What has none is public and trusted. Before a fork, the parent''s count (see labels_of).';

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
COMMENT ON TABLE declassifications IS 'One row a label that somebody lowered: of an agent or of a key of shared state in a run, or of what a principal carries from run to run. Before a fork, the parent''s count.';
