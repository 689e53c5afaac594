"""Make the base policy of a run: by supervised training on demonstrations, or a record of the pretrained model.

The embedded model is built from nothing and always trained.  A pretrained one is trained if ``policy.warm_start`` is
given, through an adapter that then becomes part of the weights, or as a whole; otherwise nothing is copied, and
``base.json`` records its identity.  The output folder is written atomically; the same settings and problems give the
same bytes on the same machine, also after an interruption.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch

from pipeline_lib.environment_api.registry import find
from pipeline_lib.policies.adapted_linear import attach
from pipeline_lib.policies.base import BASE_FILE, base_digest, own_bases
from pipeline_lib.policies.computing import compute_type, faster_type, right_threads
from pipeline_lib.policies.embedded import make_model, single_core_numerics, train_tokenizer
from pipeline_lib.policies.imitation import OnStep, Progress, encode, imitate
from pipeline_lib.policies.lora import merged_state
from pipeline_lib.policies.model_config import load_config
from pipeline_lib.policies.policy import Policy, Team
from pipeline_lib.policies.pretrained import (
    check_fit,
    describe_models,
    in_chat_template,
    load_model,
    load_tokenizer,
    recorded_revision,
)
from pipeline_lib.policies.sizes import sizes_of
from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.problems.splits import load_manifest, load_split
from pipeline_lib.sandbox.executor import make_executor
from pipeline_lib.storage import digest, new_folder, write_json

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from pipeline_lib.environment_api.task import Demonstration, Task
    from pipeline_lib.settings import Params
    from pipeline_lib.settings.policy import EmbeddedPolicy, PretrainedPolicy, WarmStart
    from pipeline_lib.settings.policy import Policy as PolicySettings


class LaterTurns(NamedTuple):
    """Demonstrations that depend on settings."""

    share: float  #: share of all demonstrations, in [0, 1]
    #: Returns them; problems, count, share of mistakes and seed as for `Task.demonstrate`.
    demonstrate: Callable[[Sequence[Any], int, float, int], Sequence[Demonstration]]


def build_base(
    settings: PolicySettings,
    problems_folder: Path,
    output: Path,
    progress: Progress | None = None,
    later: LaterTurns | None = None,
    on_step: OnStep | None = None,
) -> dict[str, Any]:
    """Make the base policy and write it to ``output``, replacing an existing folder at the end.

    Args:
        settings: the ``policy`` section.
        problems_folder: prepared problems; only the training split is demonstrated.
        output: an ordinary transformers folder (unless nothing is trained), with ``base.json`` beside the weights, and
            a folder ``agents/<name>`` for each agent whose settings make another base.  Beside it the state of an
            unfinished training is kept.
        progress: called with (done, total, text).
        later: demonstrations that depend on settings (`later_turns`).
        on_step: receives the loss of every step of the team's base.

    Returns:
        The content of ``base.json``: ``kind``, ``settings`` (a digest of what the base depends on) and facts about it.

    Raises:
        ProblemsError: the problems are missing or cannot be demonstrated.
        PolicyError: a pretrained model cannot be found.
    """
    facts: dict[str, Any] = {"kind": settings.kind}
    state = output.with_name(f".{output.name}.unfinished")
    with new_folder(output) as folder:
        if settings.kind == "pretrained":
            facts["models"] = describe_models(settings, progress)
            if settings.dtype == "auto":
                sizes = [sizes_of(load_config(model, settings.revision) or {}) for model in settings.models]
                facts["dtype"] = faster_type(max(sizes, key=lambda one: one.parameters))
            if settings.warm_start is not None:
                facts |= _build_pretrained(settings, facts, problems_folder, folder, state, progress, later, on_step)
        else:
            facts |= _build_embedded(settings, problems_folder, folder, state / "team", progress, later, on_step)
            for name, section in own_bases(settings).items():
                place, named = folder / "agents" / name, _named(progress, name)
                own = _build_embedded(section, problems_folder, place, state / name, named, later)
                facts[f"parameters/{name}"] = own["parameters"]
        facts["settings"] = base_digest(settings)
        write_json(folder / BASE_FILE, facts)
    shutil.rmtree(state, ignore_errors=True)
    return facts


def _named(progress: Progress | None, agent: str) -> Progress | None:
    return progress and (lambda done, total, text: progress(done, total, f"{agent}: {text}"))


def _build_embedded(
    settings: EmbeddedPolicy,
    problems_folder: Path,
    folder: Path,
    state: Path,
    progress: Progress | None,
    later: LaterTurns | None,
    on_step: OnStep | None = None,
) -> dict[str, Any]:
    """Train one base on demonstrations, write it to ``folder``, and return facts about it."""
    environment, problems = _to_demonstrate(problems_folder)
    demonstrations = _demonstrations(environment, problems, settings.warm_start, settings.seed, later)
    with single_core_numerics():
        prompts = environment.prompts(problems)
        corpus = [text for d in demonstrations for text in (d.observation, d.action, *(t for _, t in d.calls))]
        tokenizer = train_tokenizer([*corpus, *prompts], settings.vocabulary, settings.context)
        others = [*load_split(problems_folder, "validation"), *load_split(problems_folder, "test")]
        _check_room([*prompts, *environment.prompts(others)], tokenizer, settings.context)
        model = make_model(settings, tokenizer)
        policy = Policy("base", model, tokenizer)
        examples = encode(demonstrations, policy)
        losses = imitate(policy, examples, settings.warm_start, settings.seed, state, torch.float32, progress, on_step)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return {
        "kind": settings.kind,
        **_trained(problems, losses, demonstrations),
        "parameters": model.num_parameters(),
        "vocabulary": len(tokenizer),
    }


def _build_pretrained(
    settings: PretrainedPolicy,
    facts: dict[str, Any],
    problems_folder: Path,
    folder: Path,
    state: Path,
    progress: Progress | None,
    later: LaterTurns | None,
    on_step: OnStep | None,
) -> dict[str, Any]:
    """Train a pretrained model on demonstrations, write all its weights to ``folder``, and return facts about it."""
    warm = settings.warm_start
    assert warm is not None
    environment, problems = _to_demonstrate(problems_folder)
    demonstrations = _demonstrations(environment, problems, warm, warm.seed, later)
    path = settings.models[0]
    revision = recorded_revision(path, facts)
    compute = compute_type(settings, facts)
    tokenizer = load_tokenizer(path, revision)
    # weights that are trained stay float32: an update of bfloat16 weights is mostly rounded away
    whole = settings.adapter.kind == "none"
    loaded = load_model(path, revision, torch.float32 if whole else compute, settings.attention)
    check_fit(path, loaded, tokenizer)
    loaded = cast("PreTrainedModel", cast(Any, loaded).to("cuda" if torch.cuda.is_available() else "cpu"))
    model: Any = loaded
    if settings.adapter.kind == "lora":
        model = attach(loaded, settings.adapter, "base", warm.seed)
    if settings.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    policy = Policy("base", model, tokenizer, in_chat_template(settings, tokenizer), settings.stop_strings)
    examples = encode(demonstrations, policy)
    with right_threads(Team({"base": policy}, {})):
        losses = imitate(policy, examples, warm, warm.seed, state, compute, progress, on_step)
        loaded.save_pretrained(folder, state_dict=merged_state(policy))
    tokenizer.save_pretrained(folder)
    return {**_trained(problems, losses, demonstrations), "parameters": loaded.num_parameters()}


def _to_demonstrate(problems_folder: Path) -> tuple[Task, Sequence[Any]]:
    """Return the environment of prepared problems, and its training problems."""
    return find(load_manifest(problems_folder)["environment"]), load_split(problems_folder, "train")


def _trained(
    problems: Sequence[Any], losses: Sequence[float], demonstrations: Sequence[Demonstration]
) -> dict[str, Any]:
    """Return the facts about a training."""
    tail = losses[-50:]
    return {
        "problems": digest([problem.id for problem in problems]),
        "steps": len(losses),
        "demonstrations": len(demonstrations),
        "first_loss": round(losses[0], 6),
        "last_loss": round(sum(tail) / len(tail), 6),
    }


def _demonstrations(
    environment: Task, problems: Sequence[Any], warm: WarmStart, seed: int, later: LaterTurns | None
) -> Sequence[Demonstration]:
    """Return the demonstrations of the environment, with those that depend on settings mixed in if there are any.

    Raises:
        ProblemsError: the environment has none.
    """
    count = warm.steps * warm.batch
    wanted = 0 if later is None else round(count * later.share)
    try:
        following = later.demonstrate(problems, wanted, warm.mistakes, seed) if later is not None and wanted else ()
        missing = count - len(following)
        first = environment.demonstrate(problems, missing, warm.mistakes, seed) if missing else ()
    except ValueError as error:
        raise ProblemsError(f"policy.warm_start: {error}") from None
    if not following:
        return first
    mixed = [*first, *following]
    random.Random(digest(["turns", seed])).shuffle(mixed)
    return mixed


def _check_room(observations: Sequence[str], tokenizer: PreTrainedTokenizerBase, context: int) -> None:
    longest = max((len(ids) for ids in tokenizer(list(observations))["input_ids"]), default=0) if observations else 0
    if longest >= context:
        raise ProblemsError(
            f"policy.context: the longest observation takes {longest} tokens, but the context holds {context}; set it "
            f"to {longest} and rollouts.max_new_tokens at least"
        )


def later_turns(params: Params) -> LaterTurns | None:
    """Return the demonstrations that depend on settings, such as those of later turns; None if none do."""
    settings, sandbox, warm = params.environment, params.sandbox, params.policy.warm_start
    task: Any = find(settings.kind)
    if warm is None or not task.has_later_turns(params):
        return None
    share = 1.0 if task.all_follow_settings(params) else warm.later_turns
    shown = partial(task.demonstrate_later, settings=settings, executor=lambda: make_executor(sandbox))
    return LaterTurns(share, shown)
