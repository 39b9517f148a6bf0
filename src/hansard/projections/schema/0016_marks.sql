-- Refill: files that were projected before are made anew from the log.
-- Marks: what the tables know of the log, to compare it with.

ALTER TABLE progress ADD COLUMN messages BIGINT;
COMMENT ON COLUMN progress.messages IS 'How many messages of the log there are up to that position.';
ALTER TABLE progress ADD COLUMN chain VARCHAR;
COMMENT ON COLUMN progress.chain IS 'Rolling SHA-256 over all of them in order, with their positions: by it ''hansard check'' knows the whole log again.';
