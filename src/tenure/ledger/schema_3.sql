-- Version 3 of a Tenure ledger: the promises made to waiting runs, and what the resolver did. All of it is derived.

-- A row for each Run that was ever submitted: one name may have had several, one after the other.
CREATE TABLE runs (
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    uid       TEXT NOT NULL,
    owner     TEXT NOT NULL,            -- as it was submitted
    flavor    TEXT NOT NULL,
    gpus      INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    seq       INTEGER NOT NULL REFERENCES entries,  -- the entry that submitted it
    PRIMARY KEY (namespace, name, uid)
) STRICT, WITHOUT ROWID;

CREATE TABLE reservations (
    namespace  TEXT NOT NULL,
    name       TEXT NOT NULL,
    uid        TEXT NOT NULL,
    run        TEXT NOT NULL,
    run_uid    TEXT NOT NULL,
    state      TEXT NOT NULL,
    made       INTEGER NOT NULL,
    promised   INTEGER,                 -- the start that was promised first, if one was
    confidence TEXT NOT NULL,           -- what that promise rested on
    planned    INTEGER,                 -- the last start that was planned
    ended      INTEGER,                 -- when it was Released or Canceled; until then it is live
    body       TEXT NOT NULL,           -- JSON: its last record
    seq        INTEGER NOT NULL REFERENCES entries,  -- the entry that made it
    changed    INTEGER NOT NULL REFERENCES entries,  -- the entry that changed it last
    PRIMARY KEY (namespace, name, uid)
) STRICT;

CREATE INDEX reservations_by_run ON reservations (namespace, run, seq);
-- What is live is few, whatever the history.
CREATE INDEX reservations_live ON reservations (namespace, run) WHERE ended IS NULL;
CREATE INDEX reservations_released ON reservations (ended) WHERE state = 'Released';

-- How a reservation changed: a row where its state, its reason, its start or what that rests on became another.
CREATE TABLE plans (
    namespace  TEXT NOT NULL,
    name       TEXT NOT NULL,
    uid        TEXT NOT NULL,
    seq        INTEGER NOT NULL REFERENCES entries,
    idx        INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    state      TEXT NOT NULL,
    reason     TEXT NOT NULL,
    message    TEXT NOT NULL,
    start      INTEGER,
    confidence TEXT NOT NULL,
    PRIMARY KEY (namespace, name, uid, seq, idx)
) STRICT, WITHOUT ROWID;

-- What the resolver did: each freeze of a draw, and each resolution.
CREATE TABLE resolutions (
    subject    TEXT NOT NULL,           -- Reservation/rai/train-r1, or Budget/rai/west
    seq        INTEGER NOT NULL REFERENCES entries,
    idx        INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    activation INTEGER NOT NULL,
    uid        TEXT NOT NULL,           -- of the reservation
    body       TEXT NOT NULL,           -- JSON: the fact
    PRIMARY KEY (subject, seq, idx)
) STRICT;

-- Who gave way, by the run that did.
CREATE TABLE cuts (
    run        TEXT NOT NULL,           -- namespace/name
    seq        INTEGER NOT NULL REFERENCES entries,
    idx        INTEGER NOT NULL,
    place      INTEGER NOT NULL,        -- which cut of the resolution
    at         INTEGER NOT NULL,
    subject    TEXT NOT NULL,
    activation INTEGER NOT NULL,
    body       TEXT NOT NULL,           -- JSON: the cut
    PRIMARY KEY (run, seq, idx, place)
) STRICT, WITHOUT ROWID;

-- The first value of each custodian's chain.
CREATE TABLE beacons (
    beacon TEXT NOT NULL,
    seq    INTEGER NOT NULL REFERENCES entries,
    root   TEXT NOT NULL,
    PRIMARY KEY (beacon, seq)
) STRICT, WITHOUT ROWID;
