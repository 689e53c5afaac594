"""The arms of the experiment: the team, and the single agent as its baseline.

An arm is a name in ``dvc.yaml`` and in folder names; this module gives its environment and the locations of its files.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline_lib import storage
from pipeline_lib.environment_api.registry import find
from pipeline_lib.project import BASE as BASE
from pipeline_lib.project import PROBLEMS as PROBLEMS
from pipeline_lib.project import RESULTS, TRAINED
from pipeline_lib.settings import Params, SettingsError
from pipeline_lib.settings.reading import read_mapping

TEAM, SINGLE = "team", "single"
ARMS = (TEAM, SINGLE)

PLAN_FILE = RESULTS / "plan.json"
IDENTITIES = RESULTS / "identity"
TESTED = RESULTS / "test"
REPORT = Path("report")

_NUMBER = re.compile("0|[1-9][0-9]*")


def environment_section(params: Params, arm: str) -> Any:
    """Return the environment that an arm acts in: the configured one, or its single-agent form.

    Raises:
        SettingsError: the environment has no single-agent form.
    """
    if arm == TEAM:
        return params.environment
    single = find(params.environment.kind).single_agent(params.environment)
    if single is None:
        raise SettingsError(
            f"seeds.single_agent: the environment '{params.environment.kind}' has no single-agent form; "
            "set seeds.single_agent to []"
        )
    return single


def seeds_of(params: Params, arm: str) -> tuple[int, ...]:
    """Return the training seeds of an arm."""
    return params.seeds.train if arm == TEAM else params.seeds.single_agent


def trained_folder(arm: str, seed: int) -> Path:
    """Return the folder of a run's checkpoints."""
    return TRAINED / f"{arm}-{seed}"


def compute_file(seed: int) -> Path:
    """Return the file of the compute that a training run of the team used; the single agent is given as much."""
    return RESULTS / "compute" / f"{TEAM}-{seed}.json"


def sweep_folder(arm: str, seed: int) -> Path:
    """Return the folder of a run's evaluated checkpoints."""
    return RESULTS / "sweep" / f"{arm}-{seed}"


def planned_seeds(arm: str, content: Mapping[str, Any] | None = None) -> tuple[int, ...]:
    """Return the seeds of an arm that DVC reads from ``params.yaml``, or from what it will contain.

    Raises:
        SettingsError: they are not written out there.
    """
    key = "train" if arm == TEAM else "single_agent"
    try:
        planned = (read_mapping(Path("params.yaml")) if content is None else content)["seeds"][key]
    except (KeyError, TypeError):
        planned = None
    # A default is in quotes (`pipeline_lib.settings.load`).
    if not isinstance(planned, list) or not all(
        type(seed) is int or (isinstance(seed, str) and _NUMBER.fullmatch(seed)) for seed in planned
    ):
        raise SettingsError(
            f"params.yaml: seeds.{key}: DVC plans one stage per seed, so the seeds must be written there as a list of "
            f"whole numbers; {'there are none' if planned is None else f'got {planned!r}'}"
        )
    return tuple(map(int, planned))


def check_seeds(params: Params, content: Mapping[str, Any] | None = None) -> None:
    """Make sure that DVC, which reads the seeds from the file alone, plans every run that the settings want.

    Args:
        params: the settings.
        content: what ``params.yaml`` will contain; None: what it contains.

    Raises:
        SettingsError: it does not; the message names the seeds.
    """
    for arm, key in ((TEAM, "train"), (SINGLE, "single_agent")):
        planned = planned_seeds(arm, content)
        if missing := sorted(set(seeds_of(params, arm)) - set(planned)):
            raise SettingsError(
                f"params.yaml: seeds.{key}: a preset needs the seeds {list(seeds_of(params, arm))}, but DVC plans "
                f"{list(planned)}; write {missing} into seeds.{key} too"
            )


def training_file(arm: str, seed: int) -> Path:
    """Return the file of a run's metrics by update, JSON lines."""
    return RESULTS / "train" / f"{arm}-{seed}.jsonl"


def training_rows(arm: str, seed: int, project: Path = Path()) -> list[dict[str, float]]:
    """Return the metrics of every update of a run of a project; none of a run that was left out."""
    return list(storage.read_jsonl(project / training_file(arm, seed)))
