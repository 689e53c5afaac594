"""The coordination-gap study, read again from its published summary; writes benchmarks/results/coordination_gap.md.

    .venv/bin/python -m benchmarks.coordination_gap

Only the summary could be had (arXiv 2606.07845: abstract, a caption, the first lines), so everything here follows from
a handful of published numbers; what is inferred says so.
"""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

from scipy import optimize, stats

from pipeline_lib.evaluation.clusters import hedges_correction
from pipeline_lib.evaluation.evidence import equivalence, student, wilson
from pipeline_lib.evaluation.planning import detectable, expected_maximum, t_power

# What was published.
EPISODES, MODELS, COUNTS = 630, 7, 3
P, G = 0.66, -0.11
STEPS, PEAK = 15, 9
# Assumed where a scale is needed: rewards in [0, 1] that scatter by this much from episode to episode.
SD = 0.3
ALPHA, POWER = 0.05, 0.8

DOC = Path(__file__).parent / "results" / "coordination_gap.md"
CALIBRATION = Path(__file__).parent / "results" / "calibration.md"


def from_g(n: int, g: float = G) -> tuple[float, float]:
    """Return the standardised difference and Welch's p of two equal arms of ``n`` episodes with this Hedges' g."""
    d = g / hedges_correction(2 * n - 2)
    return d, float(stats.ttest_ind_from_stats(d, 1.0, n, 0.0, 1.0, n, equal_var=False).pvalue)


def interval_of_g(d: float, n: int) -> tuple[float, float]:
    """Return the 95 % interval of Hedges' g from the noncentral t distribution, with ``n`` episodes an arm."""
    unit = math.sqrt(2 / n)

    def limit(probability: float) -> float:
        return float(optimize.brentq(lambda nc: stats.nct.cdf(d / unit, 2 * n - 2, nc) - probability, -9, 9))

    low, high = (limit(probability) * unit * hedges_correction(2 * n - 2) for probability in (0.975, 0.025))
    return low, high


def power_of(d: float, n: int) -> float:
    """Return the power of a t test of two arms of ``n`` episodes for the standardised difference ``d``."""
    return t_power(d * math.sqrt(n / 2), 2 * n - 2, ALPHA)


def needed(d: float) -> int:
    """Return the episodes per arm with which a t test finds the standardised difference ``d``."""
    return next(n for n in itertools.count(2) if power_of(d, n) >= POWER)


def needed_for_equivalence(margin: float) -> int:
    """Return the episodes per arm with which two one-sided tests show |d| < ``margin`` where there is no difference."""

    def power(n: int) -> float:
        beyond = stats.nct.cdf(stats.t.ppf(1 - ALPHA, 2 * n - 2), 2 * n - 2, margin * math.sqrt(n / 2))
        return float(1 - 2 * beyond)

    return next(n for n in itertools.count(2) if power(n) >= POWER)


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
    d, p = from_g(n)
    low, high = interval_of_g(d, n)
    se, df = math.sqrt(2 / n), 2 * n - 2
    test = student("Welch's t test", d, se, df, (n, n), 1 - ALPHA, d / se, p)
    found, found_90 = (detectable(se, df, ALPHA, power) for power in (POWER, 0.9))
    mistral = wilson(25, 30)
    luck = expected_maximum(STEPS)
    sizes = (0.8, 0.5, 0.3, 0.2, 0.11)
    powers = [(size, power_of(size, n), needed(size)) for size in sizes]
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
        fits=", ".join(f"{from_g(m)[1]:.3f} with {m}" for m in (20, 25, 30, 40)),
        low=f"{low:.2f}",
        high=f"{high:+.2f}",
        found=f"{found:.3f}",
        found_90=f"{found_90:.3f}",
        in_reward=f"{found * SD:.2f}",
        p_half=f"{equivalence(test, 0.5, 0.05).p:.3f}",
        p_65=f"{equivalence(test, 0.65, 0.05).p:.3f}",
        powers="\n".join(f"| {x} | {x * SD:.3f} | {100 * power:.0f} % | {need:,} |" for x, power, need in powers),
        margins="{}, {} and {}".format(*(needed_for_equivalence(margin) for margin in (0.5, 0.3, 0.2))),
        alarm=f"{100 * (1 - (1 - ALPHA) ** COUNTS):.0f}",
        luck=f"{luck:.3f}",
        lift=f"{luck * SD / math.sqrt(n):+.3f}",
        naive=best_of_fifteen(),
        rate=f"{mistral.value:.3f}",
        rate_low=f"{mistral.low:.2f}",
        rate_high=f"{mistral.high:.2f}",
        need_half=needed(0.5),
        need_fifth=needed(0.2),
    )


TEXT = """# Worked example: what thirty episodes per arm can show

Made by `python -m benchmarks.coordination_gap`; every number below is computed from the few published ones.

"GRPO Does Not Close the Multi-Agent Coordination Gap" (arXiv 2606.07845) trained language models of 8 and 14 billion
parameters as dining philosophers, {steps} steps each; the checkpoint saved by default is step {steps}. With five
philosophers the difference from the base was Hedges' g = {g}, Welch's p = {p}; with ten and fifteen it was not
significant either. The training reward was greatest at step {peak}. What can such numbers show?

## What the data show

The summary gives {episodes} episodes over {models} models and {counts} table sizes: {n} per cell. Effect and p agree
with this number and with few others: at g = {size}, p would be {fits} (and {p} at
g = 0.113, which rounds to the published value).

- The interval for g is [{low}, {high}].
- An effect smaller than {found} standard deviations had a chance of less than 80 % of being found
  ({found_90} for 90 %). For rewards with a standard deviation of {sd} between episodes this is {in_reward}.
- Equivalence is not shown either: differences up to half a standard deviation are not excluded (two one-sided
  tests, p = {p_half}); differences of 0.65 are (p = {p_65}).

So Symposium would call it INCONCLUSIVE: no *large* improvement was found, and a moderate one was not ruled out.
"p = {p}" is not "no effect".

| true effect (sd) | in reward, sd {sd} | power with {n} episodes per arm | episodes per arm for 80 % |
|---|---|---|---|
{powers}

To show with 80 % power that there is *no* effect beyond a margin, if there is none at all, takes {margins} episodes
per arm for margins of 0.5, 0.3 and 0.2 standard deviations.

Three tests at 5 % each would give at least one false positive with probability {alarm} %; Holm's correction keeps it
at 5 %.

## The checkpoint

If all {steps} steps were equally good and the best one had been selected by its reward on these episodes, chance alone
would have raised its result by {luck} standard errors, {lift} in reward. Tested against the base on the same episodes,
such a winner is significant in {naive} % of simulated cases instead of 5 % ([calibration](calibration.md)).
Symposium selects on one split, tests on another, and reports the difference to the last checkpoint.

## The reward

Two models reached high rewards without a single meal: DeepSeek-R1-Distill-Qwen-7B 1.0, and Mistral-Small 0.83 with five
philosophers. The second value results if 25 of 30 episodes have no deadlock, such an episode earns 1 and a deadlock 0
(an inference: 25/30 = {rate}, interval [{rate_low}, {rate_high}]). A comparison of mean rewards cannot detect this; the
audit before training and `evaluate.guards` can (a checkpoint without meals is never called improved).

A second study would need {need_half} episodes per arm for half a standard deviation, {need_fifth} for a fifth, fewer
if both arms play the same seeded tables; at least three training runs per arm; and a plan before the sweep
(`results/plan.json`).
"""


if __name__ == "__main__":
    DOC.write_text(document(), encoding="utf-8")
    print(f"wrote {DOC}")
