"""Whole systems in virtual time, with faults in between: a seed is a world, and a failure is a short list of events."""
