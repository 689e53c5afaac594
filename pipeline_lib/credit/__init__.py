"""Credit: which combinations of sampled actions are executed, and the value of each action computed from them.

A *plan* selects the cells to execute; a cell combines one of the G sampled actions of every agent.  A plan samples no
additional actions, so it costs only executions.  A *reducer* defines the cells by which an action is compared with the
agent's other actions.  The value of an action is the *mean* of its cells, never their sum, so that advantages have the
same scale with every plan.  The subtracted baseline (the mean, the mean of the others, ...) is that of
`train.advantage`, the same for every plan.

All plans train the same objective, the expected joint reward: agents act without seeing each other, so any combination
of their actions is a sample from the team's own policy, and the baseline does not depend on the action itself.  Plans
differ in how much noise from the other agents' actions remains in an agent's advantage, and in their cost.

The class of each plan states its formula.  This package computes with indices and rewards only, and imports no
other package of the library.
"""
