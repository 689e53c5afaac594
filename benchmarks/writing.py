"""How long it takes to read and reward 10,000 pairs of texts, in CPU seconds of one core.

    python -m benchmarks.writing

Half of the pairs are flawed demonstrations, half the reference, on as many generated sources as there are pairs, so
nothing is read twice but sentences that happen to be equal.  Every pair is read, rewarded and measured as by a step of
the environment: all metrics, the published ones among them.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

from pipeline_lib.environments.writing.demonstrations import demonstrate
from pipeline_lib.environments.writing.runtime import WritingEnvironment
from pipeline_lib.environments.writing.settings import PaperWritingReward, SoundWritingReward
from pipeline_lib.environments.writing.settings import WritingSettings as Settings
from pipeline_lib.environments.writing.world import draw_abstract, draw_post

PAIRS = 10_000
OUTPUT = Path("benchmarks/results/writing.json")


def main() -> int:
    """Measure, and write the result to `OUTPUT`."""
    rng = random.Random(0)
    problems = [(draw_post if number % 2 else draw_abstract)(rng) for number in range(PAIRS)]
    pairs = []
    for number, problem in enumerate(problems):
        flawed = [d.action for d in demonstrate([problem], 2, 0.99, number)]
        pairs.append(flawed if number % 4 < 2 else list(problem.reference))
    found = {}
    for name, reward in (("sound", SoundWritingReward()), ("published", PaperWritingReward())):
        environment = WritingEnvironment(Settings(reward=reward))
        states = [environment.start(problem) for problem in problems]
        began = time.process_time()
        environment.step(states, pairs)
        found[name] = round(time.process_time() - began, 2)
    OUTPUT.write_text(json.dumps({"pairs": PAIRS, "cpu_seconds": found}, indent=1) + "\n")
    print(f"{PAIRS} pairs: {found} CPU seconds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
