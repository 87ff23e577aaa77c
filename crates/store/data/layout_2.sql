CREATE TABLE metric (
    id            TEXT    NOT NULL,
    version       INTEGER NOT NULL,
    unit          TEXT    NOT NULL,
    better        TEXT    NOT NULL CHECK (better IN ('lower', 'higher', 'neither')),
    summary       TEXT    NOT NULL,
    PRIMARY KEY (id, version)
) STRICT, WITHOUT ROWID;

ALTER TABLE headline ADD COLUMN predicted REAL;
ALTER TABLE headline ADD COLUMN predicted_low REAL;
ALTER TABLE headline ADD COLUMN predicted_high REAL;
