"""The reward audit: two claims about a reward, tried before any training.

1. *The best policy under this reward does the task.*  Among all the policies that the audit plays, lists or trains, no
   policy that leaves half of the task undone earns as much as the best one.  Ties are broken against the reward: what
   earns as much as the best, within noise, is what training may end with.
2. *Training from this base moves towards the task.*  What the base policy itself samples teaches it to do more of the
   task, and where the task is small enough, training in miniature from the base's own habits does so.

A check FAILs only if it contradicts one of the two beyond its noise, by a policy or an outcome that it names.  Checks
that only explain (which term pays for nothing, from which other start training would collapse) at most WARN.

`claims` says when a policy counts as best and how much of the task it does, `ladder` compares teams whose worth is
known, `preflight` looks at the base policy, `result` is what an audit says, and `run` is the entry.  The teams and the
searches that only one environment allows lie in its folder, ``environments/<name>/audit``.
"""
