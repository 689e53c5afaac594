"""Flows: which tasks run, in which order; one per DVC stage, and the whole experiment.

Importing this package prepares the process environment (`tasks.services.process_environment.prepare`) before Prefect,
MLflow or torch read it, so ``python -m flows.<stage>`` behaves the same from a shell, from DVC and from a Prefect
deployment.  In a chain, a process that has those libraries in memory already does the rest
(`tasks.services.hand_over`).  Bytecode that is older than its source is removed before anything of it is imported.
"""

from pathlib import Path

from pipeline_lib.bytecode import forget_old_bytecode

# Before anything else of the project is imported.
forget_old_bytecode(*(Path(__file__).parents[1] / name for name in ("pipeline_lib", "tasks", "flows")))

from tasks.services.hand_over import hand_over  # noqa: E402
from tasks.services.process_environment import prepare  # noqa: E402

prepare()
hand_over()
