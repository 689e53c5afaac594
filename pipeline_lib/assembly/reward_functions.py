"""The audit of a reward function, with completions of a pretrained model if one is named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline_lib.audit.examiner import Progress
from pipeline_lib.audit.functions import MOST_ROWS, audit_functions
from pipeline_lib.audit.result import AuditResult
from pipeline_lib.audit.reward_calls import RewardFunctionError, Row, metric_of, read_rows, scorers


def audit_reward(
    reward: Any,
    problems: Any,
    *,
    metric: Any,
    solution: str | None = None,
    prompt: str | None = None,
    weights: Sequence[float] | None = None,
    reward_range: tuple[float, float] | None = None,
    model: str | None = None,
    samples: int = 4,
    longest: int = 128,
    limit: int = 16,
    progress: Progress | None = None,
) -> AuditResult:
    """Audit a reward function before a training on it.

    Args:
        reward: a function, several, a rubric with ``funcs`` and ``weights``, or names (``"module:function"``).
        problems: a table (.csv, .tsv, .jsonl, .parquet), rows by column, or a data frame.
        metric: how much of the task a completion does, in [0, 1]: a function in a reward's signature, its name, or
            ``equals:COLUMN``, ``contains:COLUMN``, ``last:COLUMN`` (last numbers are compared).
        solution: column, or template such as ``"<answer>{answer}</answer>"``, of completions that do the task; by
            default the column that does it by the metric.
        prompt: column of the prompt; by default ``prompt``, ``question``, ``problem`` or ``input``.
        weights: one per function; by default 1, or the rubric's.
        reward_range: least and greatest reward, if they are known: what no text earns of them counts as earned without
            the task.
        model: what ``policy.models`` takes; its completions are judged as the start of a training.
        samples: completions of each prompt, at least 2.
        longest: tokens of a completion, at least 1.
        limit: most problems that are played, at least 2 and at most 64; of more, as many are taken at equal distances.
        progress: called as ``progress(done, total, text)``.

    Raises:
        RewardFunctionError: functions, problems, metric or solutions do not fit together.
        ValueError: a number is too small or too great.
        PolicyError: the model cannot be loaded.
    """
    for name, value, least, most in (
        ("samples", samples, 2, 1000),
        ("longest", longest, 1, 100_000),
        ("limit", limit, 2, MOST_ROWS),
    ):
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"{name} is {value!r}; it must be an integer from {least} to {most}")
    if reward_range is not None and not reward_range[0] < reward_range[1]:
        raise RewardFunctionError(f"reward_range is {reward_range!r}; the first must be less than the second")
    every = read_rows(problems, prompt)
    chosen = min(limit, len(every))
    rows = [every[place * len(every) // chosen] for place in range(chosen)]

    def sample(played: Sequence[Row]) -> list[list[str]]:
        # Without a model, neither torch nor transformers is loaded.
        from pipeline_lib.assembly.completions import sample_model

        return sample_model(model or "", [row.text for row in played], samples, longest)

    base = sample if model is not None else None
    return audit_functions(scorers(reward, weights), metric_of(metric), rows, solution, reward_range, base, progress)
