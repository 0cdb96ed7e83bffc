"""Charges as a FOCUS dataset: the columns of the FinOps Open Cost and Usage Specification (1.2), so that a tool that
reads cloud bills reads ours.

One row is one charge: a day, a run, the envelope that paid, the class and the role of its leases. The owner who pays is
the billing account (its rows of a month are its invoice), the Budget is the sub account, the run the resource, and the
kind of GPU the SKU. Columns that speak of money are there only if prices were given. What FOCUS has no column for
stands behind, under names that begin with ``x_``. Columns are sorted by name, as FOCUS wants them.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from tenure.cli.bill import Prices, clipped, hours
from tenure.cli.output import to_json_line
from tenure.cli.sheet import Value
from tenure.cli.times import month
from tenure.ledger import Charge
from tenure.units import Instant, format_time

UNIT = "GPU-Hours"
SERVICE = "Tenure GPU fleet"


class Sheet(Struct, frozen=True, kw_only=True):
    """What the rows of one dataset have in common."""

    since: Instant
    until: Instant
    provider: str
    prices: Prices = Prices()

    def header(self) -> list[str]:
        return sorted({*_COLUMNS, *(_COSTS if self.prices else ())}, key=lambda name: (name.startswith("x_"), name))

    def row(self, charge: Charge) -> list[Value]:
        ours = {**_COLUMNS, **_COSTS}
        return [ours[name](self, charge) for name in self.header()]


def _cost(sheet: Sheet, charge: Charge) -> Value:
    return sheet.prices.cost(charge.flavor, charge.used)


def _price(sheet: Sheet, charge: Charge) -> Value:
    return sheet.prices.of[charge.flavor]


def _describe(_: Sheet, charge: Charge) -> str:
    what = "hot spares" if charge.role == "Spare" else "GPUs"
    return f"{charge.flavor} {what} of run {charge.run_key}, {charge.funding}"


def _tags(_: Sheet, charge: Charge) -> str:
    return to_json_line({
        "tenure/class": charge.funding, "tenure/envelope": charge.envelope, "tenure/namespace": charge.namespace,
        "tenure/owner": charge.owner, "tenure/role": charge.role,
    })  # fmt: skip


_COLUMNS: dict[str, Callable[[Sheet, Charge], Value]] = {
    "BillingAccountId": lambda _, charge: charge.payer,
    "BillingAccountName": lambda _, charge: charge.payer,
    "BillingPeriodEnd": lambda _, charge: format_time(month(charge.day)[1]),
    "BillingPeriodStart": lambda _, charge: format_time(month(charge.day)[0]),
    "ChargeCategory": lambda *_: "Usage",
    "ChargeClass": lambda *_: None,
    "ChargeDescription": _describe,
    "ChargeFrequency": lambda *_: "Usage-Based",
    "ChargePeriodEnd": lambda sheet, charge: format_time(clipped(charge.day, sheet.since, sheet.until)[1]),
    "ChargePeriodStart": lambda sheet, charge: format_time(clipped(charge.day, sheet.since, sheet.until)[0]),
    "ConsumedQuantity": lambda _, charge: hours(charge.used),
    "ConsumedUnit": lambda *_: UNIT,
    "InvoiceIssuerName": lambda sheet, _: sheet.provider,
    "ProviderName": lambda sheet, _: sheet.provider,
    "PublisherName": lambda sheet, _: sheet.provider,
    "ResourceId": lambda _, charge: charge.uid,
    "ResourceName": lambda _, charge: charge.run_key,
    "ResourceType": lambda *_: "Run",
    "ServiceCategory": lambda *_: "Compute",
    "ServiceName": lambda *_: SERVICE,
    "SkuId": lambda _, charge: charge.flavor,
    "SubAccountId": lambda _, charge: charge.budget,
    "SubAccountName": lambda _, charge: charge.budget,
    "Tags": _tags,
    "x_EnvelopeName": lambda _, charge: charge.envelope,
    "x_FundingClass": lambda _, charge: charge.funding,
    "x_GpuMicroseconds": lambda _, charge: charge.used,
    "x_LeaseRole": lambda _, charge: charge.role,
    "x_RunOwnerId": lambda _, charge: charge.owner,
}
_COSTS: dict[str, Callable[[Sheet, Charge], Value]] = {
    "BilledCost": _cost,
    "BillingCurrency": lambda sheet, _: sheet.prices.currency,
    "ContractedCost": _cost,
    "ContractedUnitPrice": _price,
    "EffectiveCost": _cost,
    "ListCost": _cost,
    "ListUnitPrice": _price,
    "PricingCategory": lambda *_: "Standard",
    "PricingQuantity": lambda _, charge: hours(charge.used),
    "PricingUnit": lambda *_: UNIT,
    "SkuPriceId": lambda _, charge: charge.flavor,
}
