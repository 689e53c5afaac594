"""The compute of the team, which the single agent is given too, and by how much the two differ in the end."""

from typing import Any

import numpy as np

from pipeline_lib import storage
from pipeline_lib.settings import Params
from pipeline_lib.training.budget import MEASURES, Budget, used
from tasks.experiment.arms import SINGLE, TEAM, compute_file, seeds_of, training_rows

WORDS = {"tokens": "sampled tokens", "executions": "executed joint actions", "seconds": "seconds of training"}


def budget_of(params: Params, arm: str) -> Budget | None:
    """Return what a run of the single agent may use: as much as a run of the team on average; None for the team."""
    if arm == TEAM:
        return None
    measure = params.train.single_agent_budget
    amounts = [float(storage.read_json(compute_file(seed))[measure]) for seed in params.seeds.train]
    return Budget(measure, float(np.mean(amounts)))


def compare_compute(params: Params) -> dict[str, Any]:
    """Compare the compute of training the single agent with that of training the team, as JSON.

    Returns:
        ``matched``: what was made equal; ``team`` and ``single``: means over training runs of every measure and of
        ``updates``; ``ratio``: single to team, by the same names; ``sentence``: all of it in words.
    """
    means = {}
    for arm in (TEAM, SINGLE):
        runs = [training_rows(arm, seed) for seed in seeds_of(params, arm)]
        each = [{**used(rows), "updates": len(rows)} for rows in runs]
        means[arm] = {name: float(np.mean([run[name] for run in each])) for name in (*MEASURES, "updates")}
    team, single = means[TEAM], means[SINGLE]
    ratio = {name: single[name] / team[name] for name in team if team[name] > 0}
    matched = params.train.single_agent_budget
    others = " and ".join(f"{ratio[name]:.2f} times the {WORDS[name]}" for name in MEASURES if name != matched)
    sentence = (
        f"Compute is matched by {WORDS[matched]}: a training run of the single agent used {single[matched]:,.0f}, "
        f"{ratio[matched]:.3f} times those of the team ({team[matched]:,.0f}), in {single['updates']:.0f} updates "
        f"instead of {team['updates']:.0f}, with {others}."
    )
    return {"matched": matched, "team": team, "single": single, "ratio": ratio, "sentence": sentence}
