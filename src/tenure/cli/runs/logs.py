"""`logs`: what a run's containers wrote, as it is kept beside the fleet, or by the machines of a cluster.

A pipe gets the bytes as they were written. A terminal gets text: what would steer it is spelled out, colours are
taken out, and a progress bar that returns to the start of its line becomes lines.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable
from typing import BinaryIO

import click

from tenure.cli.exits import Exit
from tenure.cli.lookup import run_argument, unknown
from tenure.cli.port import Fleet
from tenure.cli.session import Session, verb
from tenure.cli.terminal import is_terminal, say
from tenure.cli.trouble import Trouble
from tenure.cli.words import safe
from tenure.shell.logs import LogFile

LOOK_EVERY = 0.2
"""Seconds between two looks at files that are followed."""
CHUNK = 1 << 16
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@verb("logs", "Print what a run's pods wrote.", namespaced=True)
@run_argument
@click.option("--pod", metavar="POD", help="Only this pod, by name or by rank.")
@click.option("--group", type=click.IntRange(min=0), metavar="N", help="Only pods of this group.")
@click.option("-c", "--container", metavar="NAME", help="Only this container.")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="This attempt; the latest if left out.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run is over.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines of each.")
def command(
    session: Session, run: str, pod: str | None, group: int | None, container: str | None, attempt: int | None,
    follow: bool, tail: int | None,
) -> Exit:  # fmt: skip
    """Print what a run's pods wrote: of its latest attempt, also when it is over or was deleted.

    With several pods or containers each line begins with where it comes from.

    \b
    kubectl runs logs train --tail 20
    kubectl runs logs train --pod 3 -f
    """
    namespace, name = session.key(run)
    with session.fleet() as fleet:
        known = fleet.logs(namespace, name, follow=follow)
        line = fleet.view().line(namespace, name)
        if line is None and not known:
            raise unknown(session, fleet.view(), namespace, name)
        before = 0 if line is None else fleet.attempts_before(namespace, name)
        wanted = _Wanted(pod=pod, group=group, container=container, attempt=attempt, before=before)
        wanted.begin(known)
        if not follow:
            _print_all(session, wanted, known, f"{namespace}/{name}", tail)
            return Exit.OK
        try:
            _follow(fleet, namespace, name, wanted, known, tail)
        except KeyboardInterrupt:
            say("")
    return Exit.OK


class _Wanted:
    """Which files were asked for: of one attempt, or from the latest one on.

    Attempts up to ``before`` were made by earlier runs of the name: they are shown to who asks for them.
    """

    def __init__(
        self, *, pod: str | None, group: int | None, container: str | None, attempt: int | None, before: int
    ) -> None:
        self.pod, self.group, self.container, self.attempt, self.before = pod, group, container, attempt, before
        self._first = before + 1 if before else 0

    def begin(self, files: list[LogFile]) -> None:
        """The latest attempt is the latest of these; who follows goes on to later ones."""
        self._first = max([self._first, *(file.attempt for file in files)])

    def of(self, files: list[LogFile]) -> list[LogFile]:
        named = any(file.pod == self.pod for file in files)  # a name says its attempt itself
        return [
            file
            for file in files
            if (named or self._is_asked(file.attempt))
            and self.pod in (None, file.pod, str(file.rank))
            and self.group in (None, file.group)
            and self.container in (None, file.container)
        ]

    def _is_asked(self, attempt: int) -> bool:
        return attempt >= self._first if self.attempt is None else attempt == self.attempt


def _print_all(session: Session, wanted: _Wanted, known: list[LogFile], key: str, tail: int | None) -> None:
    files = wanted.of(known)
    latest = max((file.attempt for file in known), default=0)
    if not known or (not files and latest <= wanted.before and wanted.attempt is None):
        step = f"it has not started any pod here yet: {session.command('explain', key)}"
        if known:
            told = session.command("logs", key, "--attempt", str(latest))
            step = f"it has not started any pod here yet; those of an earlier run of this name: {told}"
        raise Trouble(f"there are no logs of Run/{key}", next_step=step, exit=Exit.NOT_FOUND)
    if not files:
        pods = ", ".join(dict.fromkeys(file.pod for file in known))
        raise Trouble(f"Run/{key} has no such pod", next_step=f"there are {pods}", exit=Exit.NOT_FOUND)
    printer = _Printer(several=len(files) > 1)
    for file in files:
        reader = _Reader(file)
        reader.skip_to_tail(tail)
        printer.put(file, reader.rest())
        printer.put(file, reader.last())
        reader.close()


def _follow(fleet: Fleet, namespace: str, name: str, wanted: _Wanted, known: list[LogFile], tail: int | None) -> None:
    """Print what there is and what comes, until the run is over and every file is read to its end.

    A file that was once begun is read on, whatever is there besides; only of what is there first is anything left out.
    """
    follower, printer = fleet.follow(), _Printer(several=True)
    readers = {file.path: _Reader(file) for file in wanted.of(known)}
    for reader in readers.values():
        reader.skip_to_tail(tail)
    over = False
    try:
        while not over:
            line = follower.view().line(namespace, name)
            over = line is None or line.over
            for file in wanted.of(fleet.logs(namespace, name, follow=True)):
                readers.setdefault(file.path, _Reader(file))
            for reader in readers.values():
                printer.put(reader.file, reader.rest())
            if not over and follower.wait(0) is None:
                time.sleep(LOOK_EVERY)
        fleet.settle_logs()
    finally:
        for reader in readers.values():
            printer.put(reader.file, reader.rest())
            printer.put(reader.file, reader.last())
            reader.close()


class _Reader:
    """A file that may still grow, in whole lines."""

    def __init__(self, file: LogFile) -> None:
        self.file = file
        self._part = b""
        self._stream: BinaryIO | None = None

    def _opened(self) -> BinaryIO | None:
        if self._stream is None:
            try:
                self._stream = self.file.path.open("rb")
            except FileNotFoundError:
                return None  # it has not written anything yet
        return self._stream

    def skip_to_tail(self, lines: int | None) -> None:
        """Go to where the last so many lines begin, reading from the end."""
        stream = self._opened()
        if stream is None or lines is None:
            return
        end = at = stream.seek(0, 2)
        found = 0
        while at > 0 and found <= lines:
            step = min(CHUNK, at)
            at -= step
            stream.seek(at)
            block = stream.read(step)
            for index in range(len(block) - 1, -1, -1):
                if block[index] == 0x0A and at + index + 1 < end:
                    found += 1
                    if found == lines:
                        stream.seek(at + index + 1)
                        return
            if lines == 0:
                stream.seek(end)
                return
        stream.seek(0)

    def rest(self) -> Iterable[bytes]:
        """Whole lines that are there and were not given yet."""
        stream = self._opened()
        while stream is not None and (block := stream.read(CHUNK)):
            *whole, self._part = (self._part + block).split(b"\n")
            yield from whole

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def last(self) -> Iterable[bytes]:
        """A last line without an end."""
        part, self._part = self._part, b""
        return [part] if part else []


class _Printer:
    """Lines with where they come from."""

    def __init__(self, *, several: bool) -> None:
        self._several = several
        self._person = is_terminal()

    def put(self, file: LogFile, lines: Iterable[bytes]) -> None:
        prefix = f"[{file.pod}/{file.container}] " if self._several else ""
        if self._person:
            for line in lines:
                for text in readable(line):
                    print(prefix + text)
        else:
            out = getattr(sys.stdout, "buffer", None)
            for line in lines:
                if out is None:
                    print(prefix + line.decode(errors="replace"))
                else:
                    out.write(prefix.encode() + line + b"\n")
        sys.stdout.flush()


def readable(line: bytes) -> list[str]:
    """A line for a screen.

    >>> readable(b"\\x1b[32mok\\x1b[0m\\t\\x1b]0;title\\x07\\rdone")
    ['ok    \\\\x1b]0;title\\\\x07', 'done']
    """
    text = _COLOUR.sub("", line.decode(errors="replace")).replace("\t", "    ")
    return [safe_line(part) for part in text.rstrip("\r").split("\r")]


def safe_line(text: str) -> str:
    """Nothing is left out of a log, however long its lines are."""
    return "".join(safe(text[at : at + 2000]) for at in range(0, len(text), 2000))
