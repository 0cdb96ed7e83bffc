"""The command line: `kubectl runs` for everyone who uses a fleet, `tenure` for who keeps one.

A verb is a module of its own (``runs/``, ``server/``), imported when it is called; what all of them share lies here.
Verbs ask the port (``port.py``) and print; they decide nothing. See docs/guide/cli.md.
"""
