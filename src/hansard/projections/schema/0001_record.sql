-- The record as tables. Every table and column has a comment: docs/sql.md is made of them.

CREATE TABLE migrations (
    number INTEGER NOT NULL,
    name VARCHAR NOT NULL
);
COMMENT ON TABLE migrations IS 'One row a migration of the schema that this file has behind it.';
COMMENT ON COLUMN migrations.number IS 'Its number, from 1 without a hole.';
COMMENT ON COLUMN migrations.name IS 'Its name.';

CREATE TABLE progress (
    position BIGINT NOT NULL,
    logged_at TIMESTAMP,
    head BIGINT NOT NULL,
    projected_at TIMESTAMP,
    digest VARCHAR NOT NULL
);
COMMENT ON TABLE progress IS 'One row: up to where the log is projected. Every answer holds as of this position.';
COMMENT ON COLUMN progress.position IS 'Position of the newest message that is projected.';
COMMENT ON COLUMN progress.logged_at IS 'The log''s time of that message.';
COMMENT ON COLUMN progress.head IS 'The newest position of the log that the projector knew of then.';
COMMENT ON COLUMN progress.projected_at IS 'When that was written, by the projector''s clock.';
COMMENT ON COLUMN progress.digest IS 'SHA-256 of that message: by it the projector knows its log again.';
INSERT INTO progress VALUES (0, NULL, 0, NULL, '');

CREATE VIEW lag AS
SELECT
    position, head, head - position AS behind, logged_at, projected_at,
    date_diff('millisecond', logged_at, projected_at) AS delay_ms
FROM progress;
COMMENT ON VIEW lag IS 'One row: how far the tables were behind the log when they were written last.';
COMMENT ON COLUMN lag.position IS 'Position of the newest message that is projected.';
COMMENT ON COLUMN lag.head IS 'The newest position of the log that the projector knew of then.';
COMMENT ON COLUMN lag.behind IS 'Messages known of and not projected yet.';
COMMENT ON COLUMN lag.logged_at IS 'The log''s time of the newest message that is projected.';
COMMENT ON COLUMN lag.projected_at IS 'When the tables were written last, by the projector''s clock.';
COMMENT ON COLUMN lag.delay_ms IS 'Time from the log to the tables of that message, in ms.';

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
COMMENT ON TABLE events IS 'Every event of the record, known type or not, in the order of the log.';
COMMENT ON COLUMN events.position IS 'Position of the event''s commit: one order a workspace.';
COMMENT ON COLUMN events.event_index IS 'Place of the event in its commit, from 0. position.event_index is its address.';
COMMENT ON COLUMN events.id IS 'Id of the event.';
COMMENT ON COLUMN events.type IS 'Versioned tag, e.g. step.completed.v1.';
COMMENT ON COLUMN events.stream IS 'Name of the stream in its run: life, agent/ROLE/AGENT, board/KEY; KIND/ID for what outlives runs.';
COMMENT ON COLUMN events.run IS 'Id of the run; NULL for what outlives runs.';
COMMENT ON COLUMN events.agent IS 'The agent whose stream it is; NULL for other streams.';
COMMENT ON COLUMN events.role IS 'That agent''s role.';
COMMENT ON COLUMN events.version IS 'Version of the event in its stream, from 1 without a hole.';
COMMENT ON COLUMN events.happened_at IS 'When it happened, as well as is known: occurred_at (UTC where it names no zone), else the time in the log it was copied from, else logged_at.';
COMMENT ON COLUMN events.logged_at IS 'The log''s own time of the commit: what a point in time means.';
COMMENT ON COLUMN events.written_at IS 'The writer''s clock.';
COMMENT ON COLUMN events.occurred_at IS 'When the source of an imported event claims that it happened, as the source wrote it.';
COMMENT ON COLUMN events.actor IS 'Who wrote the commit.';
COMMENT ON COLUMN events.on_behalf_of IS 'For whom, nearest first.';
COMMENT ON COLUMN events.epoch IS 'Under which right to write the agent''s stream; 0 where a stream has none.';
COMMENT ON COLUMN events.commit_id IS 'Id of the commit.';
COMMENT ON COLUMN events.causation IS 'Id of the event that led to this commit.';
COMMENT ON COLUMN events.correlation IS 'An id of the caller''s.';
COMMENT ON COLUMN events.traceparent IS 'W3C Trace Context.';
COMMENT ON COLUMN events.tx IS 'Id of the transaction over several streams.';
COMMENT ON COLUMN events.origin_log IS 'The log that a copied commit came from.';
COMMENT ON COLUMN events.origin_position IS 'Its position there.';
COMMENT ON COLUMN events.data IS 'The event''s data, exactly as recorded.';
COMMENT ON COLUMN events.known_as IS 'The type as which the other tables take it: its own, or the newest version of it. NULL where they do not take it: a type that this version does not know, or data that is not what the type says (see problems).';
COMMENT ON COLUMN events.lifted IS 'The data in the form of known_as, where that is not the recorded type.';

CREATE TABLE problems (
    position BIGINT NOT NULL,
    event_index INTEGER,
    subject VARCHAR NOT NULL,
    reason VARCHAR NOT NULL
);
COMMENT ON TABLE problems IS 'What the log holds that is not as Hansard writes it. Empty in a sound log.';
COMMENT ON COLUMN problems.position IS 'Position of the message.';
COMMENT ON COLUMN problems.event_index IS 'The event that is not what its type says: it stands in events and in no other table. NULL where the whole message is no commit: it stands nowhere else.';
COMMENT ON COLUMN problems.subject IS 'The subject it stands on.';
COMMENT ON COLUMN problems.reason IS 'What is wrong with it.';

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
    error_type VARCHAR,
    error VARCHAR,
    conversation VARCHAR,
    program VARCHAR,
    labels JSON,
    parent VARCHAR,
    effects VARCHAR,
    resumed BIGINT NOT NULL,
    first_position BIGINT NOT NULL,
    last_position BIGINT NOT NULL
);
COMMENT ON TABLE runs IS 'One row a run, as its life tells.';
COMMENT ON COLUMN runs.run IS 'Id of the run.';
COMMENT ON COLUMN runs.workflow IS 'What it runs; of a fork its parent''s.';
COMMENT ON COLUMN runs.status IS 'open, completed, failed or cancelled. A run whose process died stays open until it is resumed.';
COMMENT ON COLUMN runs.experiment IS 'The experiment it is a trial of.';
COMMENT ON COLUMN runs.arm IS 'The arm of that experiment.';
COMMENT ON COLUMN runs.task IS 'The task it was given: what trials are paired by.';
COMMENT ON COLUMN runs.trial IS 'Which trial of the task, as the source counts.';
COMMENT ON COLUMN runs.started_at IS 'When its first event happened.';
COMMENT ON COLUMN runs.ended_at IS 'When it completed, failed or was cancelled last; NULL while it is open.';
COMMENT ON COLUMN runs.error_type IS 'Of a failed run: the type of its error.';
COMMENT ON COLUMN runs.error IS 'Of a failed run: the text of its error.';
COMMENT ON COLUMN runs.conversation IS 'The conversation it belongs to.';
COMMENT ON COLUMN runs.program IS 'What started it, as a label.';
COMMENT ON COLUMN runs.labels IS 'Labels given at its begin, as an object of texts; of an imported run also source, source_file and source_run.';
COMMENT ON COLUMN runs.parent IS 'Of a fork: the run it goes on from.';
COMMENT ON COLUMN runs.effects IS 'Of a fork: shadow or live.';
COMMENT ON COLUMN runs.resumed IS 'How often an agent of it was resumed.';
COMMENT ON COLUMN runs.first_position IS 'Position of its first commit.';
COMMENT ON COLUMN runs.last_position IS 'Position of the newest commit of its life.';

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
COMMENT ON TABLE agents IS 'One row an agent of a run.';
COMMENT ON COLUMN agents.run IS 'Id of the run.';
COMMENT ON COLUMN agents.agent IS 'The agent.';
COMMENT ON COLUMN agents.role IS 'Its role in the run.';
COMMENT ON COLUMN agents.epoch IS 'How often a session of it began.';
COMMENT ON COLUMN agents.outcome IS 'How its newest session ended: completed, failed or cancelled; NULL while it is open.';
COMMENT ON COLUMN agents.error_type IS 'Type of the error it left with.';
COMMENT ON COLUMN agents.error IS 'Text of the error it left with.';
COMMENT ON COLUMN agents.written_by IS 'Version of Hansard that wrote its newest session.';
COMMENT ON COLUMN agents.began_at IS 'When its first session began.';
COMMENT ON COLUMN agents.left_at IS 'When its newest session ended.';
COMMENT ON COLUMN agents.version IS 'Newest version of its stream.';
COMMENT ON COLUMN agents.position IS 'Position of its newest commit.';

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
    outcome_position BIGINT
);
COMMENT ON TABLE steps IS 'One row a step: a call of an agent to the world. A fork has rows of its own only for what happened in it.';
COMMENT ON COLUMN steps.run IS 'Id of the run.';
COMMENT ON COLUMN steps.agent IS 'The agent.';
COMMENT ON COLUMN steps.role IS 'Its role in the run.';
COMMENT ON COLUMN steps.step IS 'Number of the step in its agent, from 1. agent#step names it.';
COMMENT ON COLUMN steps.tool IS 'What was called.';
COMMENT ON COLUMN steps.kind IS 'tool, model, resource or memory.';
COMMENT ON COLUMN steps.effects IS 'What the tool declares: pure, idempotent, reconcile, once or composite.';
COMMENT ON COLUMN steps.status IS 'requested (no outcome yet), completed, failed, blocked, in_doubt or not_done.';
COMMENT ON COLUMN steps.attempts IS 'Attempts begun.';
COMMENT ON COLUMN steps.duration_ms IS 'Time of the last attempt in ms; NULL where it is not known.';
COMMENT ON COLUMN steps.input_tokens IS 'Input tokens as the provider counted them.';
COMMENT ON COLUMN steps.output_tokens IS 'Output tokens as the provider counted them.';
COMMENT ON COLUMN steps.cost IS 'Cost in US dollars as recorded.';
COMMENT ON COLUMN steps.usage IS 'All that the call used up, by name.';
COMMENT ON COLUMN steps.arguments IS 'Arguments as they were given; over 64 KiB a reference ($blob, $parts), as are lists that grew in older records ($append).';
COMMENT ON COLUMN steps.result IS 'Result as recorded; NULL where there is none.';
COMMENT ON COLUMN steps.error_type IS 'Type of the error.';
COMMENT ON COLUMN steps.error IS 'Text of the error.';
COMMENT ON COLUMN steps.rule IS 'The rule that blocked it.';
COMMENT ON COLUMN steps.call_id IS 'What a model called the call.';
COMMENT ON COLUMN steps.key IS 'Idempotency key it was given.';
COMMENT ON COLUMN steps.parent_step IS 'The composite step around it.';
COMMENT ON COLUMN steps.scope IS 'Where in the call tree it stands.';
COMMENT ON COLUMN steps.after IS 'Steps whose results its scope had seen last.';
COMMENT ON COLUMN steps.reused_step IS 'The step whose outcome it took over: it did not run itself.';
COMMENT ON COLUMN steps.verdict IS 'How a doubt or divergence about it was settled.';
COMMENT ON COLUMN steps.settled_by IS 'Who settled it.';
COMMENT ON COLUMN steps.inherited IS 'Requested in the run''s parent, before the fork.';
COMMENT ON COLUMN steps.requested_at IS 'When it was requested.';
COMMENT ON COLUMN steps.ended_at IS 'When its outcome was known.';
COMMENT ON COLUMN steps.requested_version IS 'Version of its intent in the agent''s stream.';
COMMENT ON COLUMN steps.outcome_version IS 'Version of its outcome.';
COMMENT ON COLUMN steps.requested_position IS 'Position of its intent.';
COMMENT ON COLUMN steps.outcome_position IS 'Position of its outcome.';

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
COMMENT ON TABLE attempts IS 'One row a failed attempt that another followed.';
COMMENT ON COLUMN attempts.run IS 'Id of the run.';
COMMENT ON COLUMN attempts.agent IS 'The agent.';
COMMENT ON COLUMN attempts.step IS 'The step.';
COMMENT ON COLUMN attempts.attempt IS 'Which attempt failed, from 1.';
COMMENT ON COLUMN attempts.error_type IS 'Type of its error.';
COMMENT ON COLUMN attempts.error IS 'Text of its error.';
COMMENT ON COLUMN attempts.retry_in_ms IS 'How long the next one waited, in ms.';
COMMENT ON COLUMN attempts.duration_ms IS 'How long it took, in ms.';
COMMENT ON COLUMN attempts.version IS 'Version of the event in the agent''s stream.';
COMMENT ON COLUMN attempts.position IS 'Position of the commit.';
COMMENT ON COLUMN attempts.happened_at IS 'When it happened, as well as is known (see events).';

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
COMMENT ON TABLE messages IS 'One row a message in an agent''s context window, in order of version. Before a fork, the parent''s count (see lineage).';
COMMENT ON COLUMN messages.run IS 'Id of the run.';
COMMENT ON COLUMN messages.agent IS 'The agent.';
COMMENT ON COLUMN messages.role IS 'Its role in the run.';
COMMENT ON COLUMN messages.message_role IS 'system, user, assistant, tool ...';
COMMENT ON COLUMN messages.text IS 'Its content where that is text.';
COMMENT ON COLUMN messages.content IS 'Its content as recorded, where it is not text: a list of parts, or a reference to a large one ($blob).';
COMMENT ON COLUMN messages.name IS 'Name given with it: a participant or a tool.';
COMMENT ON COLUMN messages.tool_call_id IS 'Of a tool''s answer: the call it answers.';
COMMENT ON COLUMN messages.tool_calls IS 'How many calls it asks for.';
COMMENT ON COLUMN messages.tokens IS 'Tokens it adds to the context, as recorded.';
COMMENT ON COLUMN messages.input_tokens IS 'Input tokens as the provider counted them.';
COMMENT ON COLUMN messages.output_tokens IS 'Output tokens as the provider counted them.';
COMMENT ON COLUMN messages.cost IS 'Cost in US dollars as recorded.';
COMMENT ON COLUMN messages.usage IS 'All that it used up, by name.';
COMMENT ON COLUMN messages.fields IS 'What else the provider''s form has.';
COMMENT ON COLUMN messages.step IS 'The step whose result it is.';
COMMENT ON COLUMN messages.version IS 'Version of the event in the agent''s stream.';
COMMENT ON COLUMN messages.position IS 'Position of the commit.';
COMMENT ON COLUMN messages.happened_at IS 'When it happened, as well as is known (see events).';

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
COMMENT ON TABLE usage IS 'One row an amount that was used up: by a step''s last attempt or by a message.';
COMMENT ON COLUMN usage.run IS 'Id of the run.';
COMMENT ON COLUMN usage.agent IS 'The agent.';
COMMENT ON COLUMN usage.of IS 'step or message.';
COMMENT ON COLUMN usage.step IS 'The step.';
COMMENT ON COLUMN usage.version IS 'Version of the event in the agent''s stream.';
COMMENT ON COLUMN usage.metric IS 'input_tokens, output_tokens, cost (US dollars) ...';
COMMENT ON COLUMN usage.amount IS 'How much, as recorded.';
COMMENT ON COLUMN usage.position IS 'Position of the commit.';
COMMENT ON COLUMN usage.happened_at IS 'When it happened, as well as is known (see events).';

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
COMMENT ON TABLE decisions IS 'One row a decision.';
COMMENT ON COLUMN decisions.decision IS 'Id of its event.';
COMMENT ON COLUMN decisions.run IS 'Id of the run.';
COMMENT ON COLUMN decisions.agent IS 'The agent.';
COMMENT ON COLUMN decisions.role IS 'Its role in the run.';
COMMENT ON COLUMN decisions.question IS 'What was asked.';
COMMENT ON COLUMN decisions.selected IS 'What was chosen.';
COMMENT ON COLUMN decisions.score IS 'Score of what was chosen.';
COMMENT ON COLUMN decisions.runner_up IS 'Best score of what was not chosen.';
COMMENT ON COLUMN decisions.threshold IS 'The threshold it was held against.';
COMMENT ON COLUMN decisions.margin IS 'Score less threshold.';
COMMENT ON COLUMN decisions.confidence IS 'As the agent stated it.';
COMMENT ON COLUMN decisions.because IS 'Why.';
COMMENT ON COLUMN decisions.alternatives IS 'How many alternatives were recorded.';
COMMENT ON COLUMN decisions.inputs IS 'Ids of the events and commits it was made from.';
COMMENT ON COLUMN decisions.after IS 'Steps whose results its scope had seen last.';
COMMENT ON COLUMN decisions.version IS 'Version of the event in the agent''s stream.';
COMMENT ON COLUMN decisions.position IS 'Position of the commit.';
COMMENT ON COLUMN decisions.happened_at IS 'When it happened, as well as is known (see events).';

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
COMMENT ON TABLE alternatives IS 'One row an alternative of a decision.';
COMMENT ON COLUMN alternatives.decision IS 'Id of the decision.';
COMMENT ON COLUMN alternatives.run IS 'Id of the run.';
COMMENT ON COLUMN alternatives.number IS 'Place in the list, from 1.';
COMMENT ON COLUMN alternatives.id IS 'The alternative.';
COMMENT ON COLUMN alternatives.score IS 'Its score.';
COMMENT ON COLUMN alternatives.reason IS 'What spoke for it.';
COMMENT ON COLUMN alternatives.rejected_because IS 'Why it was rejected.';
COMMENT ON COLUMN alternatives.selected IS 'Whether it was chosen.';

CREATE TABLE checkpoints (
    run VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    data JSON,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE checkpoints IS 'One row a checkpoint.';
COMMENT ON COLUMN checkpoints.run IS 'Id of the run.';
COMMENT ON COLUMN checkpoints.agent IS 'The agent.';
COMMENT ON COLUMN checkpoints.name IS 'Its name.';
COMMENT ON COLUMN checkpoints.data IS 'Its data as recorded.';
COMMENT ON COLUMN checkpoints.version IS 'Version of the event in the agent''s stream.';
COMMENT ON COLUMN checkpoints.position IS 'Position of the commit.';
COMMENT ON COLUMN checkpoints.happened_at IS 'When it happened, as well as is known (see events).';

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
COMMENT ON TABLE resources IS 'One row a use of a resource.';
COMMENT ON COLUMN resources.run IS 'Id of the run.';
COMMENT ON COLUMN resources.agent IS 'The agent.';
COMMENT ON COLUMN resources.uri IS 'Which resource.';
COMMENT ON COLUMN resources.operation IS 'read, write ...';
COMMENT ON COLUMN resources.step IS 'The step it was used in.';
COMMENT ON COLUMN resources.version IS 'Version of the event in the agent''s stream.';
COMMENT ON COLUMN resources.position IS 'Position of the commit.';
COMMENT ON COLUMN resources.happened_at IS 'When it happened, as well as is known (see events).';

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
COMMENT ON TABLE handoffs IS 'One row a hand-off to another agent or role.';
COMMENT ON COLUMN handoffs.run IS 'Id of the run.';
COMMENT ON COLUMN handoffs.agent IS 'The agent.';
COMMENT ON COLUMN handoffs.receiver IS 'The agent or role that goes on.';
COMMENT ON COLUMN handoffs.because IS 'Why.';
COMMENT ON COLUMN handoffs.payload IS 'What it was given.';
COMMENT ON COLUMN handoffs.version IS 'Version of the event in the agent''s stream.';
COMMENT ON COLUMN handoffs.position IS 'Position of the commit.';
COMMENT ON COLUMN handoffs.happened_at IS 'When it happened, as well as is known (see events).';

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
COMMENT ON TABLE policies IS 'One row a call that the gate refused.';
COMMENT ON COLUMN policies.run IS 'Id of the run.';
COMMENT ON COLUMN policies.agent IS 'The agent.';
COMMENT ON COLUMN policies.step IS 'The step.';
COMMENT ON COLUMN policies.rule IS 'The rule''s name.';
COMMENT ON COLUMN policies.verdict IS 'blocked.';
COMMENT ON COLUMN policies.reason IS 'What the rule said.';
COMMENT ON COLUMN policies.version IS 'Version of the event in the agent''s stream.';
COMMENT ON COLUMN policies.position IS 'Position of the commit.';
COMMENT ON COLUMN policies.happened_at IS 'When it happened, as well as is known (see events).';

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
COMMENT ON TABLE settlements IS 'One row a doubt or divergence that somebody settled.';
COMMENT ON COLUMN settlements.run IS 'Id of the run.';
COMMENT ON COLUMN settlements.agent IS 'The agent.';
COMMENT ON COLUMN settlements.step IS 'The step.';
COMMENT ON COLUMN settlements.verdict IS 'happened, did_not_happen, reuse or run_again.';
COMMENT ON COLUMN settlements.settled_by IS 'Who said so.';
COMMENT ON COLUMN settlements.because IS 'Why.';
COMMENT ON COLUMN settlements.version IS 'Version of the event in the agent''s stream.';
COMMENT ON COLUMN settlements.position IS 'Position of the commit.';
COMMENT ON COLUMN settlements.happened_at IS 'When it happened, as well as is known (see events).';

CREATE TABLE assignments (
    run VARCHAR NOT NULL,
    experiment VARCHAR,
    arm VARCHAR,
    task VARCHAR,
    trial BIGINT,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE assignments IS 'One row an assignment of a run to an arm; the newest one counts.';
COMMENT ON COLUMN assignments.run IS 'Id of the run.';
COMMENT ON COLUMN assignments.experiment IS 'The experiment.';
COMMENT ON COLUMN assignments.arm IS 'The arm.';
COMMENT ON COLUMN assignments.task IS 'The task.';
COMMENT ON COLUMN assignments.trial IS 'The trial, as the source counts.';
COMMENT ON COLUMN assignments.version IS 'Version in the run''s life.';
COMMENT ON COLUMN assignments.position IS 'Position of the commit.';
COMMENT ON COLUMN assignments.happened_at IS 'When it happened, as well as is known (see events).';

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
COMMENT ON TABLE outcomes IS 'One row a metric of a run that somebody or something judged.';
COMMENT ON COLUMN outcomes.run IS 'Id of the run.';
COMMENT ON COLUMN outcomes.metric IS 'Which metric.';
COMMENT ON COLUMN outcomes.value IS 'Its value.';
COMMENT ON COLUMN outcomes.judged_by IS 'Who or what judged.';
COMMENT ON COLUMN outcomes.because IS 'Why.';
COMMENT ON COLUMN outcomes.details IS 'What else the judge said, as recorded.';
COMMENT ON COLUMN outcomes.version IS 'Version in the run''s life.';
COMMENT ON COLUMN outcomes.position IS 'Position of the commit.';
COMMENT ON COLUMN outcomes.happened_at IS 'When it happened, as well as is known (see events).';

CREATE TABLE lineage (
    run VARCHAR NOT NULL,
    parent VARCHAR NOT NULL,
    effects VARCHAR NOT NULL,
    vector JSON NOT NULL,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE lineage IS 'One row a fork: a run that goes on where another stood.';
COMMENT ON COLUMN lineage.run IS 'Id of the run.';
COMMENT ON COLUMN lineage.parent IS 'The run it goes on from.';
COMMENT ON COLUMN lineage.effects IS 'What its tools with effects do: shadow or live.';
COMMENT ON COLUMN lineage.vector IS 'The parent''s version of each stream at the cut.';
COMMENT ON COLUMN lineage.version IS 'Version in the run''s life that it begins with.';
COMMENT ON COLUMN lineage.position IS 'Position of the commit.';
COMMENT ON COLUMN lineage.happened_at IS 'When it happened, as well as is known (see events).';

CREATE TABLE conversations (
    conversation VARCHAR NOT NULL,
    run VARCHAR NOT NULL,
    number BIGINT NOT NULL,
    position BIGINT NOT NULL
);
COMMENT ON TABLE conversations IS 'One row a run of a conversation.';
COMMENT ON COLUMN conversations.conversation IS 'Id of the conversation.';
COMMENT ON COLUMN conversations.run IS 'Id of the run.';
COMMENT ON COLUMN conversations.number IS 'Which run of it, from 1.';
COMMENT ON COLUMN conversations.position IS 'Position of the commit.';

CREATE TABLE tools (
    run VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    tool VARCHAR NOT NULL,
    effects VARCHAR NOT NULL,
    declared_version VARCHAR,
    source VARCHAR,
    version BIGINT NOT NULL,
    position BIGINT NOT NULL,
    happened_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE tools IS 'One row a declaration of a tool: when an agent first called it, and after each change. Before a fork, the parent''s count.';
COMMENT ON COLUMN tools.run IS 'Id of the run.';
COMMENT ON COLUMN tools.agent IS 'The agent.';
COMMENT ON COLUMN tools.tool IS 'The tool.';
COMMENT ON COLUMN tools.effects IS 'What it does to the world: pure, idempotent, reconcile, once or composite.';
COMMENT ON COLUMN tools.declared_version IS 'Version it was declared with.';
COMMENT ON COLUMN tools.source IS 'Digest of its source.';
COMMENT ON COLUMN tools.version IS 'Version of the event in the agent''s stream.';
COMMENT ON COLUMN tools.position IS 'Position of the commit.';
COMMENT ON COLUMN tools.happened_at IS 'When it happened, as well as is known (see events).';
