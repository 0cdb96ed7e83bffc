"""One schedule: a scenario, where its processes die, and who goes on after them; and what came of it.

Five ways to go on, but for the last all at the same instant of the world's clock:

    same     what was called has failed in the process's hands: it unwinds, opens again what is in doubt, and goes on
             with all else that it has in memory
    other    the process was killed; a new one opens copies of the files as they lay at that very point
    rival    the process unwinds as above, and lingers with its handles open, while a new one takes over the same
             files. When the new one has settled, and again at the end, the old one acts: it must be refused, or find
             nothing to add
    client   as same, but what people want comes in through processes of their own, as from the command line: such a
             one dies and the process that drives does not, or the other way round
    late     as other, a minute and a half later, as long as another leader may take: what happens then may come out
             otherwise, and still no rule is broken
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from proof import scratch
from proof.again import command
from proof.crashes.life import Life, copy_files
from proof.crashes.trap import Crash, Place, Trap, Visit
from proof.crashes.world import World
from tenure.custodian import Status, init
from tenure.custodian.keeper import JOURNAL
from tenure.draw import H
from tenure.ledger import LedgerRefused
from tenure.shell import home as homes
from tenure.shell.custodian import LENGTH, SIMULATED
from tenure.simulate.scenario import Scenario
from tenure.units import MINUTE, SECOND, Micros

Recover = Literal["same", "other", "rival", "client", "late"]
RECOVERIES: tuple[Recover, ...] = get_args(Recover)
KILLED = ("other", "late")
"""Where the files are taken as they lie at the very point."""
UNCOMPARED = ("late",)
"""Where the end may be another one: only the rules are judged."""
LATE: Micros = 90 * SECOND
"""How long nobody drives, where somebody comes late."""
IMAGES = 3
"""Entries between two images of the state, so that a scenario of some ten entries is rebuilt from images, too."""


class Schedule(NamedTuple):
    """What is needed to see it again."""

    scenario: str
    crashes: tuple[Place, ...]
    recover: Recover

    @property
    def command(self) -> str:
        first, *more = self.crashes
        then = [word for place in more for word in ("--second", place)]
        where = ("--scenario", self.scenario, "--write", first.write, "--point", first.point, *then)
        return command("crashes", *where, "--recover", self.recover)


class Played(NamedTuple):
    """What is left when a play is over, open to be judged."""

    recover: Recover
    life: Life
    world: World
    journal: bytes
    visits: tuple[tuple[Visit, ...], ...]
    """The places that each life came by."""
    wrongs: list[str]


workplace = partial(scratch.workplace, "crashes")
"""A folder in memory, if we can, while it is needed."""


def make_custodian(scenario: Scenario, folder: Path) -> Path:
    """The simulator's own chain, in a folder: its draws are those that the scenario expects."""
    last = H(b"tenure-simulated-chain", scenario.policy.draw_secret.encode())
    made = init(folder, beacon=SIMULATED, length=LENGTH, entropy=lambda _: last)
    assert isinstance(made, Status), made
    return folder


@contextmanager
def play(
    scenario: Scenario, custodian: Path, crashes: tuple[Place, ...] = (), recover: Recover = "same"
) -> Iterator[Played]:
    """Play a scenario to its end, through as many deaths; ``custodian`` is a folder to begin with a copy of."""
    with workplace() as folder, _images():
        keeper = shutil.copytree(custodian, folder / "custodian")
        played = _Play(scenario, folder, keeper, recover)
        try:
            yield played.through(crashes)
        finally:
            played.close()


class _Play:
    def __init__(self, scenario: Scenario, folder: Path, keeper: Path, recover: Recover) -> None:
        self.scenario, self.folder, self.keeper, self.recover = scenario, folder, keeper, recover
        self.world, self.trap = World(scenario), Trap()
        self.life: Life | None = None
        self.rivals: list[Life] = []
        self.wrongs: list[str] = []
        self.files = folder / "1"
        self.files.mkdir()

    def through(self, crashes: tuple[Place, ...]) -> Played:
        visits = []
        for number, last in enumerate((*crashes, None), start=2):
            self.trap.arm(last)
            if self.recover in KILLED:
                self.trap.at_death = lambda there=self.folder / str(number): copy_files(self.files, there)  # type: ignore[misc]
            try:
                self._live()
            except Crash:
                self._die(self.folder / str(number))
            visits.append(tuple(self.trap.visits))
            if self.trap.missed is not None:
                self.wrongs.append(f"nobody came by {self.trap.missed}, where the process was to die")
                break
        self._rivals_act()
        assert self.life is not None
        self.wrongs += self.world.wrongs
        journal = (self.keeper / JOURNAL).read_bytes()
        return Played(self.recover, self.life, self.world, journal, tuple(visits), self.wrongs)

    def close(self) -> None:
        for life in (*self.rivals, *([self.life] if self.life else [])):
            life.close()

    def _live(self) -> None:
        if self.life is None:
            clients = self.recover == "client"
            self.life = Life(self.scenario, self.world, self.files, self.keeper, self.trap, clients=clients)
        else:
            self.life.recover()
        self.life.go_on(settled=self._rivals_act)

    def _die(self, next_files: Path) -> None:
        """What becomes of a process that met the trap; one that was not even open has left nothing but files."""
        if self.recover == "rival" and self.life is not None:
            self.rivals.append(self.life)
            self.life = None
        elif self.recover in KILLED:
            if self.life is not None:
                self.life.close()
            self.life, self.files = None, next_files
        if self.recover == "late":
            self.world.away.append((self.world.now, self.world.now + LATE + MINUTE))
            self.world.now += LATE

    def _rivals_act(self) -> None:
        """Those who linger try to go on as if nothing had happened."""
        assert self.life is not None
        for rival in self.rivals:
            before = self.life.ledger.head
            with self.trap.idle():
                try:
                    rival.home.drive(now=self.world.now)
                except LedgerRefused:
                    continue
            if self.life.ledger.head != before:
                written = [entry.cause for entry in self.life.ledger.entries(after=before.seq)]
                self.wrongs.append(f"a process that had lost its place wrote {written}")


@contextmanager
def _images() -> Iterator[None]:
    usual = homes.IMAGE_EVERY
    homes.IMAGE_EVERY = IMAGES
    try:
        yield
    finally:
        homes.IMAGE_EVERY = usual
