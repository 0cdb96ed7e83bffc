"""`chargeback`: bills that add up to the ledger, to the microsecond, and that a spreadsheet may open."""

import csv
import io
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from tenure.cli import sheet
from tenure.cli.bill import GRAINS, HEADER, PRICED, Grain, Prices, hours, lines
from tenure.cli.focus import Sheet
from tenure.ledger import Charge, Ledger
from tenure.units import DAY, HOUR, parse_time
from tests.cli.support import Done, call, create, run_yaml, submit, until_idle

ROOT = Path(__file__).resolve().parents[2]
PERIOD = ["--since", "2025-11-01", "--until", "2025-12-02"]
SINCE, UNTIL = parse_time("2025-11-01T00:00:00Z"), parse_time("2025-12-02T00:00:00Z")
PRICE = ["--price", "H100-80GB=2.50"]
MANDATORY = [
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd",
    "BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargePeriodEnd",
    "ChargePeriodStart", "ContractedCost", "EffectiveCost", "InvoiceIssuerName", "ListCost", "PricingQuantity",
    "PricingUnit", "ProviderName", "PublisherName", "ServiceCategory", "ServiceName",
]  # fmt: skip
"""What FOCUS 1.2 asks of every dataset."""
CONDITIONAL = [
    "ChargeFrequency", "ConsumedQuantity", "ConsumedUnit", "ContractedUnitPrice", "ListUnitPrice", "PricingCategory",
    "ResourceId", "ResourceName", "ResourceType", "SkuId", "SkuPriceId", "SubAccountId", "SubAccountName", "Tags",
]  # fmt: skip


def bill(fleet: Path, *words: str) -> Done:
    return call("runs", "chargeback", *PERIOD, *words, fleet=fleet)


def rows(done: Done) -> list[dict[str, str]]:
    assert done.code == 0, done.err
    return list(csv.DictReader(io.StringIO(done.out)))


def leases_of(path: Path, since: int = SINCE, until: int = UNTIL) -> int:
    """The truth: every lease, by the definition."""
    with Ledger.open(path, readonly=True) as ledger:
        return sum(row.used(since=since, until=until) for row in ledger.leases())


def test_a_bill_for_people(funded: Path) -> None:
    assert bill(funded, *PRICE).out == snapshot("""\
GPU-hours paid by each owner from 2025-11-01T00:00:00Z to 2025-12-02T00:00:00Z:
PAYER          TYPE         OWN  FAMILY   LENT  GPU-HOURS  SHARE     USD
org:ai:eval    H100-80GB      0   24.00      0      24.00    14%   60.00
org:ai:rai     H100-80GB  48.00       0   8.00      56.00    32%  140.00
org:bio        H100-80GB      0       0  16.00      16.00     9%   40.00
org:mm:vision  H100-80GB  32.00       0  48.00      80.00    45%  200.00
TOTAL          -          80.00   24.00  72.00     176.00   100%  440.00
""")


def test_the_csv_has_its_documented_header_and_empty_cells_where_it_sums(funded: Path) -> None:
    header, first, *_ = bill(funded, "--by", "budget", "-o", "csv", *PRICE).out.splitlines()
    assert header == ",".join((*HEADER, *PRICED))
    since, until, *rest = first.split(",")
    assert (since, until) == ("2025-11-01T00:00:00Z", "2025-12-02T00:00:00Z")
    assert ",".join(rest) == "org:ai:eval,eval,,,,,H100-80GB,86400000000,24,0,86400000000,0,0,2.50,60,USD"
    assert bill(funded, "-o", "csv").out.splitlines()[0] == ",".join(HEADER)
    page = (ROOT / "docs/guide/co-funded-runs.md").read_text()
    assert all(f"`{name}`" in page for name in (*HEADER, *PRICED))


@pytest.mark.parametrize("by", GRAINS)
def test_every_grain_adds_up_to_the_leases(funded: Path, by: str) -> None:
    whole = leases_of(funded)
    told = bill(funded, "--by", by, "-o", "json").json
    assert told["gpuMicroseconds"] == sum(one["gpuMicroseconds"] for one in told["lines"]) == whole == 176 * HOUR
    found = rows(bill(funded, "--by", by, "-o", "csv"))
    assert sum(int(one["gpuMicroseconds"]) for one in found) == whole
    for one in found:
        parts = ("ownedGPUMicroseconds", "sharedGPUMicroseconds", "lentGPUMicroseconds")
        assert int(one["gpuMicroseconds"]) == sum(int(one[name]) for name in parts)


def test_days_are_cut_at_midnight_and_months_at_their_end(funded: Path) -> None:
    days = rows(bill(funded, "--by", "day", "-o", "csv"))
    found = [(one["since"][:10], one["until"][:10], one["gpuHours"]) for one in days if one["payer"] == "org:ai:rai"]
    assert found == [("2025-11-30", "2025-12-01", "32"), ("2025-12-01", "2025-12-02", "24")]
    november = leases_of(funded, until=parse_time("2025-12-01T00:00:00Z"))
    focus = rows(bill(funded, "-o", "focus"))
    assert (
        sum(int(one["x_GpuMicroseconds"]) for one in focus if one["BillingPeriodStart"].startswith("2025-11"))
        == november
    )
    assert sum(int(one["x_GpuMicroseconds"]) for one in focus) == leases_of(funded)


def test_a_run_that_was_deleted_is_still_charged(used: Path) -> None:
    month = ["chargeback", "--since", "2d", "--by", "run", "-o", "json"]
    before = call("runs", *month, fleet=used).json["lines"]
    assert call("runs", "cancel", "rai/c-eval", "rai/a-train", fleet=used).code == 0
    after = call("runs", *month, fleet=used).json["lines"]
    assert [(one["run"], one["uid"], one["gpuMicroseconds"]) for one in after] == [
        (one["run"], one["uid"], one["gpuMicroseconds"]) for one in before
    ]


def test_one_payer_can_be_asked_for_alone(funded: Path) -> None:
    assert [one["payer"] for one in bill(funded, "--payer", "org:bio", "-o", "json").json["lines"]] == ["org:bio"]
    assert bill(funded, "--by", "envelope", "-o", "name").out.split() == [
        "eval/west", "rai/west", "bio/west", "vision/west",
    ]  # fmt: skip


# --- FOCUS ----------------------------------------------------------------------------------------------------------


def test_a_focus_dataset_has_the_columns_that_focus_asks_for_in_its_order(funded: Path) -> None:
    header = bill(funded, "-o", "focus", *PRICE).out.splitlines()[0].split(",")
    focus = [name for name in header if not name.startswith("x_")]
    assert set(MANDATORY) <= set(focus) <= {*MANDATORY, *CONDITIONAL}
    assert header == [*sorted(focus), *sorted(name for name in header if name.startswith("x_"))]
    page = (ROOT / "docs/guide/co-funded-runs.md").read_text()
    assert all(f"`{name}`" in page for name in header)


def test_without_prices_there_are_no_costs_and_that_is_said(funded: Path) -> None:
    done = bill(funded, "-o", "focus")
    header = done.out.splitlines()[0].split(",")
    assert not [name for name in header if "Cost" in name or "Price" in name or "Currency" in name]
    assert done.err == "without --price there are no costs, which FOCUS asks for: this is usage only\n"


def test_the_rows_of_a_focus_dataset(funded: Path) -> None:
    found = rows(bill(funded, "-o", "focus", *PRICE, "--currency", "EUR", "--provider", "Lab"))
    assert len(found) == 9
    loan = next(one for one in found if one["BillingAccountId"] == "org:bio")
    uid = loan.pop("ResourceId")
    assert len(uid) == 36
    assert loan == snapshot(
        {
            "BilledCost": "40",
            "BillingAccountId": "org:bio",
            "BillingAccountName": "org:bio",
            "BillingCurrency": "EUR",
            "BillingPeriodEnd": "2025-12-01T00:00:00Z",
            "BillingPeriodStart": "2025-11-01T00:00:00Z",
            "ChargeCategory": "Usage",
            "ChargeClass": "",
            "ChargeDescription": "H100-80GB GPUs of run rai/train, borrowed",
            "ChargeFrequency": "Usage-Based",
            "ChargePeriodEnd": "2025-12-01T00:00:00Z",
            "ChargePeriodStart": "2025-11-30T00:00:00Z",
            "ConsumedQuantity": "16",
            "ConsumedUnit": "GPU-Hours",
            "ContractedCost": "40",
            "ContractedUnitPrice": "2.50",
            "EffectiveCost": "40",
            "InvoiceIssuerName": "Lab",
            "ListCost": "40",
            "ListUnitPrice": "2.50",
            "PricingCategory": "Standard",
            "PricingQuantity": "16",
            "PricingUnit": "GPU-Hours",
            "ProviderName": "Lab",
            "PublisherName": "Lab",
            "ResourceName": "rai/train",
            "ResourceType": "Run",
            "ServiceCategory": "Compute",
            "ServiceName": "Tenure GPU fleet",
            "SkuId": "H100-80GB",
            "SkuPriceId": "H100-80GB",
            "SubAccountId": "bio",
            "SubAccountName": "bio",
            "Tags": '{"tenure/class":"borrowed","tenure/envelope":"west","tenure/namespace":"rai","tenure/owner":"org:ai:rai","tenure/role":"Active"}',  # noqa: E501 -- one cell
            "x_EnvelopeName": "west",
            "x_FundingClass": "borrowed",
            "x_GpuMicroseconds": "57600000000",
            "x_LeaseRole": "Active",
            "x_RunOwnerId": "org:ai:rai",
        }
    )
    assert sum(Decimal(one["BilledCost"]) for one in found) == 440


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--price", "A100=1"], "no price for H100-80GB"),
        (["--price", "H100-80GB"], "'H100-80GB' is no price"),
        (["--price", "H100-80GB=-1"], "'H100-80GB=-1' is no price"),
        (["--price", "H100-80GB=1e9"], "'H100-80GB=1e9' is no price"),
        (["--price", "H100-80GB=1", "--price", "H100-80GB=2"], "H100-80GB has two prices"),
        ([*PRICE, "--currency", "dollars"], "'dollars' is no currency"),
        (["-o", "focus", "--by", "day"], "-o focus has a grain of its own"),
        (["--until", "2025-10-01"], "the period from 2025-11-01T00:00:00Z to 2025-10-01T00:00:00Z is empty"),
    ],
)
def test_what_makes_no_bill_is_refused(funded: Path, words: list[str], problem: str) -> None:
    done = bill(funded, *words)
    assert (done.code, done.out) == (2, "")
    first, second = done.err.splitlines()
    assert first == f"error: {problem}"
    assert second.startswith("next: ")


def test_nobody_is_charged_for_the_future(funded: Path) -> None:
    done = call("runs", "chargeback", "--since", "2025-11-01", "--until", "2999-01-01", "-o", "json", fleet=funded)
    assert "2999-01-01T00:00:00Z is in the future" in done.err
    assert done.json["gpuHours"] == 176.0
    assert done.json["until"] < "2999"


def test_a_period_in_which_nothing_was_used_is_an_empty_bill(funded: Path) -> None:
    done = call("runs", "chargeback", "--since", "2025-01-01", "--until", "2025-02-01", fleet=funded)
    assert (done.code, done.err) == (0, "nothing was used in this period\n")
    assert call("runs", "chargeback", fleet=funded).code == 0


def test_until_the_first_of_a_month_is_the_month_before(funded: Path) -> None:
    """It was refused: the period from the first of December to the first of December is empty."""
    done = call("runs", "chargeback", "--until", "2025-12-01", "-o", "json", fleet=funded)
    assert (done.json["since"], done.json["until"]) == ("2025-11-01T00:00:00Z", "2025-12-01T00:00:00Z")


# --- spreadsheets ---------------------------------------------------------------------------------------------------

HOSTILE = "-2-3:cmd"


def test_what_a_tenant_wrote_is_never_a_formula(tmp_path: Path) -> None:
    fleet = create(tmp_path)
    budget = f"""
kind: Budget
metadata: {{name: evil}}
spec: {{owner: "{HOSTILE}", envelopes: [{{name: west, flavor: H100, selector: {{region: west}}, concurrency: 8}}]}}
"""
    body = run_yaml("x", 1, "true", owner=HOSTILE).replace('"namespace": "rai"', '"namespace": "evil"')
    assert submit(fleet, budget, body).code == 0
    until_idle(fleet)
    for words in (["-o", "csv"], ["-o", "csv", "--by", "run"], ["-o", "focus", "--price", "H100=1"]):
        found = rows(call("runs", "chargeback", "--since", "2d", *words, fleet=fleet))
        cells = [cell for one in found for cell in one.values()]
        assert f"'{HOSTILE}" in cells
        assert not [cell for cell in cells if cell.lstrip()[:1] in ("=", "+", "-", "@") and cell]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", " =1", "\t=1", "\r=1", "\uff1d1"])
def test_a_cell_that_begins_like_a_formula_is_text(text: str) -> None:
    written = sheet.cell(text)
    assert written.lstrip()[:1] not in ("=", "+", "-", "@", "\uff1d")
    assert written.isprintable()


def test_numbers_and_plain_text_are_left_alone() -> None:
    found = [sheet.cell(one) for one in ("org:ai", "a=b", "", 0, -5, Decimal("1E-9"), Decimal("2.50"), None)]
    assert found == ["org:ai", "a=b", "", "0", "-5", "0.000000001", "2.50", ""]


# --- arithmetic -----------------------------------------------------------------------------------------------------

CHARGES = st.lists(
    st.builds(
        Charge,
        day=st.integers(0, 3).map(lambda day: day * DAY),
        payer=st.sampled_from(["a", "b"]),
        budget=st.sampled_from(["a1", "a2"]),
        envelope=st.just("e"),
        flavor=st.sampled_from(["H100", "A100"]),
        owner=st.sampled_from(["a", "c"]),
        namespace=st.just("ns"),
        run=st.sampled_from(["r", "s"]),
        uid=st.sampled_from(["u", "v"]),
        funding=st.sampled_from(["owned", "shared", "borrowed"]),
        role=st.sampled_from(["Active", "Spare"]),
        used=st.integers(1, 4096 * 366 * DAY),
    ),
    max_size=20,
)


@given(charges=CHARGES, by=st.sampled_from(GRAINS))
def test_lines_add_up_and_never_mix_flavors(charges: list[Charge], by: Grain) -> None:
    found = lines(charges, by, since=0, until=4 * DAY)
    assert sum(one.used for one in found) == sum(one.used for one in charges)
    assert sum(one.spare for one in found) == sum(one.used for one in charges if one.role == "Spare")
    assert all(one.used == one.owned + one.shared + one.lent for one in found)
    for flavor in ("H100", "A100"):
        assert sum(one.used for one in found if one.flavor == flavor) == sum(
            one.used for one in charges if one.flavor == flavor
        )


@given(used=st.integers(0, 2**70))
def test_hours_are_written_so_that_the_microseconds_can_be_had_back(used: int) -> None:
    assert round(Fraction(hours(used)) * HOUR) == used


@given(charges=CHARGES, price=st.integers(0, 10**12).map(lambda cents: Decimal(cents).scaleb(-4)))
def test_a_cost_is_quantity_times_price_exactly_as_written(charges: list[Charge], price: Decimal) -> None:
    dataset = Sheet(
        since=0, until=4 * DAY, provider="p", prices=Prices(currency="EUR", of={"H100": price, "A100": price})
    )
    text = sheet.text(dataset.header(), map(dataset.row, charges))
    for one in csv.DictReader(io.StringIO(text)):
        assert Fraction(one["BilledCost"]) == Fraction(one["PricingQuantity"]) * Fraction(one["ListUnitPrice"])
        assert "E" not in one["BilledCost"] + one["ConsumedQuantity"]


def test_the_rows_of_a_sheet_are_what_the_ledger_charged(funded: Path) -> None:
    with Ledger.open(funded, readonly=True) as ledger:
        charged: list[Any] = ledger.charges(since=SINCE, until=UNTIL)
    assert len(rows(bill(funded, "-o", "focus"))) == len(charged)
