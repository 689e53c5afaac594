"""Checks the sweep on a Ray cluster of two nodes on this machine, one of which is lost: ``python -m ... FOLDER``.

The environment is a module of the project, which only the nodes' copy of it brings; it notes which node plays.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

from pipeline_lib import storage
from pipeline_lib.assembly.teams import base_team
from pipeline_lib.environment_kit.make import make_environment
from pipeline_lib.evaluation.results import EvaluationError
from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.problems.splits import load_split
from pipeline_lib.settings import Params, load_params
from pipeline_lib.settings.evaluate import RayNodes, SampleSettings
from pipeline_lib.training.checkpoints import write_checkpoint
from tasks.experiment.arms import BASE, PROBLEMS, TEAM, trained_folder
from tasks.stages import evaluation
from tasks.stages.evaluation import Evaluator
from tests.needs import ROOT
from tests.ray_nodes import two_nodes

STEPS = 6
SAMPLES = SampleSettings(samples=2, seed=1000)
SETTINGS = """
environment: {kind: "played_here:Meeting"}
problems: {sizes: {train: 8, validation: 4, test: 2}}
policy: {hidden_size: 32, mlp_size: 64, vocabulary: 280, context: 64, warm_start: {steps: 4, batch: 4}}
rollouts: {max_new_tokens: 2}
evaluate: {baselines: [], pass_k: [1, 2]}
seeds: {train: [0], single_agent: []}
"""
TASK = '''
import os
import time
from pathlib import Path

from rendezvous import Rendezvous


class Meeting(Rendezvous):
    """Takes time, and notes where it takes place."""

    def score(self, text, actions):
        time.sleep(0.1)
        if "ray" in __file__:
            import ray

            Path(os.environ["NOTES"], ray.get_runtime_context().get_node_id()).touch()
        return super().score(text, actions)
'''


class NotKept:
    """Instead of cached tasks, which need Prefect."""

    def __call__(self, identity: Any, compute: Any, title: str) -> Any:
        return compute()

    def has(self, identity: Any) -> bool:
        return False


def make_project(folder: Path) -> Params:
    """Enter a project with problems, a base, and checkpoints that play differently."""
    os.chdir(folder)
    Path("params.yaml").write_text(SETTINGS)
    Path("played_here.py").write_text(TASK)
    own = ROOT / "tests/symposium/own/rendezvous.py"
    Path("rendezvous.py").write_text(own.read_text())
    sys.path.insert(0, str(folder))
    params = load_params(Path("params.yaml"), ROOT / "conf")
    prepare(params.environment.kind, params.problems, PROBLEMS)
    build_base(params.policy, PROBLEMS, BASE)
    environment = make_environment(params.environment, params.sandbox)
    team = base_team(params, BASE, environment, load_split(PROBLEMS, "train"))
    for step in range(STEPS):
        write_checkpoint(trained_folder(TEAM, 0), step, team)
        for policy in team.policies.values():
            for _, weights in policy.trainable():
                weights.data += 0.05 * torch.randn(weights.shape, generator=torch.Generator().manual_seed(step))
    Path(".gitignore").write_text("data\nmodels\nnotes\n")  # as in a real one: neither is sent with the project
    return params


def swept(params: Params, nodes: RayNodes | None, each: Any = lambda step: None) -> list[str]:
    """Return the episodes of every checkpoint, as the sweep writes them."""
    files = []
    with Evaluator(params, TEAM, "validation", SAMPLES, nodes=nodes) as team:
        team.begin(0, range(STEPS))
        for step in range(STEPS):
            each(step)
            storage.write_jsonl(
                file := Path("episodes.jsonl"), (r.to_json() for r in team.checkpoint(0, step).episodes)
            )
            files.append(file.read_text())
    return files


def main(folder: Path) -> int:
    """Sweep here, and on a cluster of which a node is lost and one joins; compare."""
    os.environ["NOTES"] = str(notes := folder / "notes")
    notes.mkdir()
    evaluation.EVALUATE = NotKept()  # type: ignore[assignment]
    torch.set_num_threads(1)  # as in a stage
    params = make_project(folder)
    played, alone = evaluation.playing(params), swept(params, None)
    assert len(set(alone)) > STEPS // 2, "the checkpoints play alike, so nothing is compared"
    with two_nodes() as (cluster, add):
        joined: list[str] = []

        def change(step: int) -> None:
            """Lose the second node while it plays, then let another one join."""
            if step == 0:
                (lost,) = cluster.worker_nodes
                end = time.monotonic() + 120
                while not (notes / lost.node_id).exists():
                    assert time.monotonic() < end, "the second node plays nothing"
                    time.sleep(0.05)
                cluster.remove_node(lost, allow_graceful=False)
                joined.append(add().node_id)

        started = time.monotonic()
        assert swept(params, RayNodes(address=cluster.address), change) == alone
        print(f"swept, a node lost and one joined: {time.monotonic() - started:.1f} s", flush=True)
        assert (notes / joined[0]).exists(), "the node that joined has played nothing"
        assert len(list(notes.iterdir())) == 3

        evaluation.version = lambda library: "0.1"  # type: ignore[assignment]
        evaluation.playing = lambda params: {**played, "versions": {"torch": "0.1"}}  # type: ignore[assignment]
        for wanted, nodes in (
            ("does not have 7 CPU, 1 GPU", RayNodes(address=cluster.address, cpus=7, gpus=1)),
            (f"a node has torch {torch.__version__}, not 0.1", RayNodes(address=cluster.address)),
        ):
            try:
                swept(params, nodes)
            except EvaluationError as error:
                assert wanted in str(error), error
            else:
                raise AssertionError(f"accepted, though {wanted}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
