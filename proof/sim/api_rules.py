"""The rules of the definitions that matter to who writes the ledger: what never changes, and what only goes forward."""

from __future__ import annotations

from proof.sim.api_forms import Object, invalid


def check(before: Object | None, after: Object) -> None:
    """Refuse a write that the definition of its kind would refuse."""
    kind = after["kind"] if after.get("apiVersion", "").startswith("rq.") else ""
    if before is None:
        return
    if kind in ("Lease", "Reservation", "LedgerEntry") and before.get("spec") != after.get("spec"):
        raise invalid(f"{kind}: its spec never changes")
    if kind == "Lease" and (before.get("status") or {}).get("closed") and before.get("status") != after.get("status"):
        raise invalid("Lease: a closed lease never changes")
    if kind == "LedgerHead":
        _head(before["spec"], after["spec"])


def _head(old: Object, new: Object) -> None:
    if old["fleet"] != new["fleet"]:
        raise invalid("LedgerHead: a ledger belongs to one fleet")
    if new["seq"] < old["seq"] or (new["seq"] == old["seq"] and new["hash"] != old["hash"]):
        raise invalid("LedgerHead: the head of the ledger moves forward only")
    if "archived" in old and ("archived" not in new or new["archived"]["seq"] < old["archived"]["seq"]):
        raise invalid("LedgerHead: what is archived stays archived")
