"""The verbs of `tenure`, one module each."""
