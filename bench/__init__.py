"""Benchmarks: what Tenure promises about cost, measured as ratios within one run.

Seconds say more about the machine than about the code, and the machine is shared. So a promise compares two
things that are measured in turns (A B A B ...) and judges the median of the ratios of neighbours: what slows
the machine for a while slows both. Work counters stand beside the seconds; they do not swing at all.

    python -m bench                 everything; exit status 1 if a promise is broken or a number is worse than before
    python -m bench --quick         for looking: 100,000 instead of 1,000,000; no promise is judged
    python -m bench --only history  one of them
    python -m bench --counters      only what is counted, in seconds: part of make test
    python -m bench --list          every promise of the issues, and what measures it
    python -m bench --accept NAME   what was measured last is what is expected from now on (bench/ranges.json)
    python -m bench --docs          writes bench/results.json and docs/performance.md as well
    python -m bench --docs last     the same with what was measured last, without measuring

The table, ``bench/results.json`` (of each benchmark the last run at full scale that was written with ``--docs``) and
``docs/performance.md`` show the same numbers, each with the commit that was measured. What a run measured is kept in
``bench/.cache`` whether it is written or not; that folder is in no repository.
"""
