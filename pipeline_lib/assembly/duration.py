"""How long each stage takes with a pretrained model: its tokens, times the pace of the model's products here.

Pace: the products of one layer and of the head are timed on this machine, with matrices of the model's shapes and type,
for the rows that are sampled at the same time and for a stretch of `READ` tokens.  Everything else (attention, drawing,
tests, Python) is the factor `REST`, measured with SmolLM2-135M on two cores.

Tokens: every action is counted with all ``rollouts.max_new_tokens``, so that a run rather ends before than after.
"""

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from pipeline_lib.assembly.memory import longest_prompt, policy_names
from pipeline_lib.assembly.memory_check import expected_problems
from pipeline_lib.environment_api.registry import find
from pipeline_lib.memory import SMALL_MODEL
from pipeline_lib.policies.computing import faster_type
from pipeline_lib.policies.sizes import Sizes, known_sizes
from pipeline_lib.problems.splits import SPLITS
from pipeline_lib.settings import Params

#: Tokens of one timed stretch of a prompt or of an update.
READ = 1024
#: Seconds of a step of sampling or of a stretch, beside those of its products.
REST = 1.7
#: N threads are N to this power times as fast as one, as two were on that machine.
GAIN = 0.75
#: Times that a token of an update passes through the layers: forward, forward again (checkpointing), backward.
PASSES = 3.0
#: Actions that are sampled at the same time at most, for the pace.
ROWS = 64
#: Problems of a split that is not prepared yet and whose size no setting gives.
UNKNOWN_SIZE = 100
#: Seconds in which a stage starts, and in which it reads the model.
START_S = 12.0


@dataclass(frozen=True, slots=True)
class Pace:
    """The pace of one model on this machine."""

    step_s: Mapping[int, float]  #: seconds of one step of sampling, by the number of rows
    token_s: float  #: seconds in which one token of a prompt is read

    def sampled(self, actions: int, tokens: int) -> float:
        """Return the seconds in which actions of so many tokens are sampled."""
        rows = min(actions, max(self.step_s))
        step = next(seconds for count, seconds in sorted(self.step_s.items()) if count >= rows)
        return math.ceil(actions / max(rows, 1)) * tokens * step


def measured_pace(sizes: Sizes, dtype: torch.dtype) -> Pace:
    """Time the products of a model's shapes, which takes some seconds for 0.5 billion parameters.

    One thread is timed: several that wait for each other on a busy machine would look ten times as slow.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    threads = len(os.sched_getaffinity(0)) if sizes.parameters > SMALL_MODEL else 1
    try:
        layer = [torch.randn(shapes[0], dtype=dtype) for shapes in sizes.linear.values() if shapes]
        head = torch.randn(sizes.width, sizes.vocabulary, dtype=dtype)

        def products(rows: int, heads: int) -> float:
            inputs = {width: torch.randn(rows, width, dtype=dtype) for width in {len(weight) for weight in layer}}
            hidden = torch.randn(heads, sizes.width, dtype=dtype)
            return sizes.depth * _seconds(lambda: [inputs[len(weight)] @ weight for weight in layer]) + _seconds(
                lambda: hidden @ head
            )

        with torch.inference_mode():
            factor = REST / threads**GAIN
            steps = {rows: factor * products(rows, rows) for rows in (1, 8, ROWS)}
            return Pace(steps, factor * products(READ, READ // 4) / READ)
    finally:
        torch.set_num_threads(before)


def _seconds(work: Callable[[], object]) -> float:
    """Return the processor's seconds of the shortest of three timings, after one that does not count.

    Not those of a clock: a process that waits for busy cores took thirteen hours for what then took one.
    """
    work()
    timings = []
    for _ in range(3):
        began = time.thread_time()
        work()
        timings.append(time.thread_time() - began)
    return min(timings)


def stage_seconds(params: Params, prompt: int, counts: Mapping[str, int], stage: str, pace: Pace) -> float | None:
    """Return the seconds of a stage; None for one in which no model computes.

    Args:
        params: the settings.
        prompt: tokens of the longest prompt.
        counts: number of problems by split, where it is known.
        stage: name without seed, such as ``warm_start``, ``audit``, ``train``, ``sweep_single`` or ``test``.
        pace: of the largest model.
    """
    agents = len(find(params.environment.kind).agent_names(params) or ("first", "second"))
    turns = int(getattr(params.environment, "turns", 1))
    written, train, evaluate = params.rollouts.max_new_tokens, params.train, params.evaluate
    asked = getattr(params.problems, "sizes", None)
    sizes = {split: int(counts.get(split, getattr(asked, split, UNKNOWN_SIZE))) for split in SPLITS}

    def played(prompts: int, each: int) -> float:
        """Return the seconds of so many prompts with ``each`` actions, in all turns."""
        return turns * (prompts * prompt * pace.token_s + pace.sampled(prompts * each, written))

    if stage == "warm_start" and params.policy.warm_start is not None:
        start = params.policy.warm_start
        return START_S + start.steps * start.batch * (prompt + written) * PASSES * pace.token_s
    if stage == "audit":
        sides = 2 * agents + (1 if params.seeds.single_agent else 0)  # the team, each agent alone, a single agent
        return START_S + sides * played(params.audit.problems, params.audit.group_size)
    if stage in ("train", "train_single"):
        count = agents if stage == "train" else 1
        tree = sum(train.group_size**turn for turn in range(turns)) if train.groups == "tree" else turns
        prompts = count * train.problems_per_step * tree
        learned = prompts * (prompt + train.group_size * written) * PASSES * pace.token_s * train.loss.epochs
        sampled = prompts * prompt * pace.token_s + pace.sampled(prompts * train.group_size, written)
        return START_S + train.steps * (sampled + learned)
    if stage in ("sweep", "sweep_single"):
        count = agents if stage == "sweep" else 1
        checkpoints = 1 + math.ceil(train.steps / train.checkpoint_every)
        return START_S + checkpoints * played(count * sizes["validation"], evaluate.validation.samples)
    if stage == "test":
        teams = agents * (1 + 2 * len(params.seeds.train) + len(evaluate.baselines))
        single = 1 + 2 * len(params.seeds.single_agent) if params.seeds.single_agent else 0
        return START_S + (teams + single) * played(sizes["test"], evaluate.test.samples)
    return None


def seconds_of_stages(params: Params, folder: Path, stages: set[str]) -> dict[str, float]:
    """Return the seconds of these stages, by name; only of those in which a pretrained model computes on this CPU.

    Empty for embedded models, on a GPU, with other engines than this process's own, and where the model's configuration
    is not at hand yet.

    Args:
        params: the settings.
        folder: of the prepared problems, which may not be there yet.
        stages: names without seed.
    """
    if params.policy.kind != "pretrained" or params.rollouts.kind != "transformers" or torch.cuda.is_available():
        return {}
    sizes = known_sizes(params.policy, policy_names(params))
    if sizes is None:
        return {}
    largest = max(sizes.values(), key=lambda one: one.parameters)
    dtype = faster_type(largest) if params.policy.dtype == "auto" else params.policy.dtype
    pace = measured_pace(largest, getattr(torch, dtype))
    problems, counts = expected_problems(params, folder)
    prompt = longest_prompt(params, problems, sizes)
    by_stage = {stage: stage_seconds(params, prompt, counts, stage, pace) for stage in stages}
    return {stage: seconds for stage, seconds in by_stage.items() if seconds is not None}
