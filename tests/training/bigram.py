"""A language model whose next token depends on the last one only (a table of logits): gradients in closed form."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from pipeline_lib.policies.policy import Policy
from pipeline_lib.rollouts.engine import Sampling
from pipeline_lib.settings.train import TrainSettings
from pipeline_lib.training.learners import make_learners
from pipeline_lib.training.update import Learner
from tests.training.conftest import make_settings


class Bigram(nn.Module):
    """Logits of the next token are a row of ``table``, shape (vocabulary, vocabulary)."""

    def __init__(self, vocabulary: int = 4) -> None:
        super().__init__()
        values = torch.randn((vocabulary, vocabulary), generator=torch.Generator().manual_seed(3))
        self.table = nn.Parameter(values)
        self.base_model_prefix = "model"
        self.calls: list[int] = []

    def get_output_embeddings(self) -> None:
        return None

    def forward(self, input_ids: torch.Tensor, use_cache: bool = False) -> Any:
        self.calls.append(input_ids.numel())
        return SimpleNamespace(logits=self.table[input_ids])


def bigram_learner(sampling: Sampling = Sampling(), model: Bigram | None = None, **changes: Any) -> Learner:  # noqa: B008
    """Return a learner of a bigram policy; its optimiser is real, its tokenizer is not needed."""
    from pipeline_lib.policies.policy import Team

    settings: TrainSettings = make_settings(**changes)
    policy = Policy("team", model or Bigram(), None)  # type: ignore[arg-type]
    return make_learners(settings, sampling, Team({"team": policy}, {}), None, None)[0]
