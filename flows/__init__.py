"""Flows: which tasks run, in which order; one per DVC stage, and the whole experiment.

Importing this package prepares the process environment (`tasks.services.process_environment.prepare`) before Prefect,
MLflow or torch read it, so ``python -m flows.<stage>`` behaves the same from a shell, from DVC and from a Prefect
deployment.  In a chain, a process that has those libraries in memory already does the rest
(`tasks.services.hand_over`).
"""

from tasks.services.hand_over import hand_over
from tasks.services.process_environment import prepare

prepare()
hand_over()
