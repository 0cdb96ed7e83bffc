-- Version 2 of a Tenure ledger: whose an object was, and the outbox of the notifier (tenure.notify).

-- Derived from the entries: the owner of a Run, Budget or Namespace from entry `seq` on. A row for each change.
CREATE TABLE owners (
    object TEXT NOT NULL,               -- as notes name it: Run/rai/train
    seq    INTEGER NOT NULL REFERENCES entries,
    owner  TEXT NOT NULL,
    PRIMARY KEY (object, seq)
) STRICT, WITHOUT ROWID;

-- Everything below is neither truth about the fleet nor derived from it: how far each receiver has come among the notes.
CREATE TABLE receivers (
    name       TEXT PRIMARY KEY,
    seq        INTEGER NOT NULL CHECK (seq >= 0),
    idx        INTEGER NOT NULL,        -- every note up to (seq, idx) is settled, but for those that lag
    sent       INTEGER NOT NULL,
    fails      INTEGER NOT NULL,        -- times in a row that it was away
    not_before INTEGER NOT NULL,
    why        TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE lagging (
    receiver   TEXT NOT NULL REFERENCES receivers,
    object     TEXT NOT NULL,
    seq        INTEGER NOT NULL,
    idx        INTEGER NOT NULL,        -- the object's notes from (seq, idx) on are owed
    tries      INTEGER NOT NULL,
    refusals   INTEGER NOT NULL,
    not_before INTEGER NOT NULL,
    why        TEXT NOT NULL,
    PRIMARY KEY (receiver, object)
) STRICT, WITHOUT ROWID;

CREATE TABLE dead_letters (
    receiver TEXT NOT NULL REFERENCES receivers,
    seq      INTEGER NOT NULL REFERENCES entries,
    idx      INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    refusals INTEGER NOT NULL,
    why      TEXT NOT NULL,
    again    INTEGER NOT NULL,          -- 1: a person wants it sent again
    PRIMARY KEY (receiver, seq, idx)
) STRICT, WITHOUT ROWID;

CREATE INDEX dead_letters_again ON dead_letters (receiver) WHERE again = 1;
