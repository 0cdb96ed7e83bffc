"""The verbs of `kubectl runs`, one module each."""
