CREATE TABLE progress (position INTEGER NOT NULL, digest TEXT NOT NULL);
INSERT INTO progress VALUES (0, '');
CREATE VIRTUAL TABLE events USING fts5 (
    text, id UNINDEXED, type UNINDEXED, run UNINDEXED, agent UNINDEXED, role UNINDEXED,
    tokenize = "unicode61 remove_diacritics 2"
);
CREATE TABLE told (run TEXT NOT NULL, version INTEGER NOT NULL, tag TEXT NOT NULL, data TEXT);
CREATE INDEX told_of ON told (run);
