"""The reward audit: it tests two claims about a reward before any training.

1. *The best policy under this reward does the task.*  Among all policies that the audit plays, enumerates or trains, no
   policy that leaves half of the task undone earns as much as the best one.  If several policies earn as much as the
   best one, within noise, the one that does least of the task counts, because training may end with it.
2. *Training from this base moves towards the task.*  The samples of the base policy itself teach it to do more of the
   task; and if the task is small enough, training in miniature from the base's own behaviour does so.

A check FAILs only if its result contradicts one of the two claims by more than its noise, with a policy or an outcome
that it names.  Checks that only explain (which term pays for nothing, from which other start training would collapse)
at most WARN.

`result` compares teams of known value and defines which policies count as best, `run` is the entry point and tests the
base policy.  Teams and searches of a single environment are in its folder.
"""
