"""The interface of a model for batching in the transformers engine.

A rollout model has the weights of one policy, or of several on one base, and a table of *slots*, each with the
key/value cache of one token sequence.  It computes logits; it does not depend on sampling, seeds, end tokens or
requests.  There are three implementations: `decoder.FusedDecoder` (a fast copy of a policy, three architectures),
`shared_decoder.SharedDecoder` (the same for adapters on one base) and `generic_model.GenericModel` (anything that
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
    """Prompts that went through the model."""

    logits: Tensor  #: ``[prompts, vocabulary]`` fp32 at each prompt's last token
    cache: Any  #: data from which the model fills slots; None if ``keep`` was false


class RolloutModel(ABC):
    """The weights that actions are sampled from."""

    context: int  #: maximum number of tokens of prompt and action together
    vocabulary: int  #: number of logits
    device: torch.device  #: device of the logits
    refills: bool  #: slots may be filled while others are in use; otherwise only when all are free
    bytes_per_token: int = 0  #: memory that a token of a slot takes; 0 if that is not known
    live: bool = False  #: the weights are the trained model's own, so that there is nothing to copy

    @abstractmethod
    def refresh(self, state: Mapping[str, Tensor]) -> None:
        """Copy weights in (names as in the plain model's ``state_dict``; adapters already merged)."""

    def free(self) -> None:  # a small cache is kept
        """Give back memory that the next call can have again."""

    @abstractmethod
    def prefill(self, prompts: Sequence[tuple[int, ...]], keep: bool, owners: Ints | None = None) -> Prefill:
        """Run whole prompts of any lengths; ``keep`` their caches for `place`.

        ``owners``: ``[prompts]`` numbers of their policies, if the model has several.
        """

    @abstractmethod
    def reserve(self, slots: int, length: int, drawn: int) -> None:
        """Reserve space for ``slots`` sequences of up to ``length`` tokens, ``drawn`` of them behind the prompt.

        Clears all slots.
        """

    @abstractmethod
    def place(self, prefill: Prefill, rows: Ints, slots: Ints) -> None:
        """Copy prompts ``rows`` of a prefill into ``slots`` (same length)."""

    @abstractmethod
    def move(self, sources: Ints, targets: Ints, count: int) -> None:
        """Copy slots ``sources`` to ``targets`` (disjoint sets), after which slots 0..count-1 are in use."""

    @abstractmethod
    def step(self, tokens: Ints, positions: Ints, owners: Ints | None = None) -> Tensor:
        """Append one token to slots 0..len(tokens)-1 and return the next token's logits.

        Args:
            tokens: ``[active]`` token ids.
            positions: ``[active]`` place of each token in its own sequence (0 is the prompt's first token).
            owners: ``[active]`` numbers of their policies, if the model has several.

        Returns:
            ``[active, vocabulary]`` fp32.
        """
