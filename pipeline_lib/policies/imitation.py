"""Supervised training on demonstrations: only the tokens of the action and its end count in the loss.

One loop for every model.  A killed training continues from its last saved state to the same bits: the only
random draw is the order of the batches, and the state holds all that the optimiser knows.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy

from pipeline_lib.memory import SMALL_MODEL, WARM_START_TOKENS
from pipeline_lib.policies.trained_model import bound_memory, without_dropout
from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.storage import CorruptFileError, digest, file_digest, new_folder, read_json, write_json

if TYPE_CHECKING:
    from pipeline_lib.environment_api.task import Demonstration
    from pipeline_lib.policies.policy import Policy
    from pipeline_lib.settings.policy import WarmStart

logger = logging.getLogger(__name__)

Progress = Callable[[int, int, str], None]

OnStep = Callable[[int, dict[str, float]], None]
"""Called after a step with its number and metrics; from the first step again where a training continues."""

Example = tuple[list[int], int]  # token ids, number of them that are the prompt

_WARM_UP_STEPS = 20
_DECAY_SHARE = 0.3
_BUCKET_BATCHES = 16
_REPORT_EVERY = 10
#: Seconds between two saved states.
_SAVE_EVERY = 60.0
_WEIGHTS, _RECORD = "state.safetensors", "state.json"


def encode(demonstrations: Sequence[Demonstration], policy: Policy) -> list[Example]:
    """Return the token ids of examples: prompt, action (encoded separately, as in rollouts), and what ends it.

    Calls of tools and their results are part of the prompt, as in rollouts.

    Raises:
        ProblemsError: one is longer than the model's context.
    """
    prompts = {text: list(policy.encode(text)) for text in dict.fromkeys(d.observation for d in demonstrations)}
    texts = list(dict.fromkeys(text for d in demonstrations for text in (d.action, *(call for call, _ in d.calls))))
    tokenize: Any = policy.tokenizer
    actions = dict(zip(texts, tokenize(texts, add_special_tokens=False)["input_ids"], strict=True))
    end = _end_of_action(policy)
    examples: list[Example] = []
    for d in demonstrations:
        prompt = list(prompts[d.observation])
        for call, result in d.calls:
            said = (*actions[call], *end)
            prompt += [*said, *policy.encode_result(said, result, d.tool_tokens)]
        examples.append(([*prompt, *actions[d.action], *end], len(prompt)))
    longest = max(len(ids) for ids, _ in examples)
    if policy.context is not None and longest > policy.context:
        raise ProblemsError(
            f"policy.context: a demonstration takes {longest} tokens, but the context holds {policy.context}; "
            "set it higher, or use easier problems.levels"
        )
    return examples


def _end_of_action(policy: Policy) -> list[int]:
    """Return the end token, or the first stop string of a model that has none."""
    if policy.tokenizer.eos_token_id is not None:
        return [int(policy.tokenizer.eos_token_id)]
    if not policy.stop_strings:
        raise ProblemsError("policy.stop_strings: the model has no end token, so no action would end; set them")
    tokenize: Any = policy.tokenizer
    return list(tokenize(policy.stop_strings[0], add_special_tokens=False)["input_ids"])


def imitate(
    policy: Policy,
    examples: Sequence[Example],
    settings: WarmStart,
    seed: int,
    state: Path,
    compute: torch.dtype = torch.float32,
    progress: Progress | None = None,
    on_step: OnStep | None = None,
) -> list[float]:
    """Run AdamW over the examples once, and leave the policy in evaluation mode.

    Args:
        policy: what is trained: the parameters that require a gradient, in float32.
        examples: ``settings.steps * settings.batch`` of them.
        settings: steps, batch and learning rate.
        seed: of the order of batches.
        state: folder of the state of an unfinished training, which the same arguments continue; the caller removes it.
        compute: type of the forward pass.
        progress: called with (done, total, text).
        on_step: see `OnStep`.

    Returns:
        The loss of every step, in nats per token.
    """
    parameters = dict(policy.trainable())
    optimiser = torch.optim.AdamW(parameters.values(), lr=1.0, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    large = sum(p.numel() for p in policy.model.parameters()) > SMALL_MODEL
    most = WARM_START_TOKENS if large else None
    kept = _State(state, _identity(examples, settings, seed, parameters, compute), parameters, optimiser)
    losses = kept.load()
    for step, loss in enumerate(losses):
        if on_step is not None:
            on_step(step + 1, {"warm_start/loss": loss})
    device = next(iter(parameters.values())).device
    saved = time.monotonic()
    without_dropout(policy.model)
    bound_memory(policy.model)
    for step, batch in enumerate(batches(examples, settings.batch, seed)):
        if step < len(losses):
            continue
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * schedule(step, settings.steps)
        counted, total = sum(len(ids) - prompt for ids, prompt in batch), 0.0
        for piece in pieces(batch, most):
            with torch.autocast(device.type, compute, enabled=compute != torch.float32):
                mean = loss_of(policy.model, piece)
            share = mean * (sum(len(ids) - prompt for ids, prompt in piece) / counted)
            share.backward()
            total += share.item()
        torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        losses.append(total)
        if on_step is not None:
            on_step(step + 1, {"warm_start/loss": total})
        if progress is not None and (large or (step + 1) % _REPORT_EVERY == 0 or step + 1 == settings.steps):
            progress(step + 1, settings.steps, f"warm start: loss {total:.3f}")
        if time.monotonic() - saved >= _SAVE_EVERY and step + 1 < settings.steps:
            kept.save(losses)
            saved = time.monotonic()
    policy.model.eval()
    return losses


def loss_of(model: Any, batch: Sequence[Example]) -> torch.Tensor:
    """Return the mean negative log-probability of action and end tokens.

    Rows are padded on the right, so causal attention hides the padding; logits are computed only at positions that
    predict a counted token, unless the model changes them after its output layer.
    """
    causal = model.get_base_model() if hasattr(model, "get_base_model") else model
    device = next(causal.parameters()).device
    width = max(len(ids) for ids, _ in batch)
    ids = torch.zeros(len(batch), width, dtype=torch.long)  # [rows, width]
    counted = torch.zeros(len(batch), width, dtype=torch.bool)  # [rows, width]
    for row, (tokens, prompt) in enumerate(batch):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        counted[row, prompt : len(tokens)] = True
    ids, counted = ids.to(device), counted.to(device)
    config = causal.config.get_text_config()
    if getattr(config, "final_logit_softcapping", None) or getattr(config, "logit_scale", None):
        logits = causal(input_ids=ids, use_cache=False).logits[:, :-1][counted[:, 1:]]
    else:
        decoder = getattr(causal, causal.base_model_prefix)
        hidden = decoder(input_ids=ids, use_cache=False).last_hidden_state  # [rows, width, hidden]
        logits = causal.get_output_embeddings()(hidden[:, :-1][counted[:, 1:]])  # [counted tokens, vocabulary]
    return cross_entropy(logits.float(), ids[counted])


def pieces(batch: Sequence[Example], most: int | None) -> Iterator[Sequence[Example]]:
    """Yield a batch in parts of at most ``most`` tokens with padding; None: in one."""
    if most is None:
        yield batch
        return
    part: list[Example] = []
    for example in batch:
        if part and max(len(ids) for ids, _ in (*part, example)) * (len(part) + 1) > most:
            yield part
            part = []
        part.append(example)
    yield part


def batches(examples: Sequence[Example], size: int, seed: int) -> Iterator[list[Example]]:
    """Yield batches of examples with similar lengths, to save padding, in random order."""
    rng = random.Random(digest(["batches", seed]))
    for start in range(0, len(examples), size * _BUCKET_BATCHES):
        bucket = sorted(examples[start : start + size * _BUCKET_BATCHES], key=lambda example: len(example[0]))
        found = [bucket[first : first + size] for first in range(0, len(bucket), size)]
        rng.shuffle(found)
        yield from found


def schedule(step: int, steps: int) -> float:
    """Return the learning rate as a share of its peak: linear warm-up, constant, linear decay to the end."""
    warm_up = min(_WARM_UP_STEPS, max(1, steps // 10))
    decay = max(1, round(steps * _DECAY_SHARE))
    return min(1.0, (step + 1) / warm_up, (steps - step) / decay)


def _identity(
    examples: Sequence[Example],
    settings: WarmStart,
    seed: int,
    parameters: Mapping[str, torch.Tensor],
    compute: torch.dtype,
) -> str:
    """Return a digest of all that a state must agree with; of the first weights, so also of the model."""
    sha = hashlib.sha256(json.dumps([settings.model_dump(), seed, str(compute), examples]).encode())
    for name, value in parameters.items():
        sha.update(f"{name} {list(value.shape)} {float(value.detach().double().sum())}".encode())
    return sha.hexdigest()


@dataclass
class _State:
    """The state of an unfinished training in a folder: weights, moments and losses, with what they belong to."""

    folder: Path
    identity: str
    parameters: Mapping[str, torch.nn.Parameter]
    optimiser: torch.optim.Optimizer

    def save(self, losses: Sequence[float]) -> None:
        """Write the state after the steps with these losses."""
        tensors = {f"weight.{name}": value.detach().contiguous() for name, value in self.parameters.items()}
        moments = self.optimiser.state_dict()["state"]
        for (name, _), number in zip(self.parameters.items(), sorted(moments), strict=True):
            tensors |= {f"{key}.{name}": value.contiguous() for key, value in moments[number].items()}
        with new_folder(self.folder) as folder:
            save_file(tensors, folder / _WEIGHTS)
            record = {"of": self.identity, "losses": list(losses), "weights": file_digest(folder / _WEIGHTS)}
            write_json(folder / _RECORD, record)

    def load(self) -> list[float]:
        """Load the state, if there is an intact one of this training, and return the losses of its steps."""
        try:
            record = read_json(self.folder / _RECORD)
            if record["of"] != self.identity:
                return []
            if record["weights"] != file_digest(self.folder / _WEIGHTS):
                raise CorruptFileError(f"{self.folder / _WEIGHTS}: not what was saved")
        except FileNotFoundError:
            return []
        except (CorruptFileError, KeyError) as error:
            logger.warning("%s; the warm start begins again", error)
            shutil.rmtree(self.folder)
            return []
        tensors = load_file(self.folder / _WEIGHTS)
        moments = {
            number: {key: tensors[f"{key}.{name}"] for key in ("step", "exp_avg", "exp_avg_sq")}
            for number, name in enumerate(self.parameters)
        }
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(tensors[f"weight.{name}"])
        self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": moments})
        losses: list[float] = record["losses"]
        return losses
