"""What will be free, and when: declared ends of leases and claims of promises, by node, location and envelope.

``step_function`` is a level by time; ``node_timeline`` that of one node; ``capacity_index`` sums those of a location
for as long as runs last; ``timeline`` keeps them all, in the records of ``entries``.
"""
