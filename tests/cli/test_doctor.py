"""`doctor` of an embedded fleet: what is broken is found, named, and mended as it says."""

import json
import sqlite3
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenure.cli.doctor import local, world
from tenure.cli.doctor.report import Check, ok, problem
from tenure.cli.exits import Exit
from tenure.ledger import Ledger, sidecar
from tenure.ledger.refusals import Code, refused
from tests.cli import support
from tests.cli.support import call

Usage = namedtuple("Usage", "total used free")


def told(fleet: Path, code: Exit | None = None) -> dict[str, dict[str, Any]]:
    done = call("runs", "doctor", "-o", "json", fleet=fleet)
    assert done.json["ok"] == (done.code == Exit.OK)
    assert code in (None, done.code), done.out
    return {one["check"]: one for one in reversed(done.json["checks"])}


def test_a_fleet_that_works_has_no_problem(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local.shutil, "disk_usage", lambda path: Usage(100 << 30, 0, 90 << 30))
    with support.driven(fresh):
        checks = told(fresh, Exit.OK)
    assert {name for name, one in checks.items() if one["result"] == "ok"} == {
        "ledger", "disk", "rights", "clock", "driver", "machines", "budgets", "custodians"
    }  # fmt: skip


def test_nobody_drives_it(fresh: Path) -> None:
    found = told(fresh, Exit.OK)["driver"]  # nothing to do: no problem yet
    assert (found["result"], found["fix"]) == ("warning", f"tenure up {fresh}")
    assert support.submit(fresh, support.run_yaml("waits", 4, "true")).code == 0
    found = told(fresh, Exit.FINDINGS)["driver"]
    assert found["finding"] == "nobody drives this fleet: 1 run waiting, 0 leases open"
    done = call("runs", "doctor", fleet=fresh)
    assert (done.code, done.err.splitlines()[0]) == (Exit.FINDINGS, "error: 1 problem")
    assert (
        f"driver      problem  nobody drives this fleet: 1 run waiting, 0 leases open. Fix: tenure up {fresh}"
        in done.out
    )


def test_a_quarantined_machine_is_mended_as_it_says(fresh: Path) -> None:
    node = {"kind": "Node", "metadata": {"name": "new", "labels": {"region": "west", "cluster": "lab"}},
            "status": {"allocatable": {"nvidia.com/gpu": "8"}}}  # fmt: skip
    assert support.submit(fresh, json.dumps(node)).code == 0
    for label, value in (("fabric.domain", "A"), ("gpu.flavor", "H100")):
        found = told(fresh, Exit.FINDINGS)["machines"]
        assert found["fix"] == (
            f"take kind, metadata, spec and status of new out of `kubectl runs nodes -o yaml`, write `{label}` into "
            "its labels, and: kubectl runs submit -f NODE.yaml"
        )
        shown = yaml.safe_load(call("runs", "nodes", "-o", "yaml", fleet=fresh).out)
        (mine,) = [one for one in shown["items"] if one["metadata"]["name"] == "new"]
        taken = {key: mine[key] for key in ("kind", "metadata", "spec", "status")}
        taken["metadata"]["labels"][label] = value
        done = support.submit(fresh, yaml.safe_dump(taken))
        assert done.code == 0, done.err
    assert told(fresh)["machines"]["result"] == "ok"


def test_a_driver_that_acts_no_more(past: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.embedded.fleet.is_driven", lambda path: True)
    monkeypatch.setattr(world, "next_wake", lambda state: 1)
    found = told(past, Exit.FINDINGS)["driver"]
    assert found["finding"].startswith("somebody drives, but what was due ")


def test_a_clock_that_was_set_back(past: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "clock", lambda: 0)
    found = told(past, Exit.FINDINGS)["clock"]
    assert "ahead of this machine's clock" in found["finding"]
    assert "timedatectl" in found["fix"]


@pytest.mark.parametrize(("free", "result"), [(10 << 20, "problem"), (500 << 20, "warning"), (90 << 30, "ok")])
def test_a_disk_that_is_full(free: int, result: str, past: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local.shutil, "disk_usage", lambda path: Usage(100 << 30, 0, free))
    assert told(past)["disk"]["result"] == result


def test_a_disk_so_full_that_the_ledger_cannot_even_be_opened(used: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise refused(Code.DiskFull, path=used)

    monkeypatch.setattr(local.Ledger, "examine", full)
    monkeypatch.setattr(local.shutil, "disk_usage", lambda path: Usage(100 << 30, 0, 0))
    checks = told(used, Exit.FINDINGS)
    assert checks["file"]["finding"].startswith("DiskFull: ")
    assert checks["disk"]["result"] == "problem"
    assert ".." not in call("runs", "doctor", fleet=used).out.replace(str(used), "FLEET")


def test_a_ledger_that_was_tampered_with(used: Path) -> None:
    with sqlite3.connect(used) as db:
        db.execute("UPDATE leases SET payer = 'org:thief' WHERE rowid = 1")
    db.close()
    found = told(used, Exit.FINDINGS)["ledger"]
    assert found["fix"].endswith(f"tenure ledger rebuild {used}")


def test_a_ledger_that_is_behind_its_anchor(used: Path) -> None:
    anchor = sidecar(used)
    kept = used.read_bytes()
    assert support.submit(used, support.run_yaml("later", 4, "true")).code == 0
    for rest in used.parent.glob(f"{used.name}-*"):
        if rest != anchor and rest.is_file():
            rest.unlink()
    used.write_bytes(kept)
    checks = told(used, Exit.FINDINGS)
    assert checks["ledger"]["finding"].startswith("anchor: ")
    assert "machines" not in checks  # what the ledger says now is not to be believed


def test_a_file_that_everybody_may_write(used: Path) -> None:
    used.chmod(0o666)
    found = told(used, Exit.FINDINGS)["rights"]
    assert found["fix"] == f"chmod o-w {used}"


def test_files_that_everybody_may_read(fresh: Path) -> None:
    anchor = sidecar(fresh)
    with Ledger.open(fresh):  # SQLite keeps two more files while it is open
        wal = fresh.with_name(f"{fresh.name}-wal")
        for one in (fresh, wal, anchor):
            one.chmod(0o644)
        found = told(fresh, Exit.OK)["rights"]
        assert (found["result"], found["fix"]) == ("warning", f"chmod o-r {fresh} {anchor} {wal}")
        for one in (fresh, wal, anchor):
            one.chmod(0o640)
        assert told(fresh, Exit.OK)["rights"]["result"] == "ok"


def test_a_file_that_is_not_there_or_something_else(tmp_path: Path) -> None:
    found = told(tmp_path / "none.db", Exit.FINDINGS)["file"]
    assert "tenure init" in found["fix"]
    (tmp_path / "other.db").write_text("not a ledger")
    assert told(tmp_path / "other.db", Exit.FINDINGS)["file"]["fix"]


def test_machines_without_labels_and_money_that_nobody_can_spend(fresh: Path) -> None:
    node = '{"kind": "Node", "metadata": {"name": "bare"}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}}'
    budget = """
kind: Budget
metadata: {name: mars}
spec:
  owner: org:mars
  envelopes: [{name: north, flavor: H100, selector: {region: mars}, concurrency: 8}]
"""
    assert support.submit(fresh, node, budget).code == 0
    checks = told(fresh, Exit.FINDINGS)
    assert "bare" in checks["machines"]["finding"]
    assert "region" in checks["machines"]["fix"]
    assert checks["budgets"]["finding"] == "no machine matches mars/north: it can be spent nowhere"


def test_a_finding_says_how_to_mend_it() -> None:
    with pytest.raises(AssertionError, match="says how to mend it"):
        Check(check="x", result="problem", finding="bad")
    assert ok("x", "good").fix == ""
    assert problem("x", "bad", "mend it").fix == "mend it"
