"""The simulator: scenarios and what-if questions on virtual time."""
