-- Version 4 of a Tenure ledger: since when a run has had what a lease goes on with. Leases of before had nothing to say.
ALTER TABLE leases ADD COLUMN since INTEGER;
-- Images of the state do not say by what hours had run out: the state is made from the entries once.
DELETE FROM snapshots;
