"""Flows: which tasks run, in which order; one per DVC stage, and the whole experiment.

Importing this package prepares the process environment (`tasks.environment.prepare`) before Prefect, MLflow or torch
read it, so ``python -m flows.<stage>`` behaves the same from a shell, from DVC and from a Prefect deployment.  In a
chain, a process that has those libraries in memory already does the rest (`tasks.hand_over`).
"""

from tasks.environment import prepare
from tasks.hand_over import hand_over

prepare()
hand_over()
