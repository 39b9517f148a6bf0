-- Refill: files that were projected before are made anew from the log.
-- Experiments as they were registered, and prices as they were stated.

ALTER TABLE assignments ADD COLUMN unit VARCHAR;
ALTER TABLE assignments ADD COLUMN chosen VARCHAR;
COMMENT ON COLUMN assignments.unit IS 'What the arm was chosen for: a task, a run, a conversation ...';
COMMENT ON COLUMN assignments.chosen IS 'How the arm was chosen: hash (of the unit) or caller; NULL where a source does not say.';

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
COMMENT ON COLUMN experiments.experiment IS 'Its name.';
COMMENT ON COLUMN experiments.question IS 'What it is to find out.';
COMMENT ON COLUMN experiments.unit IS 'What one arm is given to: task, run, conversation ...';
COMMENT ON COLUMN experiments.cluster IS 'The label of runs by which tasks hang together; NULL where they do not.';
COMMENT ON COLUMN experiments.alpha IS 'The chance of a false alarm that is accepted, over all of its comparisons.';
COMMENT ON COLUMN experiments.stop IS 'When it is looked at: fixed (once, at the planned size) or sequential (at any time).';
COMMENT ON COLUMN experiments.planned IS 'How many tasks are to be had.';
COMMENT ON COLUMN experiments.trials IS 'How often each task is tried under each arm.';
COMMENT ON COLUMN experiments.missing IS 'What a trial without a value counts as: failure or excluded.';
COMMENT ON COLUMN experiments.exploratory IS 'Whether it was stated that the data were seen before the plan.';
COMMENT ON COLUMN experiments.salt IS 'What its assignment by hash begins with.';
COMMENT ON COLUMN experiments.registered_at IS 'When it was registered.';
COMMENT ON COLUMN experiments.registered_by IS 'Who registered it.';
COMMENT ON COLUMN experiments.registered_position IS 'Position of the registration: what was recorded before it was seen before.';
COMMENT ON COLUMN experiments.event IS 'Id of the event that registered it.';
COMMENT ON COLUMN experiments.stopped_at IS 'When it was stopped; NULL while units are assigned.';
COMMENT ON COLUMN experiments.stopped_because IS 'Why.';

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
COMMENT ON COLUMN arms.experiment IS 'The experiment.';
COMMENT ON COLUMN arms.arm IS 'The arm''s name.';
COMMENT ON COLUMN arms.number IS 'Place in the plan, from 1: the first is the baseline.';
COMMENT ON COLUMN arms.weight IS 'Its share of units, beside those of the other arms.';
COMMENT ON COLUMN arms.prompt IS 'The version of the prompt.';
COMMENT ON COLUMN arms.model IS 'The model.';
COMMENT ON COLUMN arms.parameters IS 'Parameters, as stated.';

CREATE TABLE metrics (
    experiment VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    number BIGINT NOT NULL,
    better VARCHAR NOT NULL,
    smallest DOUBLE
);
COMMENT ON TABLE metrics IS 'One row a metric of a registered experiment.';
COMMENT ON COLUMN metrics.experiment IS 'The experiment.';
COMMENT ON COLUMN metrics.metric IS 'The metric''s name.';
COMMENT ON COLUMN metrics.number IS 'Place in the plan, from 1: the first decides.';
COMMENT ON COLUMN metrics.better IS 'Which direction is the good one: higher or lower.';
COMMENT ON COLUMN metrics.smallest IS 'The least difference that matters, in the metric''s own unit.';

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
COMMENT ON COLUMN prices.model IS 'The model.';
COMMENT ON COLUMN prices.usage IS 'What is paid for: input_tokens, output_tokens ...';
COMMENT ON COLUMN prices.amount IS 'Price of one million of it.';
COMMENT ON COLUMN prices.currency IS 'In which currency.';
COMMENT ON COLUMN prices.since IS 'From when on.';
COMMENT ON COLUMN prices.source IS 'Where the price was read.';
COMMENT ON COLUMN prices.stated_by IS 'Who stated it.';
COMMENT ON COLUMN prices.version IS 'Version in the model''s stream.';
COMMENT ON COLUMN prices.position IS 'Position of the commit.';
