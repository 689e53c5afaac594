"""Flows: which tasks run, in which order; one per DVC stage, and the whole experiment.

Importing this package prepares the process environment (`tasks.environment.prepare`) before Prefect, MLflow or torch
read it, so ``python -m flows.<stage>`` behaves the same from a shell, from DVC and from a Prefect deployment.
"""

from tasks.environment import prepare

prepare()
