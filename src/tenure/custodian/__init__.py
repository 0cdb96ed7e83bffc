"""A custodian: keeper of one pre-committed hash chain, who reveals its next value after a freeze (SPEC 8).

    made = init(folder, beacon="operator", length=100_000)   # once; publish made.published, the chain's c[0]
    keeper = open_custodian(folder)
    answer = keeper.answer(intent)                           # Revealed, or CustodianRefused with its reason

What a custodian promises: it reveals one value at a time, in order, each for one commit only, and writes the
commit down before the value leaves it. Guide: docs/concepts/lottery.md.
"""

from tenure.custodian.chain import Chain, make_chain
from tenure.custodian.journal import Answered
from tenure.custodian.keeper import Custodian, Revealed, Status, init, open_custodian
from tenure.custodian.refusals import Code, CustodianRefused

__all__ = [
    "Answered",
    "Chain",
    "Code",
    "Custodian",
    "CustodianRefused",
    "Revealed",
    "Status",
    "init",
    "make_chain",
    "open_custodian",
]
