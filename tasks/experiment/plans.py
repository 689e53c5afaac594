"""The plan of the evaluation by the current settings: `preregister` writes it, and later stages compare it.

Here are also the teams that the selected one is compared with: their names in plan, verdict and report.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from pipeline_lib import environments, evaluation
from pipeline_lib.environment_api.registry import find, task_class
from pipeline_lib.evaluation.plan import Plan, make_plan
from pipeline_lib.evaluation.selection import select
from pipeline_lib.evaluation.verdict import (
    BASE,
    CROSS_PLAY,
    EQUAL_EFFORT,
    FIRST_TURN,
    LAST,
    SINGLE_AGENT,
    summarise_test,
)
from pipeline_lib.identity.code import OWN, code_of, named_code, references_of
from pipeline_lib.problems.splits import load_manifest
from pipeline_lib.settings import Params
from pipeline_lib.storage import digest
from pipeline_lib.training.checkpoint_folders import planned_steps
from tasks.experiment.arms import PROBLEMS
from tasks.services.caches import contents, syntaxes

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
            "code": _environment_code(params),
            "sampling": {name: getattr(params.rollouts, name) for name in SAMPLING} | _own_temperatures(params),
            "limits": params.sandbox.limits.model_dump(mode="json"),
            **({"equal_effort": effort} if (effort := params.evaluate.equal_effort) else {}),
        },
        comparisons(params),
        params.seeds.single_agent,
        params.train.single_agent_budget,
        outside=outside(params),
        stop_training_when=tuple(params.train.stop_when),
        statistics=_statistics(),
    )


@functools.cache
def _statistics() -> str:
    """Return the digest of the code of selection and test: whoever changes it after a look looks again."""
    files = code_of(select.__module__, summarise_test.__module__, memory=syntaxes()).files
    return _short({name: found for name, found in files.items() if name.startswith(evaluation.__name__)})


def _environment_code(params: Params) -> str:
    """Return the digest of the environment's code, and of code and files that its settings name: what judges episodes.

    Of this library only environments count: what else they use is the same for all.
    """
    code = named_code(task_class(params.environment.kind).__module__, syntaxes()).files
    named = references_of(params.environment, contents(), syntaxes())
    parts = [code, *named.code.values()]
    own = {name: found for part in parts for name, found in part.items() if _is_of_environments(name)}
    return _short([own, named.content])


def _is_of_environments(name: str) -> bool:
    return name.startswith(environments.__name__) or name.partition(".")[0].partition("/")[0] not in OWN


def _short(value: Any) -> str:
    return f"code {digest(value)[:16]}"


def _own_temperatures(params: Params) -> dict[str, Any]:
    temperatures = {
        name: agent.temperature for name, agent in params.policy.agents.items() if agent.temperature is not None
    }
    return {"agents": temperatures} if temperatures else {}


def actual_plan(params: Params, design: Mapping[str, Any], **observed: Any) -> Plan:
    """Return the evaluation as it was done, as a plan: fields found in the results, otherwise the current settings.

    The fields are those of ``design`` (of `select` or `summarise_test`) and others that result files hold.
    """
    fields = {field.name for field in dataclasses.fields(Plan)}
    observed_fields = {key: value for key, value in {**design, **observed}.items() if key in fields}
    return dataclasses.replace(plan_of(params), **observed_fields)


UNTRAINED_SINGLE_AGENT = "untrained single agent"

#: Names of the teams that are the untrained base with another protocol.
UNTRAINED = {
    "naive_concatenation": "untrained naive concatenation",
    "sequential_pipeline": "untrained sequential pipeline",
    "one_round_discussion": "untrained one-round discussion",
}

#: Protocols in which agents read what others wrote.
READING = ("sequential_pipeline", "one_round_discussion")


def comparisons(params: Params) -> tuple[str, ...]:
    """Return the names of the teams that the selected one is compared with, the primary first."""
    single = (SINGLE_AGENT, UNTRAINED_SINGLE_AGENT) if params.seeds.single_agent else ()
    first_turn = (FIRST_TURN,) if has_attempts(params) else ()
    mixed = (CROSS_PLAY,) if params.evaluate.cross_play else ()
    equal = (EQUAL_EFFORT,) if params.evaluate.equal_effort else ()
    untrained = (UNTRAINED[protocol] for protocol in params.evaluate.baselines)
    return (BASE, LAST, *single, *untrained, *mixed, *first_turn, *equal)


def has_attempts(params: Params) -> bool:
    """Return whether an episode can have several turns that are attempts at the same thing."""
    return getattr(params.environment, "turns", 1) > 1 and find(params.environment.kind).retries


def outside(params: Params) -> dict[str, str]:
    """Return which comparisons are not in the family, and why; settings decide this before anything is tested.

    The embedded model learns to read from the prompts of its warm start.  If no prompt quotes other agents' texts, a
    team of this model cannot read the prompts of a protocol in which agents read each other.  A win against it means
    nothing, and including it would reduce the power of the other comparisons.  The same is true of the last checkpoint
    if it is the selected one.
    """
    reasons = {LAST: "if it is the selected checkpoint in every training run, both are the same team"}
    if _cannot_read(params):
        reason = "the embedded model has never seen quoted text, so it cannot read what this protocol quotes"
        reasons |= {UNTRAINED[protocol]: reason for protocol in params.evaluate.baselines if protocol in READING}
    return reasons


def _cannot_read(params: Params) -> bool:
    return params.policy.kind == "embedded" and not find(params.environment.kind).demonstrates_reading


def family_size(params: Params) -> int:
    """Return how many comparisons the plan corrects for: all except those that are always outside the family."""
    return len(set(comparisons(params)) - set(outside(params)) | {LAST})


def notes(params: Params) -> list[str]:
    """Return notes on the baseline protocols for the reader of the report, a paragraph each."""
    environment, played = params.environment, params.evaluate.baselines
    task = find(environment.kind)
    protocol = params.rollouts.protocol
    paragraphs = []
    if protocol != "decentralised":
        paragraphs.append(f"The trained team and its base play the {UNTRAINED[protocol].removeprefix('untrained ')}.")
    if not played:
        reason = task.unsuitable("sequential_pipeline", environment) or "evaluate.baselines is empty"
        paragraphs.append(f"Baselines in which untrained agents read what others wrote are left out: {reason}.")
    if reading := [UNTRAINED[name].removeprefix("untrained ") for name in played if name in READING]:
        text = (
            f"In the {' and the '.join(reading)}, untrained agents read what others wrote; what they sample and read "
            "in every round counts as their cost."
        )
        if _cannot_read(params):
            text += (
                " This tiny model has never seen quoted text and does not read it, which a real model does; so these "
                "comparisons are outside the family, as the plan says, and get no verdict."
            )
        paragraphs.append(text)
    # The environment's notes on the base are about decentralised agents.
    return paragraphs + (task.notes(environment) if protocol == "decentralised" else [])
