"""Print how many MiB of freed memory this process still holds after it loaded a team of SmolLM2 in bfloat16."""

import sys
from pathlib import Path

from pipeline_lib.memory import give_back_memory, held_memory
from pipeline_lib.policies.load import load_team
from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.settings.policy import LoraAdapter, PretrainedPolicy

if __name__ == "__main__":
    model, folder = sys.argv[1], Path(sys.argv[2])
    settings = PretrainedPolicy(kind="pretrained", models=(model,), dtype="bfloat16", adapter=LoraAdapter())
    build_base(settings, folder / "problems", folder / "base")
    give_back_memory()
    team = load_team(settings, folder / "base", ("helper", "main"))
    held = held_memory()
    give_back_memory()
    print((held - held_memory()) // 2**20)
