"""The plan of the evaluation by the current settings: `preregister` writes it, and later stages compare it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pipeline_lib import evaluation
from pipeline_lib.evaluation.plan import Plan, make_plan
from pipeline_lib.evaluation.selection import select
from pipeline_lib.evaluation.verdict import summarise_test
from pipeline_lib.identity.code import code_of
from pipeline_lib.problems.splits import load_manifest
from pipeline_lib.storage import digest
from pipeline_lib.training.checkpoint_folders import planned_steps
from tasks.experiment.arms import PROBLEMS
from tasks.experiment.comparisons import comparisons, outside

if TYPE_CHECKING:
    from pipeline_lib.settings import Params

#: Settings of ``rollouts`` that determine a team's answers.
SAMPLING = ("protocol", "temperature", "top_p", "top_k", "max_new_tokens")


def plan_of(params: Params) -> Plan:
    """Return the plan that follows from the current settings and problems.

    Raises:
        EvaluationError: these settings allow no plan; the message says why.
    """
    splits = load_manifest(PROBLEMS)["splits"]
    return make_plan(
        params.evaluate,
        params.verdict,
        {seed: planned_steps(params.train)[1:] for seed in params.seeds.train},
        {split: entry["ids"] for split, entry in splits.items()},
        {split: entry["digest"] for split, entry in splits.items()},
        {
            "environment": params.environment.model_dump(mode="json"),
            "sampling": {name: getattr(params.rollouts, name) for name in SAMPLING} | _own_temperatures(params),
            "limits": params.sandbox.limits.model_dump(mode="json"),
        },
        comparisons(params),
        outside(params),
        params.seeds.single_agent,
        params.train.stop_when,
        params.train.single_agent_budget,
        _statistics(),
    )


@functools.cache
def _statistics() -> str:
    """Return the digest of the code of selection and test: whoever changes it after a look looks again."""
    files = code_of(select.__module__, summarise_test.__module__).files
    return f"code {digest({name: found for name, found in files.items() if name.startswith(evaluation.__name__)})[:16]}"


def _own_temperatures(params: Params) -> dict[str, Any]:
    own = {name: agent.temperature for name, agent in params.policy.agents.items() if agent.temperature is not None}
    return {"agents": own} if own else {}


def actual_plan(params: Params, design: Mapping[str, Any], **observed: Any) -> Plan:
    """Return the evaluation as it was done, as a plan: fields found in the results, otherwise the current settings.

    Args:
        params: the current settings.
        design: of `select` or `summarise_test`.
        observed: further fields of the plan, found in the result files.
    """
    fields = {field.name for field in dataclasses.fields(Plan)}
    found = {key: value for key, value in {**design, **observed}.items() if key in fields}
    return dataclasses.replace(plan_of(params), **found)
