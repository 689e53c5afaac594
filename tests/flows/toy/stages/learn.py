"""A training that learns nothing but behaves like one: it logs, writes checkpoints, continues, and can be held.

The environment is prepared already: the experiment that runs it has done that.
"""

import sys
import time
from pathlib import Path

from prefect import flow

from pipeline_lib import storage
from pipeline_lib.settings import load_params
from pipeline_lib.tracking import Checkpoint, Contender
from tasks.runtime.stage import main, stage
from tasks.services.process_environment import places


@flow(name="train")
def train(seed: int) -> None:
    """Count to ``train.steps``."""
    params = load_params()
    identity = storage.digest([params.train.model_dump(mode="json"), seed])
    scratch = places().scratch / "toy" / identity
    scratch.mkdir(parents=True, exist_ok=True)
    done = max((int(file.stem) for file in scratch.glob("*.bin")), default=0)
    with stage("train", params, seed, identity) as run:
        run.tracked.dataset("train", "d" * 32, {"path": "out/prepared"}, "training")
        (scratch / f"began-at-{done}").touch()
        for step in range(1, params.train.steps + 1):
            run.log(step, {"reward": step / params.train.steps, "loss": 1 / step})
            if step <= done:
                continue
            while meeting() or held(step):
                time.sleep(0.05)
            run.progress(step, params.train.steps, f"reward {step / params.train.steps:.2f}")
            if step % params.train.checkpoint_every == 0:
                storage.write_bytes(scratch / f"{step}.bin", f"weights {seed} {step}".encode())
                run.tracked.checkpoint(checkpoint(seed, step))
        score = {"tests_passed": 0.5 + seed / 10}
        run.tracked.checkpoint_metrics(checkpoint(seed, step), score, ("validation", "e" * 32))
        tested = Contender(
            f"seed-{seed}-step-{step}", run.name, "IMPROVED", "", "e" * 32, "tests_passed", 0.5 + seed / 10
        )
        run.tracked.champion(checkpoint(seed, step), "toy-team", tested)
        run.table("scores", [{"seed": seed, **score}], "How it ended")
    storage.write_text(Path(f"models/{seed}/weights.txt"), f"{seed} {params.train.steps}")
    storage.write_json(Path(f"results/train-{seed}.json"), score)


def checkpoint(seed: int, step: int) -> Checkpoint:
    """Return a checkpoint as MLflow knows it."""
    return Checkpoint(f"seed-{seed}-step-{step}", step, storage.digest([seed, step]), f"models/{seed}")


def held(step: int) -> bool:
    """Return whether somebody wants to hold the training here; the file may name the last step that may be done."""
    file = places().home / "hold"
    return file.exists() and step > int(file.read_text() or 0)


def meeting() -> bool:
    """Return whether the other training is still missing at a place where both must be at the same time."""
    place = places().home / "meet"
    if not place.exists():
        return False
    (place / sys.argv[1]).touch()
    return len(list(place.iterdir())) < 2


if __name__ == "__main__":
    main(train, seed=int(sys.argv[1]))
