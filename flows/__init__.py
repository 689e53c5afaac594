"""Flows: what each stage of the chain and each command does, one file each, and the whole experiment.

Importing this package prepares the process environment (`tasks.services.process_environment.prepare`) before Prefect,
MLflow or torch read it, so ``python -m flows.<stage>`` behaves the same from a shell, from DVC and from a Prefect
deployment.  In a chain, the stage then runs in a fork of the preloaded process (`tasks.services.stage_proxy`).
Bytecode that is older than its source is removed before anything is imported.
"""

import sys
from pathlib import Path

from pipeline_lib.bytecode import forget_old_bytecode

# Before anything else of the project is imported.
forget_old_bytecode(*(Path(__file__).parents[1] / name for name in ("pipeline_lib", "tasks", "flows")))

from tasks.services.process_environment import prepare  # noqa: E402
from tasks.services.stage_proxy import join_dvc, run_in_preloaded  # noqa: E402

try:
    prepare()
except OSError as error:  # a folder that cannot be written to
    sys.exit(f"error: {error}; SYMPOSIUM_HOME names another folder for caches, checkpoints and databases")
join_dvc()
run_in_preloaded()
