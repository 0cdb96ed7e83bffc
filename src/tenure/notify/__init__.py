"""Tells people what happened: notes of the ledger go out as CloudEvents, at least once, in order for each object.

    config, errors = read_notify(text, source="notify.yaml", folder=Path("."))
    deliverer = Deliverer(path, config)
    deliverer.run(stop)            # in a thread of its own, until the event is set

The notifier decides nothing and changes nothing that was decided: it reads what is committed, and keeps in the same
file how far each receiver has come (``outbox.py``). ``progress.py`` is the rule, as pure functions; ``event.py`` the
letter; ``sinks.py`` the post; ``deliver.py`` the round. Only what is named here is public.
"""

from tenure.notify.config import NotifyConfig
from tenure.notify.deliver import Deliverer
from tenure.notify.event import KINDS
from tenure.notify.file import missing, read_notify
from tenure.notify.outbox import DeadLetter, Outbox, ReceiverState

__all__ = [
    "KINDS",
    "DeadLetter",
    "Deliverer",
    "NotifyConfig",
    "Outbox",
    "ReceiverState",
    "missing",
    "read_notify",
]
