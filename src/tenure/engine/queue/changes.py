"""What was gained and lost since somebody looked: nodes and envelopes, each with the number of its last change.

A run that was refused can only start once something has more than it had, so a refusal keeps the number at which it was
made and is asked about again only where later numbers are. Nothing here is a fact: an engine that knows nothing asks
everybody, and gets the same answers.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from tenure.engine.books import FundKey

NEVER = -1
"""The number of a refusal that was never made."""


class Changes:
    """Counted changes of every flavor's nodes and of the envelopes."""

    def __init__(self) -> None:
        self.count = 0
        """How many changes there were so far."""
        self._nodes: dict[str, dict[str, int]] = {}
        """By flavor: nodes that gained something, the latest last, with the number of the last time."""
        self._funds: dict[FundKey, int] = {}
        """Envelopes that gained something, likewise."""
        self._all: dict[str, int] = {}
        """By flavor: when everything may have changed."""
        self._everything = 0
        self.lost_nodes: dict[str, dict[str, None]] = {}
        """By flavor: nodes that will have less than was foreseen, since promises were last looked at."""
        self.lost_funds: dict[FundKey, None] = {}
        self._looked: dict[str, int] = {}
        """By flavor: the number at which its promises were last looked at."""

    # -- what happens --

    def gain_node(self, flavor: str, node: str) -> None:
        self.count += 1
        nodes = self._nodes.setdefault(flavor, {})
        nodes.pop(node, None)
        nodes[node] = self.count

    def gain_fund(self, fund: FundKey) -> None:
        self.count += 1
        self._funds.pop(fund, None)
        self._funds[fund] = self.count

    def gain_all(self, flavor: str) -> None:
        self.count += 1
        self._all[flavor] = self.count

    def lose_node(self, flavor: str, node: str) -> None:
        self.lost_nodes.setdefault(flavor, {})[node] = None

    def lose_fund(self, fund: FundKey) -> None:
        self.lost_funds[fund] = None

    def everything(self) -> None:
        """Terms or the policy changed: what was found says nothing any more."""
        self.count += 1
        self._everything = self.count

    # -- questions --

    def all_gained(self, flavor: str, since: int) -> bool:
        """True if everything may have changed since a number."""
        return since == NEVER or max(self._everything, self._all.get(flavor, 0)) > since

    def nodes_gained(self, flavor: str, since: int) -> Iterator[str]:
        """Nodes that gained something since a number, the latest first."""
        for node, number in reversed(self._nodes.get(flavor, {}).items()):
            if number <= since:
                return
            yield node

    def funds_gained(self, since: int) -> Iterator[FundKey]:
        """Envelopes that gained something since a number, the latest first."""
        for fund, number in reversed(self._funds.items()):
            if number <= since:
                return
            yield fund

    def fund_number(self, fund: FundKey) -> int:
        return self._funds.get(fund, 0)

    # -- losses --

    def take_losses(self, flavor: str, funds: Container[FundKey]) -> tuple[dict[str, None], set[FundKey], bool]:
        """Nodes and envelopes (of these) that lost something since this was last asked of a flavor, and whether
        anything may have; they are looked at now."""
        nodes = self.lost_nodes.pop(flavor, {})
        lost = {fund for fund in self.lost_funds if fund in funds}
        for fund in lost:
            del self.lost_funds[fund]
        doubted = max(self._everything, self._all.get(flavor, 0)) > self._looked.get(flavor, 0)
        self._looked[flavor] = self.count
        return nodes, lost, doubted
