"""A line that is changed in place says what one says that is read anew; a trace, what looking at every instant says."""

from __future__ import annotations

from random import Random

from tenure.engine.timeline.node_timeline import NodeTimeline
from tenure.engine.timeline.step_trace import Read, StepTrace, differ, part
from tenure.units import FOREVER, Instant

AT = range(120)


def level(read: Read, at: Instant) -> int:
    return next((one for time, one in zip(*map(reversed, read), strict=True) if time <= at), 0)


def anew(line: NodeTimeline) -> NodeTimeline:
    other = NodeTimeline()
    other.releases, other.claims, other.cutting = line.releases, line.claims, line.cutting
    other.base, other.fresh = line.base, False
    return other


def test_claims_and_ends_change_a_line_in_place_as_if_it_were_read_anew() -> None:
    in_place = 0
    for seed in range(200):
        luck = Random(f"line {seed}")
        line = NodeTimeline()
        line.base = luck.randint(0, 8)
        leases = {f"lease-{one}": luck.randint(1, 4) for one in range(luck.randint(0, 3))}
        line.releases = {lease: (luck.randint(1, 90), gpus) for lease, gpus in leases.items()}
        line.fresh = False
        for number in range(12):
            before = line.free()
            if leases and luck.random() < 0.2:
                lease = luck.choice(sorted(leases))
                was = line.releases.get(lease, (None, 0))[0]
                end = luck.choice([at for at in (None, 0, *AT) if at != was])
                span = line.release(lease, end, leases[lease])
            elif line.claims and luck.random() < 0.4:
                span = line.unclaim(luck.choice(sorted(line.claims)))
            else:
                start = luck.randint(1, 90)
                end = None if luck.random() < 0.2 else start + luck.randint(1, 25)
                span = line.claim(f"run-{number}", start, end, luck.randint(1, 4), cuts=luck.random() < 0.05)
            in_place += line.fresh
            other = anew(line)
            assert [line.low(at, None) for at in AT] == [other.low(at, None) for at in AT]
            assert [line.low(at, at + 9) for at in AT] == [other.low(at, at + 9) for at in AT]
            assert [line.first(3, since=at, length=7) for at in AT] == [other.first(3, since=at, length=7) for at in AT]
            outside = [at for at in AT if not span[0] <= at < span[1]]
            assert [level(before, at) for at in outside] == [level(line.free(), at) for at in outside]
    assert in_place > 1_000, "most changes are made in place"


def test_a_span_that_is_shown_anew_leaves_the_rest_as_it_was() -> None:
    for seed in range(400):
        luck = Random(f"trace {seed}")
        trace, brute = StepTrace(), [0] * len(AT)
        for _ in range(6):
            begin, end = sorted(luck.sample(AT, 2))
            times = [begin, *sorted(luck.sample(range(begin + 1, end), luck.randint(0, min(4, end - begin - 1))))]
            read = times, [luck.randint(0, 3) for _ in times]
            old, was = trace.steps(), brute[:]
            brute[begin:end] = [level(read, at) for at in range(begin, end)]
            steps, (first, last) = trace.replace(begin, end, *read)
            assert [level(trace.read(), at) for at in AT] == brute
            assert sorted(steps) == sorted(differ(trace.steps(), old))
            assert all(first <= at < last for at in AT if was[at] != brute[at])
            assert all(one != other for one, other in zip(trace.levels, [0, *trace.levels], strict=False))
            some = part(trace.read(), (begin, FOREVER))
            assert some[0][0] == begin
            assert [level(some, at) for at in AT[begin:]] == brute[begin:]
