"""The single-machine fleet: one SQLite file, local processes or simulated pods."""
