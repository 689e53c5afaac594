"""Stage ``test``: base, selected, last and baselines on the held-out split.  ``python -m flows.test``."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline_lib import storage
from pipeline_lib.settings import Params
from pipeline_lib.training.checkpoint_folders import RECORD, step_folder
from tasks.experiment.arms import ARMS, PROBLEMS, RESULTS, TEAM, TESTED, seeds_of, trained_folder
from tasks.experiment.episode_files import tested_file, write_bounds
from tasks.looks.looking import begin_look, end_look
from tasks.runtime.stage import StageRun, run_stage
from tasks.stages.evaluation import Evaluated, Evaluator, checkpoint_steps


def test_teams(run: StageRun) -> None:
    """Write the test episodes of base, selected and last checkpoint of every arm and seed to ``results/test/``.

    The base of the team also plays the baseline protocols, and the selected teams play without some of their agents,
    and with guests (`evaluate.cross_play`).
    Before the first episode is played or read from the cache, git records the look at the test split (`looking`); an
    interrupted one counts too.
    """
    params, selection = run.params, storage.read_json(RESULTS / "selection.json")
    shutil.rmtree(TESTED, ignore_errors=True)
    total = sum(1 + 2 * len(seeds_of(params, arm)) for arm in ARMS if seeds_of(params, arm))
    total += len(params.evaluate.baselines)
    episodes = params.evaluate.contributions
    total += len(seeds_of(params, TEAM)) * (bool(episodes) + 2 * params.evaluate.cross_play)
    done = 0
    costs: dict[str, Any] = {}
    bounds: list[tuple[float, float]] = []
    look = begin_look(_weights(params, selection), run.name)

    def keep(path: Path, evaluated: Evaluated) -> None:
        nonlocal done
        done += 1
        storage.write_jsonl(path, (record.to_json() for record in evaluated.episodes))
        costs[path.stem] = {"seconds": evaluated.seconds, "tokens": sum(r.tokens for r in evaluated.episodes)}
        run.progress(done, total, path.stem)

    for arm in ARMS:
        if not seeds_of(params, arm):
            continue
        with Evaluator(params, arm, "test", params.evaluate.test, keep_texts=True) as team:
            bounds.append(team.reward_bounds)
            entry = team.manifest
            run.tracked.dataset("test", entry["digest"], {"path": str(PROBLEMS / entry["file"])}, "test")
            keep(tested_file(arm, "base"), team.base())
            for protocol in params.evaluate.baselines if arm == TEAM else ():
                keep(tested_file(arm, protocol), team.base(protocol))
            for seed in seeds_of(params, arm):
                selected, last = selection[arm]["seeds"][str(seed)]["step"], checkpoint_steps(arm, seed)[-1]
                keep(tested_file(arm, "selected", seed), team.checkpoint(seed, selected))
                keep(tested_file(arm, "last", seed), team.checkpoint(seed, last))
                if arm == TEAM and episodes:
                    keep(tested_file(arm, "subteams", seed), team.checkpoint(seed, selected, episodes))
                if arm == TEAM and params.evaluate.cross_play:
                    steps = {other: int(found["step"]) for other, found in selection[arm]["seeds"].items()}
                    others = {int(other): step for other, step in steps.items() if int(other) != seed}
                    keep(tested_file(arm, "guests", seed), team.with_guests(seed, selected, others))
                    keep(tested_file(arm, "base-guests", seed), team.with_guests(seed, selected, {}))
    storage.write_json(TESTED / "cost.json", costs)
    write_bounds(bounds)
    end_look(look)


def _weights(params: Params, selection: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the digests of the trained teams that are tested, by training run and role."""
    weights: dict[str, dict[str, str]] = {}
    for arm in ARMS:
        for seed in seeds_of(params, arm):
            chosen = {
                "selected": int(selection[arm]["seeds"][str(seed)]["step"]),
                "last": checkpoint_steps(arm, seed)[-1],
            }
            weights[f"{arm}-{seed}"] = {
                role: storage.read_json(step_folder(trained_folder(arm, seed), step) / RECORD)["team"]
                for role, step in chosen.items()
            }
    return weights


if __name__ == "__main__":
    run_stage("test", test_teams)
