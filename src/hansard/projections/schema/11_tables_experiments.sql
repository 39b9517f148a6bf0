-- Tables of experiments: plans, arms, assignments and prices, as they were stated.

CREATE TABLE experiments (
    experiment VARCHAR NOT NULL,
    question VARCHAR,
    unit VARCHAR NOT NULL,
    cluster VARCHAR,
    alpha DOUBLE NOT NULL,
    stop VARCHAR NOT NULL,
    planned BIGINT,
    trials BIGINT,
    missing VARCHAR NOT NULL,
    exploratory BOOLEAN NOT NULL,
    salt VARCHAR NOT NULL,
    registered_at TIMESTAMP NOT NULL,
    registered_by VARCHAR NOT NULL,
    registered_position BIGINT NOT NULL,
    event VARCHAR NOT NULL,
    stopped_at TIMESTAMP,
    stopped_because VARCHAR,
    replaced BIGINT DEFAULT 0,
    because VARCHAR
);
COMMENT ON TABLE experiments IS 'One row per registered experiment: its plan as stated.';

CREATE TABLE arms (
    experiment VARCHAR NOT NULL,
    arm VARCHAR NOT NULL,
    number BIGINT NOT NULL,
    weight DOUBLE NOT NULL,
    prompt VARCHAR,
    model VARCHAR,
    parameters JSON
);
COMMENT ON TABLE arms IS 'One row per arm of a registered experiment.';

CREATE TABLE metrics (
    experiment VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    number BIGINT NOT NULL,
    better VARCHAR,
    smallest DOUBLE
);
COMMENT ON TABLE metrics IS 'One row per metric of a registered experiment.';

CREATE TABLE assignments (
    run VARCHAR NOT NULL,
    experiment VARCHAR,
    arm VARCHAR,
    task VARCHAR,
    trial BIGINT,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL,
    unit VARCHAR,
    chosen VARCHAR
);
COMMENT ON TABLE assignments IS 'One row per assignment of a run to an arm; the newest counts.';

CREATE TABLE prices (
    model VARCHAR NOT NULL,
    usage VARCHAR NOT NULL,
    amount DOUBLE NOT NULL,
    currency VARCHAR NOT NULL,
    since TIMESTAMP NOT NULL,
    source VARCHAR,
    stated_by VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL
);
COMMENT ON TABLE prices IS 'One row per stated price; the newest for a day counts. Recorded costs are never changed.';
