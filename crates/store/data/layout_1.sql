CREATE TABLE run (
    key           INTEGER PRIMARY KEY,
    id            TEXT    NOT NULL UNIQUE,
    format        INTEGER NOT NULL,
    started       TEXT    NOT NULL,
    started_us    INTEGER NOT NULL,
    machine       TEXT    NOT NULL,
    cpu_model     TEXT,
    mode          TEXT    NOT NULL,
    kelvin        TEXT    NOT NULL,
    header        BLOB    NOT NULL,
    status        TEXT    CHECK (status IN ('complete', 'partial')),
    partial_reason TEXT    CHECK ((partial_reason IS NOT NULL) = (status IS 'partial')),
    seconds       REAL    CHECK ((seconds IS NOT NULL) = (status IS NOT NULL)),
    notes         TEXT    CHECK ((notes IS NOT NULL) = (status IS NOT NULL))
) STRICT;
CREATE INDEX run_by_time ON run (started_us, id);
CREATE INDEX run_by_machine ON run (machine, status, started_us, id);

CREATE TABLE round (
    key           INTEGER PRIMARY KEY,
    run           INTEGER NOT NULL REFERENCES run (key) ON DELETE CASCADE,
    sequence      INTEGER NOT NULL,
    probe         TEXT    NOT NULL,
    axes          TEXT    NOT NULL,
    round         INTEGER NOT NULL,
    start_seconds REAL    NOT NULL,
    outcome       TEXT    NOT NULL CHECK (outcome IN ('measured', 'skipped', 'failed')),
    payload       BLOB    NOT NULL,
    UNIQUE (run, sequence)
) STRICT;

CREATE TABLE skip (
    run           INTEGER NOT NULL REFERENCES run (key) ON DELETE CASCADE,
    sequence      INTEGER NOT NULL,
    probe         TEXT    NOT NULL,
    axes          TEXT    NOT NULL,
    reason        TEXT    NOT NULL,
    PRIMARY KEY (run, sequence)
) STRICT, WITHOUT ROWID;

CREATE TABLE conclusion (
    run           INTEGER PRIMARY KEY REFERENCES run (key) ON DELETE CASCADE,
    payload       BLOB    NOT NULL
) STRICT;

CREATE TABLE series (
    key           INTEGER PRIMARY KEY,
    metric        TEXT    NOT NULL,
    version       INTEGER NOT NULL,
    axes          TEXT    NOT NULL,
    UNIQUE (metric, version, axes)
) STRICT;

CREATE TABLE headline (
    series        INTEGER NOT NULL REFERENCES series (key),
    run           INTEGER NOT NULL REFERENCES run (key) ON DELETE CASCADE,
    value         REAL    NOT NULL,
    within_variance REAL  NOT NULL CHECK (within_variance >= 0),
    PRIMARY KEY (series, run)
) STRICT, WITHOUT ROWID;
CREATE INDEX headline_by_run ON headline (run);

CREATE TABLE tag (
    run           INTEGER NOT NULL REFERENCES run (key) ON DELETE CASCADE,
    name          TEXT    NOT NULL,
    value         TEXT    NOT NULL,
    PRIMARY KEY (run, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX tag_by_value ON tag (name, value);

CREATE TABLE note (
    run           INTEGER PRIMARY KEY REFERENCES run (key) ON DELETE CASCADE,
    text          TEXT    NOT NULL
) STRICT;

CREATE TABLE pending_upload (
    run           INTEGER PRIMARY KEY REFERENCES run (key) ON DELETE CASCADE,
    server        TEXT    NOT NULL
) STRICT;
