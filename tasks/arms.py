"""The arms of the experiment: the team, and the single agent it is compared with.

An arm is a name in ``dvc.yaml`` and in folder names; here it becomes an environment and the places of its files.
"""

from __future__ import annotations

from pathlib import Path

from pipeline_lib.settings import Params, SettingsError
from pipeline_lib.settings.environment import CodingEnvironment, Environment

TEAM, SINGLE = "team", "single"
ARMS = (TEAM, SINGLE)

PROBLEMS = Path("data/problems")
BASE = Path("models/base")
TRAINED = Path("models/trained")
RESULTS = Path("results")
PLAN_FILE = RESULTS / "plan.json"
IDENTITIES = RESULTS / "identity"


def environment_section(params: Params, arm: str) -> Environment:
    """Return the environment that an arm acts in: the configured one, or its single-agent form.

    Raises:
        SettingsError: the environment has no single-agent form.
    """
    if arm == TEAM:
        return params.environment
    if not isinstance(params.environment, CodingEnvironment):
        raise SettingsError(
            f"seeds.single_agent: the environment '{params.environment.kind}' has no single-agent form; "
            "set seeds.single_agent to []"
        )
    return params.environment.model_copy(update={"team": "single"})


def seeds_of(params: Params, arm: str) -> tuple[int, ...]:
    """Return the training seeds of an arm."""
    return params.seeds.train if arm == TEAM else params.seeds.single_agent


def trained_folder(arm: str, seed: int) -> Path:
    """Return the folder of a run's checkpoints."""
    return TRAINED / f"{arm}-{seed}"


def sweep_folder(arm: str, seed: int) -> Path:
    """Return the folder of a run's evaluated checkpoints."""
    return RESULTS / "sweep" / f"{arm}-{seed}"
