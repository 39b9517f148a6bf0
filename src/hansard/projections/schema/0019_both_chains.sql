-- Refill: files that were projected before are made anew from the log.
-- What makes a call the same call, by each of the two chains.

ALTER TABLE steps ADD COLUMN fingerprint_result VARCHAR;
ALTER TABLE steps ADD COLUMN fingerprint_full VARCHAR;
