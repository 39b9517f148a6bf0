-- Refill: files that were projected before are made anew from the log.
-- Marks: what the tables know of the log, to compare it with.

ALTER TABLE progress ADD COLUMN messages BIGINT;
ALTER TABLE progress ADD COLUMN chain VARCHAR;
