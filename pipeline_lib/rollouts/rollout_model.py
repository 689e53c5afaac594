"""The interface inside the transformers engine: what batching needs from a model.

A rollout model holds a copy of one policy's weights and a table of *slots*, each with the key/value cache of one token
sequence.  It computes logits; it does not depend on sampling, seeds, end tokens or requests.  There are two
implementations: `decoder.FusedDecoder` (fast, three architectures) and `generic_model.GenericModel` (anything that
transformers loads).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class Prefill:
    """Prompts that went through the model.

    Attributes:
        logits: ``[prompts, vocabulary]`` fp32 at each prompt's last token.
        cache: whatever the model needs to place these prompts into slots; None if it was not asked to keep it.
    """

    logits: Tensor
    cache: Any


class RolloutModel(ABC):
    """Rollout copy of one policy.

    Attributes:
        context: most tokens of prompt and action together.
        vocabulary: number of logits.
        device: where logits come to lie.
        refills: slots may be filled while others are in use; otherwise only when all are free.
    """

    context: int
    vocabulary: int
    device: torch.device
    refills: bool

    @abstractmethod
    def refresh(self, state: Mapping[str, Tensor]) -> None:
        """Copy weights in (names as in the plain model's ``state_dict``; adapters already merged)."""

    @abstractmethod
    def prefill(self, prompts: Sequence[tuple[int, ...]], keep: bool) -> Prefill:
        """Run whole prompts of any lengths; ``keep`` their caches for `place`."""

    @abstractmethod
    def reserve(self, slots: int, length: int) -> None:
        """Make room for ``slots`` sequences of up to ``length`` tokens; forgets what slots held."""

    @abstractmethod
    def place(self, prefill: Prefill, rows: Ints, slots: Ints) -> None:
        """Copy prompts ``rows`` of a prefill into ``slots`` (same length)."""

    @abstractmethod
    def move(self, sources: Ints, targets: Ints, count: int) -> None:
        """Copy slots ``sources`` to ``targets`` (disjoint sets), after which slots 0..count-1 are in use."""

    @abstractmethod
    def step(self, tokens: Ints, positions: Ints) -> Tensor:
        """Append one token to slots 0..len(tokens)-1 and return the next token's logits.

        Args:
            tokens: ``[active]`` token ids.
            positions: ``[active]`` place of each token in its own sequence (0 is the prompt's first token).

        Returns:
            ``[active, vocabulary]`` fp32.
        """
