-- What imports of recorded runs came to.

CREATE TABLE imports (
    "import" VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    format VARCHAR NOT NULL,
    files VARCHAR[] NOT NULL,
    more_files BIGINT NOT NULL,
    experiment VARCHAR,
    arm VARCHAR,
    runs BIGINT NOT NULL,
    duplicates BIGINT NOT NULL,
    earlier BIGINT NOT NULL,
    skipped BIGINT NOT NULL,
    reasons VARCHAR[],
    assumed JSON,
    stopped BOOLEAN NOT NULL,
    imported_at TIMESTAMP NOT NULL,
    position BIGINT NOT NULL
);
COMMENT ON TABLE imports IS 'One row an import of recorded runs that came to something new: what was read, what was skipped and what was assumed.';
