"""Who earned it: which combinations of sampled actions are executed, and what each action is worth by them.

A *plan* names the cells to execute: a cell takes one of the G sampled actions of every agent.  Actions are sampled as
before; a plan costs executions only.  A *reducer* says by which cells an action is compared with the agent's other
actions, and every action is worth the *mean* of its cells, never their sum, so that advantages keep their scale
whatever the plan.  What is subtracted from a worth (the mean, the mean of the others, ...) is the baseline of
`train.advantage`, the same for every plan.

All plans train the same objective, the expected joint reward: agents act without seeing each other, so any combination
of their actions is a draw from the team's own policy, and what is subtracted does not depend on the action itself.
Plans differ in how much of the other agents' luck is left in an agent's advantage, and in what they cost.

One file per plan, with its formula; this package is arithmetic on indices and rewards and knows nothing of anything
else in the library.
"""
