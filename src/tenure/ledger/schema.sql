-- Version 1 of a Tenure ledger. Times are microseconds since 1970 in UTC; intervals are half-open, [start, end).
-- This text is frozen once released: a change of the schema is a further step in schema.py, never an edit here.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The truth. `body` is the exact bytes that `hash` is the SHA-256 of; it names the hash of the entry before it.
CREATE TABLE entries (
    seq   INTEGER PRIMARY KEY CHECK (seq > 0),
    at    INTEGER NOT NULL,
    cause TEXT NOT NULL,
    body  BLOB NOT NULL,
    hash  TEXT NOT NULL CHECK (length(hash) = 64)
) STRICT;

-- Also what stops INSERT OR REPLACE, which deletes without asking the trigger below.
CREATE TRIGGER entries_are_dense BEFORE INSERT ON entries
WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM entries)
BEGIN
    SELECT RAISE(ABORT, 'entries are appended in sequence, one after the last');
END;

CREATE TRIGGER entries_never_change BEFORE UPDATE ON entries
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only: none is ever changed');
END;

CREATE TRIGGER entries_never_go BEFORE DELETE ON entries
BEGIN
    SELECT RAISE(ABORT, 'entries are append-only: none is ever deleted');
END;

-- Everything below is derived from the entries, for queries, and can be rebuilt from them.

CREATE TABLE leases (
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    run       TEXT NOT NULL,
    uid       TEXT NOT NULL,
    owner     TEXT NOT NULL,
    attempt   INTEGER NOT NULL,
    grp       INTEGER NOT NULL,
    domain    TEXT NOT NULL,
    node      TEXT NOT NULL,
    ordinals  TEXT NOT NULL,            -- JSON list of GPU indexes on the node
    gpus      INTEGER NOT NULL,         -- how many they are
    role      TEXT NOT NULL,
    start     INTEGER NOT NULL,
    until     INTEGER,                  -- the end the run declared, if it declared one
    end       INTEGER CHECK (end >= start),
    closure   TEXT,
    budget    TEXT NOT NULL,
    envelope  TEXT NOT NULL,
    payer     TEXT NOT NULL,
    funding   TEXT NOT NULL,
    reason    TEXT NOT NULL,
    seq       INTEGER NOT NULL REFERENCES entries,  -- the entry that opened it
    closed_by INTEGER REFERENCES entries,           -- the entry that closed it
    PRIMARY KEY (namespace, name)
) STRICT;

CREATE INDEX leases_by_run ON leases (namespace, run, attempt);
-- The other indexes come in two halves. What is open is few, whatever the history, so opening a lease costs the same
-- after ten years; what is closed is found from its recent end.
CREATE INDEX leases_open ON leases (start) WHERE end IS NULL;
CREATE INDEX leases_open_by_node ON leases (node) WHERE end IS NULL;
CREATE INDEX leases_closed ON leases (end) WHERE end IS NOT NULL;
CREATE INDEX leases_closed_by_node ON leases (node, end) WHERE end IS NOT NULL;
CREATE INDEX leases_closed_by_payer ON leases (budget, end) WHERE end IS NOT NULL;
CREATE INDEX leases_closed_by_owner ON leases (owner, end) WHERE end IS NOT NULL;

CREATE TABLE notes (
    seq     INTEGER NOT NULL REFERENCES entries,
    idx     INTEGER NOT NULL,           -- which fact of the entry
    at      INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    object  TEXT NOT NULL,
    reason  TEXT NOT NULL,
    message TEXT NOT NULL,
    PRIMARY KEY (seq, idx)
) STRICT, WITHOUT ROWID;

CREATE INDEX notes_by_object ON notes (object, seq);

CREATE TABLE decisions (
    namespace TEXT NOT NULL,
    run       TEXT NOT NULL,
    seq       INTEGER NOT NULL REFERENCES entries,
    idx       INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    verdict   TEXT NOT NULL,            -- JSON
    PRIMARY KEY (namespace, run, seq, idx)
) STRICT, WITHOUT ROWID;

-- A shortcut for replay, never truth: the state after entry `seq`, whose hash was `hash`.
CREATE TABLE snapshots (
    seq    INTEGER PRIMARY KEY REFERENCES entries,
    hash   TEXT NOT NULL,
    digest TEXT NOT NULL,               -- SHA-256 of the body
    body   BLOB NOT NULL
) STRICT;
