"""What two processes do in ``test_parallel``: train toy teams in every way, and leave the results in files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pipeline_lib.policies.store import save_team, team_digest
from pipeline_lib.training.parallel import Processes, join_processes
from pipeline_lib.training.stopping import TrainingStopped
from tests.training.conftest import Agree, make_settings, make_team, run_training

#: name: (team, settings)
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "replicated": ({}, {}),
    "replicated-epochs": ({"shared": True}, {"loss": {"epochs": 2, "clip": 0.2}}),
    "replicated-lora-kl": ({"lora": True}, {"loss": {"kl": 0.1}}),
    "sharded": ({}, {"weights": "sharded"}),
    "sharded-lora": ({"lora": True}, {"weights": "sharded"}),
    "sharded-epochs-kl": ({"lora": True}, {"weights": "sharded", "loss": {"epochs": 2, "clip": 0.2, "kl": 0.1}}),
}


def run_case(name: str, folder: Path, processes: Processes) -> dict[str, Any]:
    """Train four steps (with a stop and a new start after the third), and return what the first process noted."""
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
    settings = make_settings(**options)
    rows: list[dict[str, float]] = []
    stop: list[int] = []

    def note(step: int, metrics: dict[str, float]) -> None:
        rows.append({"step": step, **metrics})
        if step == 3 and attempt == 0:
            stop.append(step)

    for attempt in range(2):
        rows.clear()
        stop.clear()
        team = make_team(**team_options)
        try:
            run_training(
                folder,
                team,
                Agree(turns=2),
                settings=settings,
                scratch=folder / name,
                on_step=note,
                processes=processes,
                should_stop=lambda: bool(stop),
            )
        except TrainingStopped:
            assert attempt == 0
    if processes.first:
        save_team(team, folder / f"{name}-team")
    return {"rows": rows, "digest": team_digest(team)}


if __name__ == "__main__":
    out = Path(sys.argv[1])
    together = join_processes()
    for case in CASES:
        result = run_case(case, out, together)
        (out / f"{case}-{together.rank}-of-{together.world}.json").write_text(json.dumps(result))
