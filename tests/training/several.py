"""What two processes do in ``test_parallel``: train toy teams in every way, and leave the results in files."""

import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline_lib.policies.policy import Policy, Team
from pipeline_lib.policies.store import save_team, team_digest
from pipeline_lib.training.parallel import Processes, join_processes
from pipeline_lib.training.stopping import TrainingStopped
from tests.training.conftest import Agree, ToyState, make_model, make_settings, make_team, run_training

#: name: (team, settings)
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "replicated": ({}, {}),
    "replicated-epochs": ({"shared": True}, {"loss": {"epochs": 2, "clip": 0.2}}),
    "replicated-cross": ({}, {"credit": {"kind": "cross"}}),
    "replicated-lora-kl": ({"lora": True}, {"loss": {"kl": 0.1}}),
    "replicated-critic": ({"critic": True}, {}),
    "replicated-value": ({}, {"advantage": {"baseline": "counterfactual"}}),
    "sharded": ({}, {"weights": "sharded"}),
    "sharded-lora": ({"lora": True}, {"weights": "sharded"}),
    "sharded-epochs-kl": ({"lora": True}, {"weights": "sharded", "loss": {"epochs": 2, "clip": 0.2, "kl": 0.1}}),
}


#: Cases that are also begun by so many processes and ended by so many others.
HANDED_OVER = ("replicated-epochs", "replicated-lora-kl", "sharded")
STOPPED_AFTER = 3


class Criticised(Agree):
    """The agents also see what their base would say."""

    has_critic = True

    def criticised(self, state: ToyState, texts: Mapping[int, str]) -> ToyState:
        return replace(state, seen=tuple(text for _, text in sorted(texts.items())))

    def observe(self, state: ToyState, agent: int) -> str:
        return f"{super().observe(state, agent)} {state.seen[agent] if len(state.seen) > agent else ''}".strip()


def run_case(name: str, folder: Path, processes: Processes) -> dict[str, Any]:
    """Train four steps (with a stop and a new start after the third), and return what the first process noted."""
    begin(name, folder / name, processes)
    return end(name, folder, folder / name, processes)


def begin(name: str, scratch: Path, processes: Processes) -> None:
    """Train until a stop after the third step."""
    stop: list[int] = []

    def note(step: int, metrics: dict[str, float]) -> None:
        if step == STOPPED_AFTER:
            stop.append(step)

    try:
        _train(name, scratch, processes, on_step=note, should_stop=lambda: bool(stop))
    except TrainingStopped:
        return
    raise AssertionError("it was not stopped")


def end(name: str, folder: Path, scratch: Path, processes: Processes) -> dict[str, Any]:
    """Continue to the end, and return what the first process noted on the way."""
    rows: list[dict[str, float]] = []
    team = _train(name, scratch, processes, on_step=lambda step, metrics: rows.append({"step": step, **metrics}))
    if processes.first:
        save_team(team, folder / f"{name}-team")
    return {"rows": rows, "digest": team_digest(team)}


def _train(name: str, scratch: Path, processes: Processes, **more: Any) -> Team:
    team_options, changes = CASES[name]
    # Small passes, so that every process has several and one has fewer.
    options = {
        "steps": 4,
        "checkpoint_every": 2,
        "learning_rate": 1e-3,
        "group_size": 4,
        "micro_batch_tokens": 64,
        **changes,
    }
    critic = team_options.get("critic", False)
    team = make_team(**{name: value for name, value in team_options.items() if name != "critic"})
    if critic:
        team.bases = {
            name: Policy(f"base of {name}", make_model(1), one.tokenizer) for name, one in team.policies.items()
        }
    environment = Criticised(turns=2) if critic else Agree(turns=2)
    settings = make_settings(**options)
    run_training(scratch.parent, team, environment, settings=settings, scratch=scratch, processes=processes, **more)
    return team


if __name__ == "__main__":
    out, cases, handed_over = Path(sys.argv[1]), *(json.loads(names) for names in sys.argv[2:])
    together = join_processes()
    for case in cases:
        result = run_case(case, out, together)
        (out / f"{case}-{together.rank}-of-{together.world}.json").write_text(json.dumps(result))
    for case in handed_over:
        begin(case, out / "begun-by-two" / case, together)
        ended = end(case, out / "ended-by-two", out / "begun-by-one" / case, together)
        # As on two machines: the second one holds a damaged checkpoint, and no state.
        disk = out / ("begun-by-one-again" if together.first else "elsewhere") / case
        if not together.first:
            os.environ["LOCAL_RANK"] = "0"
            shutil.copytree(out / "begun-by-one-again" / case / "step-00002", disk / "step-00002")
            largest = max((disk / "step-00002").rglob("*.safetensors"), key=lambda path: path.stat().st_size)
            largest.write_bytes(largest.read_bytes()[:-1])
        again = end(case, out / "ended-by-machines", disk, together)
        assert again["digest"] == ended["digest"] and len(again["rows"]) == (2 if together.first else 0)
        assert together.first or not list(disk.iterdir()), "what was lent stays there"
        if together.first:
            (out / f"{case}-ended-by-two.json").write_text(json.dumps(ended))
