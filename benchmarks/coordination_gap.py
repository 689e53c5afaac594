"""The coordination-gap study, read again from its published summary; writes docs/coordination-gap.md.

    .venv/bin/python -m benchmarks.coordination_gap

Only the summary could be had (arXiv 2606.07845: abstract, a caption, the first lines), so everything here follows from
a handful of published numbers; what is inferred says so.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

from pipeline_lib.evaluation.effects import hedges_correction, hedges_g_from_summaries
from pipeline_lib.evaluation.multiplicity import family_wise_error
from pipeline_lib.evaluation.planning import expected_maximum
from pipeline_lib.evaluation.power import (
    equivalence_per_arm_needed,
    per_arm_needed,
    two_sample_detectable,
    two_sample_power,
)
from pipeline_lib.evaluation.tests_of_difference import equivalence, welch_from_summaries, wilson

# What was published.
EPISODES, MODELS, COUNTS = 630, 7, 3
P, G = 0.66, -0.11
STEPS, PEAK = 15, 9
# Assumed where a scale is needed: rewards in [0, 1] that scatter by this much from episode to episode.
SD = 0.3

DOC = Path(__file__).parents[1] / "docs" / "coordination-gap.md"
CALIBRATION = DOC.parent / "calibration.md"


def from_g(n: int, g: float = G) -> tuple[float, float]:
    """Return the standardised difference and Welch's p of two equal arms of ``n`` episodes with this Hedges' g."""
    d = g / hedges_correction(2 * n - 2)
    p = welch_from_summaries(d, 1.0, n, 0.0, 1.0, n).p
    assert p is not None
    return d, p


def best_of_fifteen() -> str:
    """Return how often the best of 15 equal checkpoints is significant on its own data, in per cent: as calibrated."""
    name = re.escape("best of 15, tested on the same data")
    found = re.search(rf"^\| {name} \| ([\d.]+) % \|", CALIBRATION.read_text(encoding="utf-8"), re.MULTILINE)
    if not found:
        raise LookupError(f"{CALIBRATION} has no such case; run `python -m benchmarks.calibration` first")
    return found[1]


def document() -> str:
    """Return the whole text, every number computed."""
    n = EPISODES // (MODELS * COUNTS)
    d = from_g(n)[0]
    effect = hedges_g_from_summaries(d, 1.0, n, 0.0, 1.0, n)
    test = welch_from_summaries(d, 1.0, n, 0.0, 1.0, n)
    found, found_90 = two_sample_detectable(n), two_sample_detectable(n, power=0.9)
    mistral = wilson(25, 30)
    luck = expected_maximum(STEPS)
    sizes = (0.8, 0.5, 0.3, 0.2, 0.11)
    powers = [(size, two_sample_power(size, n), _up(per_arm_needed(size))) for size in sizes]
    return TEXT.format(
        n=n,
        p=P,
        g=G,
        size=abs(G),
        sd=SD,
        steps=STEPS,
        peak=PEAK,
        episodes=EPISODES,
        models=MODELS,
        counts=COUNTS,
        fits="\n".join(f"| {m} | {from_g(m)[1]:.3f} |" for m in (20, 25, 30, 40)),
        low=f"{effect.low:.2f}",
        high=f"{effect.high:+.2f}",
        found=f"{found:.3f}",
        found_90=f"{found_90:.3f}",
        in_reward=f"{found * SD:.2f}",
        p_half=f"{equivalence(test, 0.5, 0.05).p:.3f}",
        p_65=f"{equivalence(test, 0.65, 0.05).p:.3f}",
        powers="\n".join(f"| {x} | {x * SD:.3f} | {100 * power:.0f} % | {need:,} |" for x, power, need in powers),
        margins="\n".join(f"| {m} | {m * SD:.2f} | {equivalence_per_arm_needed(m):,} |" for m in (0.5, 0.3, 0.2)),
        alarm=f"{100 * family_wise_error(3, 0.05):.0f}",
        luck=f"{luck:.3f}",
        lift=f"{luck * SD / math.sqrt(n):+.3f}",
        naive=best_of_fifteen(),
        rate=f"{mistral.value:.3f}",
        rate_low=f"{mistral.low:.2f}",
        rate_high=f"{mistral.high:.2f}",
        need_half=_up(per_arm_needed(0.5)),
        need_fifth=_up(per_arm_needed(0.2)),
    )


def _up(value: float) -> int:
    return math.ceil(value)


TEXT = """# Worked example: what thirty episodes an arm can show

Made by `python -m benchmarks.coordination_gap`; every number below is computed from the few that were published.

"GRPO Does Not Close the Multi-Agent Coordination Gap" (arXiv 2606.07845) trained language models of 8 and 14 billion
parameters to be dining philosophers, {steps} steps each; the checkpoint saved by default is step {steps}. With five
philosophers the difference to the base was Hedges' g = {g}, Welch's p = {p}; with ten and fifteen it was not
significant either. The training reward had peaked at step {peak}. The question here is not whether the authors are
right, but what numbers like these can and cannot say.

## How many episodes?

The summary gives {episodes} episodes over {models} models and {counts} table sizes: {n} a cell. Effect and p agree with
that and with little else:

| episodes per arm | p at g = {size} |
|---|---|
{fits}

(p = {p} itself belongs to g = 0.113 at thirty, which rounds to the published value.)

## What was seen

- The interval for g is [{low}, {high}]: anything from a harm of more than half a standard deviation to a gain of more
  than a third is compatible with the data.
- An effect smaller than {found} standard deviations had less than an 80 % chance of being found ({found_90} for 90 %).
  On rewards that scatter by {sd} from episode to episode that is {in_reward}, more than a fifth of the whole scale.
- No equivalence either: differences up to half a standard deviation are not excluded (two one-sided tests,
  p = {p_half}); 0.65 are (p = {p_65}).

So Symposium would call it INCONCLUSIVE: no *large* improvement was found, and a moderate one was not ruled out.
"p = {p}" is not "no effect".

| true effect (sd) | in reward, sd {sd} | chance that {n} an arm find it | episodes per arm for 80 % |
|---|---|---|---|
{powers}

To show instead that there is *no* effect that matters, when there is none at all:

| margin (sd) | in reward | episodes per arm for 80 % |
|---|---|---|
{margins}

Three tables at 5 % each would by themselves give a false alarm with probability {alarm} %; Holm's correction keeps it
at 5 %.

## The checkpoint

Had the best of the {steps} steps been picked by its reward on the episodes at hand, luck alone would have lifted it by
{luck} standard errors, {lift} in reward, if all steps were equally good; tested against the base on the same episodes,
such a winner is significant in {naive} % of simulated cases instead of 5 % (`docs/calibration.md`). Taking
the last step instead avoids that, and may miss a better one. Symposium selects on one split, tests on another, and
says what the last checkpoint would have cost.

## The reward

Two models reached high rewards without a single meal: DeepSeek-R1-Distill-Qwen-7B 1.0, and Mistral-Small 0.83 with five
philosophers. The second is what 25 of 30 episodes without a deadlock give if such an episode earns 1 and a deadlock 0
(an inference: 25/30 = {rate}, interval [{rate_low}, {rate_high}]). A comparison of mean rewards cannot see this; the
audit before training and the guards of selection can (`evaluate.guards`: a checkpoint without meals is never selected,
and never called improved).

## What a second study would need

- {need_half} episodes an arm for half a standard deviation, {need_fifth} for a fifth; fewer when both arms play the
  same seeded tables, since pairing removes the variance that they have in common.
- At least three training runs per arm: one run speaks for one checkpoint.
- A plan before the sweep: metric, margin, tables, seeds, rule of selection (`results/plan.json`).
"""


if __name__ == "__main__":
    DOC.write_text(document(), encoding="utf-8")
    print(f"wrote {DOC}")
