"""Make the base policy of a run: the embedded model by supervised training, or a record of the pretrained model.

Training imitates demonstrations; only the tokens of the action and its end token count in the loss.  The output folder
is written atomically; the same settings and problems give the same bytes on the same machine.  For a pretrained policy
nothing is copied: ``base.json`` records its identity.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import cross_entropy

from pipeline_lib.environment_api.registry import find
from pipeline_lib.policies.base import BASE_FILE, base_digest, own_bases
from pipeline_lib.policies.embedded import make_model, single_core_numerics
from pipeline_lib.policies.tokenizer import train_tokenizer
from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.problems.splits import load_manifest, load_split
from pipeline_lib.storage import digest, new_folder, write_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Qwen3ForCausalLM

    from pipeline_lib.environment_api.task import Demonstration, Task
    from pipeline_lib.settings.policy import EmbeddedPolicy, Policy

Progress = Callable[[int, int, str], None]

LaterTurns = Callable[["Sequence[Any]", int, float, int], "Sequence[Demonstration]"]
"""Returns demonstrations of later turns: problems, count, share of mistakes and seed as for `Task.demonstrate`."""

_WARM_UP_STEPS = 20
_DECAY_SHARE = 0.3
_BUCKET_BATCHES = 16
_REPORT_EVERY = 10

Example = tuple[list[int], int]  # token ids, number of them that are the prompt


def build_base(
    settings: Policy,
    problems_folder: Path,
    output: Path,
    progress: Progress | None = None,
    later: LaterTurns | None = None,
) -> dict[str, Any]:
    """Make the base policy and write it to ``output``, replacing an existing folder at the end.

    Args:
        settings: the ``policy`` section.
        problems_folder: prepared problems; only the training split is demonstrated.
        output: an ordinary transformers folder (embedded), with ``base.json`` beside the weights, and a folder
            ``agents/<name>`` for each agent whose settings make another base.
        progress: called with (done, total, text).
        later: demonstrates later turns (`pipeline_lib.assembly.demonstrating`); without it the first turn only.

    Returns:
        The content of ``base.json``: ``kind``, ``settings`` (a digest of what the base depends on) and facts about it.

    Raises:
        ProblemsError: the problems are missing or cannot be demonstrated.
        PolicyError: a pretrained model cannot be found.
    """
    facts: dict[str, Any]
    if settings.kind == "pretrained":
        from pipeline_lib.policies.pretrained import describe_models

        facts = {
            "kind": settings.kind,
            "settings": base_digest(settings),
            "models": describe_models(settings, progress),
        }
        with new_folder(output) as folder:
            write_json(folder / BASE_FILE, facts)
        return facts
    with new_folder(output) as folder:
        facts = _build_embedded(settings, problems_folder, folder, progress, later)
        for name, section in own_bases(settings).items():
            own = _build_embedded(section, problems_folder, folder / "agents" / name, _named(progress, name), later)
            facts[f"parameters/{name}"] = own["parameters"]
        facts["settings"] = base_digest(settings)
        write_json(folder / BASE_FILE, facts)
    return facts


def _named(progress: Progress | None, agent: str) -> Progress | None:
    return progress and (lambda done, total, text: progress(done, total, f"{agent}: {text}"))


def _build_embedded(
    settings: EmbeddedPolicy, problems_folder: Path, folder: Path, progress: Progress | None, later: LaterTurns | None
) -> dict[str, Any]:
    """Train one base on demonstrations, write it to ``folder``, and return facts about it."""
    environment = find(load_manifest(problems_folder)["environment"])
    problems = load_split(problems_folder, "train")
    warm = settings.warm_start
    try:
        demonstrations = _demonstrations(environment, problems, settings, later)
    except ValueError as error:
        raise ProblemsError(f"policy.warm_start: {error}") from None
    with single_core_numerics():
        prompts = environment.prompts(problems)
        corpus = [text for d in demonstrations for text in (d.observation, d.action)]
        tokenizer = train_tokenizer([*corpus, *prompts], settings.vocabulary, settings.context)
        others = [*load_split(problems_folder, "validation"), *load_split(problems_folder, "test")]
        _check_room([*prompts, *environment.prompts(others)], tokenizer, settings.context)
        model = make_model(settings, tokenizer)
        losses = _train(model, _encode(demonstrations, tokenizer, settings.context), settings, progress)
    tail = losses[-50:]
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return {
        "kind": settings.kind,
        "problems": digest([problem.id for problem in problems]),
        "steps": warm.steps,
        "demonstrations": len(demonstrations),
        "first_loss": round(losses[0], 6),
        "last_loss": round(sum(tail) / len(tail), 6),
        "parameters": model.num_parameters(),
        "vocabulary": len(tokenizer),
    }


def _demonstrations(
    environment: Task, problems: Sequence[Any], settings: EmbeddedPolicy, later: LaterTurns | None
) -> Sequence[Demonstration]:
    """Return the demonstrations of the first turn, with those of later turns mixed in if there are any."""
    warm = settings.warm_start
    count = warm.steps * warm.batch
    share = round(count * warm.later_turns)
    following = later(problems, share, warm.mistakes, settings.seed) if later is not None and share else ()
    first = environment.demonstrate(problems, count - len(following), warm.mistakes, settings.seed)
    if not following:
        return first
    mixed = [*first, *following]
    random.Random(digest(["turns", settings.seed])).shuffle(mixed)
    return mixed


def _check_room(observations: Sequence[str], tokenizer: PreTrainedTokenizerBase, context: int) -> None:
    longest = max((len(ids) for ids in tokenizer(list(observations))["input_ids"]), default=0) if observations else 0
    if longest >= context:
        raise ProblemsError(
            f"policy.context: the longest observation takes {longest} tokens, but the context holds {context}; set it "
            f"to {longest} and rollouts.max_new_tokens at least"
        )


def _encode(demonstrations: Sequence[Demonstration], tokenizer: PreTrainedTokenizerBase, context: int) -> list[Example]:
    """Return the token ids of examples: observation, action (encoded separately, as in rollouts), end token."""
    texts = list(dict.fromkeys(text for d in demonstrations for text in (d.observation, d.action)))
    ids: dict[str, list[int]] = dict(zip(texts, tokenizer(texts)["input_ids"], strict=True))
    end = tokenizer.eos_token_id
    examples = [([*ids[d.observation], *ids[d.action], end], len(ids[d.observation])) for d in demonstrations]
    longest = max(len(ids) for ids, _ in examples)
    if longest > context:
        raise ProblemsError(
            f"policy.context: a demonstration takes {longest} tokens, but the context holds {context}; "
            "set it higher, or use easier problems.levels"
        )
    return examples


def _train(
    model: Qwen3ForCausalLM, examples: list[Example], settings: EmbeddedPolicy, progress: Progress | None
) -> list[float]:
    """Run AdamW over the examples once; return the loss (nats per token) of every step."""
    steps = settings.warm_start.steps
    optimiser = torch.optim.AdamW(model.parameters(), lr=1.0, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    losses: list[float] = []
    model.train()
    for step, batch in enumerate(_batches(examples, settings.warm_start.batch, settings.seed)):
        for group in optimiser.param_groups:
            group["lr"] = settings.warm_start.learning_rate * _schedule(step, steps)
        loss = _loss(model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        losses.append(loss.item())
        if progress is not None and ((step + 1) % _REPORT_EVERY == 0 or step + 1 == steps):
            progress(step + 1, steps, f"warm start: loss {losses[-1]:.3f}")
    model.eval()
    return losses


def _loss(model: Qwen3ForCausalLM, batch: Sequence[Example]) -> torch.Tensor:
    """Return the mean negative log-probability of action and end tokens.

    Rows are padded on the right, so causal attention hides the padding; logits are computed only at positions that
    predict a counted token.
    """
    width = max(len(ids) for ids, _ in batch)
    ids = torch.zeros(len(batch), width, dtype=torch.long)  # [rows, width]
    counted = torch.zeros(len(batch), width, dtype=torch.bool)  # [rows, width]
    for row, (tokens, prompt) in enumerate(batch):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        counted[row, prompt : len(tokens)] = True
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state  # [rows, width, hidden]
    logits = model.lm_head(hidden[:, :-1][counted[:, 1:]])  # [counted tokens, vocabulary]
    return cross_entropy(logits, ids[counted])


def _batches(examples: list[Example], size: int, seed: int) -> Iterator[list[Example]]:
    """Yield batches of examples with similar lengths, to save padding, in random order."""
    rng = random.Random(digest(["batches", seed]))
    for start in range(0, len(examples), size * _BUCKET_BATCHES):
        bucket = sorted(examples[start : start + size * _BUCKET_BATCHES], key=lambda example: len(example[0]))
        batches = [bucket[first : first + size] for first in range(0, len(bucket), size)]
        rng.shuffle(batches)
        yield from batches


def _schedule(step: int, steps: int) -> float:
    """Return the learning rate as a share of its peak: linear warm-up, constant, linear decay to the end."""
    warm_up = min(_WARM_UP_STEPS, max(1, steps // 10))
    decay = max(1, round(steps * _DECAY_SHARE))
    return min(1.0, (step + 1) / warm_up, (steps - step) / decay)
