"""Monitors: what goes wrong in the training of a team, read from the metrics of its updates.

A monitor is a function from the rows of ``metrics.jsonl`` to readings (`reading.Reading`).  It has no state, so a run
that continues after a kill judges as an uninterrupted one, and a report judges as the run did.  Definitions and
thresholds are in docs/monitors.md.

This package does arithmetic on numbers only, and depends on nothing else in the library.
"""
