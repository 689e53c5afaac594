"""AdamW for one policy: schedule, clipping, and refusal of gradients that are not finite.

Trained weights are float32, whatever the dtype of the forward pass: with bfloat16 weights most updates are smaller than
half a unit in the last place and have no effect (measured: at a learning rate of 5e-6, 92 % of weights never change).
Other dtypes are refused here.

A step whose gradient norm is not finite changes nothing and is counted; after `MAX_REFUSED` such steps in a row
training ends with an error.  No step is skipped silently.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import nn

from pipeline_lib.training.parallel import full, like

if TYPE_CHECKING:
    from pipeline_lib.policies.policy import Policy
    from pipeline_lib.settings.train import TrainSettings

#: Number of consecutive refused steps after which training ends.
MAX_REFUSED = 3


class TrainingError(RuntimeError):
    """Training cannot continue; the message gives reason and remedy.  The last checkpoint stays usable."""


def learning_rate(settings: TrainSettings, step: float) -> float:
    """Return the learning rate of an update.

    Linear warm-up over ``warmup_steps`` (the first update uses 1 / warmup_steps of the peak), then constant, or down
    to 0 just after the last step, linearly or as half a cosine.

    Args:
        settings: peak, warm-up, schedule and number of steps.
        step: number of the update, from 0; between two numbers where a budget replaces the number of steps.
    """
    peak, warmup = settings.learning_rate, settings.warmup_steps
    if step < warmup:
        return min(peak, peak * (step + 1) / warmup)
    if settings.schedule == "constant":
        return peak
    progress = (step - warmup) / max(1, settings.steps - warmup)
    if settings.schedule == "linear":
        return peak * (1 - progress)
    return peak * 0.5 * (1 + math.cos(math.pi * progress))


class PolicyOptimiser:
    """AdamW over the trainable parameters of one policy.

    Attributes:
        refused: steps refused so far because a gradient was not finite.
        refused_in_a_row: the same since the last step that was taken.
    """

    def __init__(
        self, policy: Policy, settings: TrainSettings, parameters: dict[str, nn.Parameter] | None = None
    ) -> None:
        """Make the optimiser.

        Args:
            policy: the policy.
            settings: the ``train`` section.
            parameters: trained in place of the policy's own parameters, by the same names (those of a sharded copy).

        Raises:
            TrainingError: nothing is trainable, or a trainable parameter is not float32.
        """
        self.policy = policy
        self.settings = settings
        self.parameters = dict(policy.trainable()) if parameters is None else parameters
        if not self.parameters:
            raise TrainingError(
                f"policy {policy.name!r} has no trainable parameter; load it with an adapter, or unfrozen"
            )
        for name, parameter in self.parameters.items():
            if parameter.dtype != torch.float32:
                raise TrainingError(
                    f"policy {policy.name!r}: parameter {name} is {parameter.dtype}; trained weights must be "
                    "torch.float32, or small updates are lost to rounding (the compute type is set apart)"
                )
        on_cpu = all(parameter.device.type == "cpu" for parameter in self.parameters.values())
        self.adam = torch.optim.AdamW(
            list(self.parameters.values()),
            lr=settings.learning_rate,
            betas=settings.betas,
            eps=1e-8,
            weight_decay=settings.weight_decay,
            fused=on_cpu or None,  # one kernel for many small tensors; GPUs keep torch's own choice
        )
        self.refused = 0
        self.refused_in_a_row = 0

    def zero(self) -> None:
        """Delete the gradients."""
        self.adam.zero_grad(set_to_none=True)

    def gradients(self) -> list[torch.Tensor]:
        """Return the gradients of all parameters, in order; zeros where nothing was computed.

        If all rows were left out, the gradient is 0, and momentum still changes the weights.
        """
        for parameter in self.parameters.values():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        return [parameter.grad for parameter in self.parameters.values() if parameter.grad is not None]

    def step(self, rate: float) -> float:
        """Clip the gradient, update the weights, increment the policy's version, and delete the gradient.

        Args:
            rate: learning rate of this update.

        Returns:
            The gradient's norm before clipping; not finite if the step was refused.

        Raises:
            TrainingError: `MAX_REFUSED` steps in a row were refused.
        """
        gradients = self.gradients()
        norm = float(full(torch.nn.utils.get_total_norm(gradients)))
        if not math.isfinite(norm):
            self.zero()
            self.refused += 1
            self.refused_in_a_row += 1
            if self.refused_in_a_row >= MAX_REFUSED:
                raise TrainingError(
                    f"policy {self.policy.name!r}: the gradient was not finite in {MAX_REFUSED} steps in a row "
                    f"(learning rate {rate:g}); lower train.learning_rate or set train.gradient_clip, and start again "
                    "from the last checkpoint"
                )
            return norm
        self.refused_in_a_row = 0
        clip = self.settings.gradient_clip
        if clip > 0 and norm > clip:
            for gradient in gradients:
                gradient.mul_(clip / norm)
        for group in self.adam.param_groups:
            group["lr"] = rate
        self.adam.step()
        self.zero()
        self.policy.version += 1
        return norm

    def state(self) -> dict[str, torch.Tensor]:
        """Return first and second moments and step counts as ``<kind>/<parameter>``, unsharded and on the CPU."""
        tensors = {}
        for name, parameter in self.parameters.items():
            for kind, value in self.adam.state.get(parameter, {}).items():
                tensors[f"{kind}/{name}"] = full(value.detach()).to("cpu", copy=True).contiguous()
        return tensors

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """Restore the result of `state`; raises TrainingError if a tensor does not match a parameter of this policy."""
        self.adam.state.clear()
        for key, value in tensors.items():
            kind, _, name = key.partition("/")
            parameter = self.parameters.get(name)
            if parameter is None or (kind != "step" and value.shape != parameter.shape):
                raise TrainingError(
                    f"policy {self.policy.name!r}: optimiser state {key} fits no parameter of this policy"
                )
            own = value.clone()
            self.adam.state[parameter][kind] = own if kind == "step" else like(own, parameter)
