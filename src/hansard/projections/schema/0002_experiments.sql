-- Refill: files that were projected before are made anew from the log.
-- Experiments as they were registered, and prices as they were stated.

ALTER TABLE assignments ADD COLUMN unit VARCHAR;
ALTER TABLE assignments ADD COLUMN chosen VARCHAR;

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
    stopped_because VARCHAR
);
COMMENT ON TABLE experiments IS 'One row an experiment that was registered: its plan, as stated.';

CREATE TABLE arms (
    experiment VARCHAR NOT NULL,
    arm VARCHAR NOT NULL,
    number BIGINT NOT NULL,
    weight DOUBLE NOT NULL,
    prompt VARCHAR,
    model VARCHAR,
    parameters JSON
);
COMMENT ON TABLE arms IS 'One row an arm of a registered experiment.';

CREATE TABLE metrics (
    experiment VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    number BIGINT NOT NULL,
    better VARCHAR NOT NULL,
    smallest DOUBLE
);
COMMENT ON TABLE metrics IS 'One row a metric of a registered experiment.';

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
COMMENT ON TABLE prices IS 'One row a price as stated; of several for one day the newest counts. A recorded cost is never changed by it.';
