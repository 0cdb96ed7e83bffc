"""The daily thousand of the crash enumeration, the bugs that it found, and that it would see what it looks for.

All schedules, tens of thousands: ``python -m proof crashes --all``.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from proof.commit import ROOT, describe
from proof.crashes import judge, main, stock
from proof.crashes.command import Share, _read, units
from proof.crashes.judge import Verdict
from proof.crashes.life import MortalHome
from proof.crashes.play import LATE, RECOVERIES, UNCOMPARED, Recover, Schedule, _Play, play
from proof.crashes.schedules import DAILY_PAIRS, DAILY_SINGLES, Bench, cells
from proof.crashes.trap import POINTS, Place
from proof.crashes.world import Hands
from tenure.audit import Auditor, Violation
from tenure.audit.invariants import LIMITS
from tenure.notify.progress import Delivered
from tenure.shell.home import Home
from tenure.testing.scenarios import brief
from tenure.units import format_time

by_name = pytest.mark.parametrize("name", stock.names())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("custodians")


@pytest.fixture
def bench(name: str, folder: Path) -> Bench:
    return _bench(name, folder)


@lru_cache
def _bench(name: str, folder: Path) -> Bench:
    return Bench(name, folder)


def crash(name: str, write: int, point: str, *, recover: Recover) -> Schedule:
    return Schedule(name, (Place(write, point),), recover)


def told(schedule: Schedule, verdict: Verdict) -> str:
    return "\n".join([f"commit {describe()}: {schedule.command}", *verdict.wrongs, *verdict.differences])


# --- every day ----------------------------------------------------------------------------------------------------


@by_name
def test_a_crash_at_a_write_changes_nothing(bench: Bench) -> None:
    schedules = list(bench.daily())
    assert len(set(schedules)) == DAILY_SINGLES + DAILY_PAIRS * (bench.name in stock.CORE)
    for schedule in schedules:
        verdict = bench.run(schedule)
        assert verdict.is_good, told(schedule, verdict)


@by_name
def test_undisturbed_a_scenario_comes_out_as_it_says(bench: Bench) -> None:
    """So that what crashed plays are compared with is the right story, whoever brings the objects in."""
    assert bench.problems == ()
    shown = msgspec.json.decode(bench.expected.shown)
    output = {"final": shown.pop("final"), "snapshots": shown, "events": []}
    found: dict[str, Any] = brief(output, start=bench.scenario.start)
    expected = yaml.safe_load((stock.FOLDER / f"{bench.name}.expect.yaml").read_text())
    assert {**found, "events": expected["events"]} == expected


def test_the_daily_thousand_meets_every_point_of_every_kind_of_write(folder: Path) -> None:
    schedules = [(bench, each) for bench in (_bench(name, folder) for name in stock.names()) for each in bench.daily()]
    assert sum(schedule.recover not in UNCOMPARED for _, schedule in schedules) >= 1000, "those whose end is compared"
    met = set()
    for bench, schedule in schedules:
        first = next(one for one in bench.visits_of(schedule.recover) if one.place == schedule.crashes[0])
        met.add((first.kind, first.place.point))
        met.add((first.kind, schedule.recover))
    assert met >= cells() | {(kind, recover) for kind, _ in cells() for recover in RECOVERIES}
    assert len({schedule.scenario for _, schedule in schedules}) >= 40


def test_all_schedules_are_more_than_ten_thousand(folder: Path) -> None:
    singles = sum(1 for name in stock.names() for _ in _bench(name, folder).singles())
    assert singles > 30_000
    assert len(stock.CORE) == 8


def test_each_scenario_says_which_rule_of_the_spec_it_shows() -> None:
    assert all(stock.shown(name).sections for name in stock.names())
    met = {
        section.partition(".")[0].rstrip("abcdef") for name in stock.names() for section in stock.shown(name).sections
    }
    assert met >= {"2", "3", "4", "5", "6", "7", "8", "9", "10", "12"}


def test_the_page_names_every_scenario_point_and_recovery() -> None:
    page = (stock.FOLDER.parents[1] / "docs" / "develop" / "proof-crashes.md").read_text()
    assert all(f"| {name} | {', '.join(stock.shown(name).sections)} |" in page for name in stock.names())
    assert all(f"`{word}`" in page for word in [*RECOVERIES, *POINTS, *(point for _, point in cells())])


def test_a_recovery_that_is_cut_short_while_it_moves_the_anchor_is_recovered_from(folder: Path) -> None:
    bench = _bench("bind-and-stop-delay", folder)
    for point in POINTS["roll"]:
        for recover in ("same", "other", "rival"):
            schedule = Schedule(bench.name, (Place(6, "after-commit"), Place(1, point)), recover)
            verdict = bench.run(schedule)
            assert verdict.is_good, told(schedule, verdict)


# --- what it found ------------------------------------------------------------------------------------------------


def test_a_failed_commit_starts_no_pods(folder: Path) -> None:
    """A home whose commit had failed showed the executor its uncommitted state before it was built anew."""
    bench = _bench("start-and-complete", folder)
    for recover in ("same", "rival"):
        verdict = bench.run(crash(bench.name, 6, "before-commit", recover=recover))
        assert verdict.is_good, [*verdict.wrongs, *verdict.differences]


# --- it would see what it looks for -------------------------------------------------------------------------------


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The home as it was: what is stored is read when something is next decided, after the executor was called."""

    def catch_up_alone(self: Home) -> None:
        if not self._stale and self.seq != self.store.head.seq:
            self.handle(now=self.state.now)

    monkeypatch.setattr(Home, "_catch_up_alone", catch_up_alone)


@pytest.mark.usefixtures("hasty")
def test_pods_of_a_failed_commit_would_be_seen(folder: Path) -> None:
    verdict = _bench("start-and-complete", folder).run(crash("start-and-complete", 6, "before-commit", recover="same"))
    assert "pod rai/train-a1-0 is started, and its placement was never committed" in verdict.wrongs


@pytest.mark.usefixtures("hasty")
def test_a_failure_prints_the_command_that_shows_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    again = ["--scenario", "start-and-complete", "--write", "6", "--point", "before-commit", "--recover", "same"]
    assert main(again) == 1
    said = capsys.readouterr().out
    assert f"FAILED  commit {describe()}\n" in said
    assert f" -m proof crashes {' '.join(again)}\n  wrong: pod" in said


def test_a_state_that_outlives_its_failed_commit_would_be_seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = _bench("start-and-complete", folder)
    monkeypatch.setattr(MortalHome, "_stale", property(lambda self: False, lambda self, value: None), raising=False)
    assert bench.run(crash(bench.name, 6, "before-commit", recover="same")).wrongs


def test_a_pod_that_is_started_again_by_the_next_process_would_be_seen(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = _bench("start-and-complete", folder)
    observe = Hands._observe

    def forgetful(self: Hands, item: Any) -> None:
        if item.known == "Placed" and item.pod.key not in self._work:
            self.world.start(item.pod, committed=True)
        observe(self, item)

    monkeypatch.setattr(Hands, "_observe", forgetful)
    verdict = bench.run(crash(bench.name, 7, "begin", recover="other"))
    assert "pod rai/train-a1-0 is started a second time" in verdict.wrongs


def test_a_receiver_that_is_not_told_would_be_seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = _bench("start-and-complete", folder)
    monkeypatch.setattr("proof.crashes.life.Desk.send", _lost)
    verdict = bench.run(crash(bench.name, 10, "before", recover="other"))
    assert any(difference.startswith("letters") for difference in verdict.differences)


def _lost(desk: Any, bodies: list[bytes]) -> Any:
    desk.trap.begin("send")
    desk.trap.reach("before")
    return Delivered()


def test_a_place_that_nobody_comes_by_is_a_failure(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench = _bench("start-and-complete", folder)
    verdict = bench.run(crash(bench.name, 999, "begin", recover="same"))
    assert verdict.wrongs == ("nobody came by 999:begin, where the process was to die",)
    assert main(["--scenario", bench.name, "--write", "999", "--point", "begin"]) == 2
    assert "these are its writes" in capsys.readouterr().err


@pytest.mark.parametrize(("recover", "after", "blamed"), [
    ("late", 0, False), ("late", 2 * LATE, True), ("other", 0, True),
])  # fmt: skip
def test_only_what_ran_out_while_nobody_drove_is_excused(
    recover: Recover, after: int, blamed: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever came late was never held to the limits of envelopes, whenever they were crossed."""
    bench, deaths = _bench("start-and-complete", folder), list[int]()
    die = _Play._die

    def dying(self: _Play, files: Path) -> None:
        deaths.append(self.world.now)
        die(self, files)

    def overdrawn(self: Auditor, entries: object, *, now: int) -> list[Violation]:
        since = deaths[0] + after
        message = f"too many, crossed at {format_time(since)}, and not in time"
        return [Violation(invariant=LIMITS.name, at=since, object="Budget/a", expected=0, found=8, message=message)]

    monkeypatch.setattr(_Play, "_die", dying)
    monkeypatch.setattr(Auditor, "recheck", overdrawn)
    judge._audited.cache_clear()
    verdict = bench.run(crash(bench.name, 6, "before-commit", recover=recover))
    judge._audited.cache_clear()
    assert [wrong.split()[0] for wrong in verdict.wrongs] == [LIMITS.name] * blamed


# --- the command --------------------------------------------------------------------------------------------------


def test_one_schedule_is_played_again(capsys: pytest.CaptureFixture[str]) -> None:
    schedule = Schedule("borrow-limit", (Place(6, "after-commit"), Place(1, "rolling")), "other")
    (interpreter, *program), again = schedule.command.split()[:4], schedule.command.split()[4:]
    assert program == ["-m", "proof", "crashes"]
    assert (ROOT / interpreter).samefile(sys.executable)
    assert main(again) == 0
    assert "the end is the undisturbed one" in capsys.readouterr().out


def test_of_who_comes_late_the_end_is_not_said_to_be_the_undisturbed_one(capsys: pytest.CaptureFixture[str]) -> None:
    again = ["--scenario", "start-and-complete", "--write", "6", "--point", "before-commit", "--recover"]
    assert main([*again, "late"]) == 0
    assert "the end is not compared" in capsys.readouterr().out
    assert main([*again, "other"]) == 0
    assert "the end is the undisturbed one" in capsys.readouterr().out


def test_a_part_ends_with_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--scenario", "start-and-complete", "--part", "100/100"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"commit {describe()}\n")
    assert re.search(r"^all +\d+ +[1-9] +0 +0$", out, re.MULTILINE)
    assert out.splitlines()[-1].startswith("No rule was broken")


@pytest.mark.parametrize("parts", [1, 3, 97])
def test_parts_are_all_there_is_and_none_twice(folder: Path, parts: int) -> None:
    bench = _bench("start-and-complete", folder)

    def share(turn: int) -> list[Schedule]:
        options = _read(["--scenario", bench.name, "--part", f"{turn}/{parts}"])
        return list(Share(options).of(units(bench, options)))

    found = [share(turn) for turn in range(1, parts + 1)]
    assert sorted(schedule for part in found for schedule in part) == sorted(bench.singles())
    assert max(map(len, found)) - min(map(len, found)) <= 1


def test_pairs_are_all_pairs_of_writes_recovered_by_the_same_and_by_another(folder: Path) -> None:
    """Every write is the first to fail, at each of its moments; every write that then follows is the second."""
    bench = _bench("bind-and-stop-delay", folder)
    for recover in ("same", "other"):
        firsts = [first for first, who in bench.firsts() if who == recover]
        assert {(one.place.write, one.moment) for one in firsts} == {
            (one.place.write, one.moment) for one in bench.visits
        }
        for first in (firsts[0], firsts[len(firsts) // 2], firsts[-4]):
            with play(bench.scenario, bench.custodian, (first.place,), recover) as played:
                follow = {visit.place: (visit.place.write, visit.moment) for visit in played.visits[1]}
            pairs = list(bench.pairs_after(first, recover))
            assert {(pair.crashes[0], pair.recover) for pair in pairs} == {(first.place, recover)}
            assert sorted(follow[pair.crashes[1]] for pair in pairs) == sorted(set(follow.values()))
    asked = _read(["--all"])
    assert sum(1 for _ in units(bench, asked)) == sum(1 for _ in bench.singles()) + sum(1 for _ in bench.firsts())


def test_a_count_is_of_the_part_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stock, "names", lambda: ["start-and-complete"])

    def counted(*words: str) -> list[int]:
        assert main(["--count", *words]) == 0
        last = capsys.readouterr().out.partition("\n\n")[2].partition("\n\n")[2].splitlines()
        return [int(line.split()[0].replace(",", "")) for line in last]

    whole, daily = counted()
    assert daily == DAILY_SINGLES
    assert counted("--all") == [whole]
    assert sum(counted("--all", "--part", f"{turn}/3")[0] for turn in (1, 2, 3)) == whole
    assert counted("--every", "7") == [-(-whole // 7), -(-daily // 7)]


@pytest.mark.parametrize("words", [[], ["--write", "6", "--point", "before-commit"]])
def test_a_scenario_that_fails_by_itself_is_told_once_and_its_schedules_are_not_played(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("proof.crashes.judge._pods", lambda played: iter(["pod x is alive, and nobody knows it"]))
    monkeypatch.setattr(Bench, "run", lambda *_: pytest.fail("a schedule was played"))
    assert main(["--scenario", "start-and-complete", *words]) == 1
    said = capsys.readouterr().out
    assert said.count("this scenario fails without any crash: mend that first") == 1
    assert said.count("pod x is alive, and nobody knows it") == 1


def test_a_scenario_that_cannot_be_played_at_all_is_told_as_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(Home, "drive", broken)
    assert main(["--scenario", "start-and-complete"]) == 1
    assert "fails without any crash: mend that first\n  wrong: KeyError: 'lost'\n" in capsys.readouterr().out


def test_a_part_with_nothing_in_it_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--scenario", "start-and-complete", "--part", "99999/99999"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: this part has no schedule in it")
