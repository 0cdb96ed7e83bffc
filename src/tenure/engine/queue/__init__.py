"""The queue (SPEC 7): who waits, who is next, what was promised to whom, and who may start past them.

    order      the waiting runs: by age, by owner, and in classes of equal demand
    lines      one class: the oldest that takes no longer than a hole, found without a look at the others
    changes    what was gained and lost since somebody looked: by node and by envelope
    promises   places, the first of each line, starts, repair
    tenable    whether a promise will have what it takes when it is due
    backfill   everybody else who can start now

The cost of a pass follows what changed and how many kinds of demand wait, not how many runs do.
"""
