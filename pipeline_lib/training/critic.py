"""A centralised critic: a value function that sees what all agents observe, learned beside the team.

With h the observations of all agents in a state, a the joint action, a_-i that of all agents but i, and R the return:

    baseline ``critic``:          A   = R - V(h),            V(h)       ~ E[R | h]
    baseline ``counterfactual``:  A_i = R - V_i(h, a_-i),    V_i(h, a_-i) ~ E[R | h, a_-i]

V(h) is the critic of CoLLM-CC (arXiv 2601.21972): one for the team, in training only, so that agents still act on their
own observations.  V_i is the baseline of COMA (Foerster et al., arXiv 1705.08926, equation 4), the sum over a'_i of
pi_i(a'_i | o_i) Q(h, a'_i, a_-i).  COMA enumerates the agent's own actions, which texts do not allow; but the sum is
the expected return given what the others did, so it is learned directly, by hiding the agent's action from the critic.

**No bias.**  A baseline that does not depend on agent i's own action, given h and a_-i, leaves the expected gradient as
it is, whatever its values: E[grad log pi_i(a_i | o_i) b(h, a_-i)] = 0 (Sutton & Barto 2018, section 13.4; for teams
Foerster et al., lemma 1).  So a wrong critic costs variance and nothing else, as long as it learned from earlier
updates only: values are predicted before it sees the returns that they are compared with.  In the first update it
knows nothing, and the baseline is ``leave_one_out``.  Later it lags behind a team that learns; so what other problems
of the update earned beyond its predictions, in the same turn, is added to every baseline (`lag`).  (Public code for
2601.21972 gives the critic of several turns the agent's own action, which is biased.)

**Trace.**  R is the lambda-return (Sutton & Barto, equation 12.2; `advantages.returns_to_go`), and R - V(h) is then the
generalised advantage estimate of Schulman et al. (arXiv 1506.02438, equation 16).  A trace of 1 is the return itself;
0 is the reward plus the value of the next state, as in CoLLM-CC.  Below 1, errors of the critic bias the gradient.

**Function.**  Each text is read by the team's frozen base: the mean of its last hidden states and the last one, for an
observation, and for an action below its observation.  These, standardised, whether an action is shown, and the number
of the turn go through a network with two hidden layers (GELU).  It regresses R by mean squared error, with the
decisions' weights, by AdamW in ``passes`` over each update's experience; actions are hidden at random, all of them
half of the time and otherwise those of one agent.  Outputs are rescaled to the moving mean and deviation of returns
without changing predictions (PopArt, van Hasselt et al., arXiv 1602.07714).
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pipeline_lib.credit.plans import Aligned
from pipeline_lib.environment_api.environment import EQUAL
from pipeline_lib.memory import CRITIC_TOKENS
from pipeline_lib.play.experience import Decision, Experience
from pipeline_lib.play.roots import derive
from pipeline_lib.policies.lora import is_adapted
from pipeline_lib.policies.policy import Policy
from pipeline_lib.training.advantages import returns_to_go
from pipeline_lib.training.credit import credit, credit_by_critic
from pipeline_lib.training.optimiser import TrainingError

if TYPE_CHECKING:
    from pipeline_lib.settings.train import AdvantageSettings, TrainSettings

Floats = NDArray[np.float64]
#: Rows of a step of the optimiser.
ROWS = 256
#: Weight of an update's returns in their moving moments.
MOVING = 0.1
#: A standardised feature is cut to this many deviations.
FARTHEST = 10.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What the critic is shown of each decision."""

    observed: torch.Tensor  #: shape (decisions, agents * features), and as the last column the turn
    #: Shape (decisions, agents, features), actions below their observations; 0 where an agent did not act.
    said: torch.Tensor
    acted: torch.Tensor  #: shape (decisions, agents), 1 where an agent acted
    agents: tuple[tuple[int, ...], ...] = ()  #: for each action of each decision, the number of its agent
    order: tuple[int, ...] = ()  #: of decisions for learning, the same for any number of processes that sampled them


class Critic:
    """A value function of all agents' observations, and of the actions of the others if it gives credit.

    Attributes:
        updates: number of updates that it has learned from.
    """

    def __init__(self, settings: AdvantageSettings, reader: Policy, agents: int, seed: int) -> None:
        """Make an untrained critic.

        Args:
            settings: section ``train.advantage``.
            reader: an untrained policy of the team; its base reads the texts, and is copied if it will be trained.
            agents: largest number of agents of a problem.
            seed: of the run.
        """
        self.settings, self.seed, self.updates = settings.critic, seed, 0
        self.counterfactual = settings.baseline == "counterfactual"
        self._agents, self._reader = agents, reader
        causal: Any = reader.model
        if is_adapted(reader):
            causal = causal.get_base_model()
        decoder = getattr(causal, causal.base_model_prefix, None)
        if decoder is None:
            raise TrainingError(
                f"train.advantage.baseline {settings.baseline} reads the hidden states of the decoder, and "
                f"{type(causal).__name__} has none by itself; set baseline to mean"
            )
        self._decoder = decoder if is_adapted(reader) else copy.deepcopy(decoder).requires_grad_(False).eval()
        self._device = next(decoder.parameters()).device
        self._features = features = 2 * int(causal.config.get_text_config().hidden_size)
        inputs = agents * features + 1 + (agents * (features + 1) if self.counterfactual else 0)
        width = self.settings.width
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive("critic", seed))
            self._last = nn.Linear(width, 1)
            layers = nn.Linear(inputs, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), self._last
            self.net = nn.Sequential(*layers).to(self._device)
        nn.init.zeros_(self._last.weight)
        nn.init.zeros_(self._last.bias)
        self._adam = torch.optim.AdamW(self.net.parameters(), lr=self.settings.learning_rate, weight_decay=0.01)
        #: Mean and deviation of the features of observations and of actions; mean and mean square of returns.
        self._scales = torch.ones(2, 2, features, device=self._device)
        self._moments = torch.zeros(2, dtype=torch.float64)
        self._longest = 1  # largest number of a turn in the first update

    def read(self, decisions: Sequence[Decision], teams: Mapping[str, Sequence[str]]) -> Seen:
        """Return what the critic is shown of decisions; ``teams`` has the names of the agents by problem."""
        agents = tuple(tuple(teams[d.problem].index(name) for name in d.agents) for d in decisions)
        texts: dict[tuple[str, str | None], int] = {}

        def place(observation: str, action: str | None) -> int:
            return texts.setdefault((observation, action), len(texts))

        observed = [[place(text, None) for text in d.seen] for d in decisions]
        said: list[dict[int, int]] = [{} for _ in decisions]
        if self.counterfactual:
            for own, d, numbers in zip(said, decisions, agents, strict=True):
                own |= {i: place(d.seen[i], a.text) for i, a in zip(numbers, d.actions, strict=True)}
        vectors = self._standard(self._hidden(list(texts)), torch.tensor([action is not None for _, action in texts]))
        shape = len(decisions), self._agents, self._features
        shown, below = torch.zeros(shape, device=self._device), torch.zeros(shape, device=self._device)
        acted = torch.zeros(shape[:2], device=self._device)
        for row, (places, own) in enumerate(zip(observed, said, strict=True)):
            shown[row, : len(places)] = vectors[places]
            for number, at in own.items():
                below[row, number] = vectors[at]
                acted[row, number] = 1.0
        if not self.updates:
            self._longest = max(1, *(d.turn for d in decisions))
        turn = torch.tensor([[2 * d.turn / self._longest - 1] for d in decisions], device=self._device)
        names = [(d.problem, d.turn, *(action.text for action in d.actions)) for d in decisions]
        order = sorted(range(len(decisions)), key=names.__getitem__)
        return Seen(torch.cat([shown.flatten(1), turn], 1), below, acted, agents, tuple(order))

    @torch.no_grad()
    def values(self, seen: Seen, hidden: int | None = None) -> Floats:
        """Return V(h), or with the number of an agent V_i(h, a_-i), of every decision; shape (decisions,)."""
        shown = torch.zeros_like(seen.acted)
        if hidden is not None:
            shown = seen.acted.clone()
            shown[:, hidden] = 0.0
        raw = self.net(self._inputs(seen, shown))[:, 0].double().cpu()
        mean, deviation = self._scale()
        return np.asarray((raw * deviation + mean).numpy())

    def baselines(self, seen: Seen) -> list[tuple[float, ...]]:
        """Return the baseline of every action of every decision."""
        if not self.counterfactual:
            return [(float(v),) * len(own) for v, own in zip(self.values(seen), seen.agents, strict=True)]
        each = [self.values(seen, number) for number in range(self._agents)]
        return [tuple(float(each[number][row]) for number in own) for row, own in enumerate(seen.agents)]

    def learn(self, seen: Seen, returns: Sequence[float | None], weights: Sequence[float]) -> float:
        """Learn from an update's experience; return the weighted mean squared error of the last pass.

        Args:
            seen: of all decisions.
            returns: R of each; None is left out.
            weights: of each, > 0.
        """
        rows = [row for row in seen.order if returns[row] is not None]
        chosen = torch.tensor(rows)
        target = torch.tensor([returns[row] for row in rows], dtype=torch.float64)
        weight = torch.tensor([weights[row] for row in rows], dtype=torch.float64)
        if not rows:
            return 0.0
        self._follow(target, weight)
        mean, deviation = self._scale()
        wanted = ((target - mean) / deviation).float().to(self._device)
        share = (weight / weight.mean()).float().to(self._device)
        generator = torch.Generator().manual_seed(derive("critic", self.seed, self.updates))
        squared = 0.0
        for _ in range(self.settings.passes):
            squared = 0.0
            for part in torch.randperm(len(rows), generator=generator).split(ROWS):
                at = chosen[part].to(self._device)
                own = Seen(seen.observed[at], seen.said[at], seen.acted[at])
                found = self.net(self._inputs(own, self._hide(own.acted, generator)))[:, 0]
                loss = (share[part] * (found - wanted[part]) ** 2).mean()
                self._adam.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
                self._adam.step()
                squared += float(loss.detach()) * len(part)
        self.updates += 1
        return squared / len(rows) * deviation**2

    def state(self) -> dict[str, torch.Tensor]:
        """Return everything that it has learned, and the optimiser's moments, on the CPU."""
        found = {f"net/{name}": value for name, value in self.net.state_dict().items()}
        for number, moments in self._adam.state_dict()["state"].items():
            found |= {f"adam/{number}/{kind}": value for kind, value in moments.items()}
        found |= {"scales": self._scales, "moments": self._moments}
        found |= {"updates": torch.tensor(self.updates), "longest": torch.tensor(self._longest)}
        return {name: value.detach().to("cpu", copy=True).contiguous() for name, value in found.items()}

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Restore the result of `state`."""
        self.net.load_state_dict({k.removeprefix("net/"): v for k, v in tensors.items() if k.startswith("net/")})
        moments: dict[int, dict[str, torch.Tensor]] = {}
        for name, value in tensors.items():
            if name.startswith("adam/"):
                _, number, kind = name.split("/")
                moments.setdefault(int(number), {})[kind] = value.clone()
        self._adam.load_state_dict({**self._adam.state_dict(), "state": moments})
        self._scales = tensors["scales"].to(self._device, copy=True)
        self._moments, self.updates = tensors["moments"].clone(), int(tensors["updates"])
        self._longest = int(tensors["longest"])

    def _inputs(self, seen: Seen, shown: torch.Tensor) -> torch.Tensor:
        if not self.counterfactual:
            return seen.observed
        return torch.cat([seen.observed, (seen.said * shown[..., None]).flatten(1), shown], 1)

    def _hide(self, acted: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Return which actions are shown: none, or all but those of one agent that acted, each half of the time."""
        if not self.counterfactual:
            return acted
        draws = torch.rand((len(acted), 1 + self._agents), generator=generator).to(acted.device)
        shown = acted.clone()
        shown[torch.arange(len(acted)), (draws[:, 1:] * acted).argmax(1)] = 0.0
        return shown * (draws[:, :1] < 0.5)

    def _scale(self) -> tuple[float, float]:
        """Return mean and deviation of returns, as they moved."""
        mean, square = self._moments.tolist()
        return mean, max((square - mean**2) ** 0.5 if square > mean**2 else 0.0, 1e-3 * abs(mean), 1e-6)

    def _follow(self, returns: torch.Tensor, weights: torch.Tensor) -> None:
        """Move the moments of returns, and change the last layer so that no prediction changes."""
        share = weights / weights.sum()
        new = torch.stack([(share * returns).sum(), (share * returns**2).sum()])
        mean, deviation = self._scale()
        self._moments = new if not self.updates else (1 - MOVING) * self._moments + MOVING * new
        if not self.updates:
            return
        moved, spread = self._scale()
        with torch.no_grad():
            self._last.weight.mul_(deviation / spread)
            self._last.bias.mul_(deviation / spread).add_((mean - moved) / spread)

    def _standard(self, vectors: torch.Tensor, below: torch.Tensor) -> torch.Tensor:
        """Standardise features of observations, and of actions, by those of the first update."""
        for kind, rows in enumerate((~below, below)):
            if not self.updates and rows.any():
                deviation = vectors[rows].std(0, correction=0)
                floor = 0.1 * float(deviation.mean()) + 1e-6
                self._scales[kind] = torch.stack([vectors[rows].mean(0), deviation.clamp_min(floor)])
            mean, deviation = self._scales[kind]
            vectors[rows] = ((vectors[rows] - mean) / deviation).clamp(-FARTHEST, FARTHEST)
        return vectors

    @torch.no_grad()
    def _hidden(self, texts: Sequence[tuple[str, str | None]]) -> torch.Tensor:
        """Return the features of texts (an observation, and perhaps an action below it), shape (texts, features).

        Nothing is remembered from step to step: the last bits depend on the batch, and a run that continues must repeat
        them.
        """
        rows: list[tuple[torch.Tensor, int]] = []  # token ids, and how many at the end count for the mean
        for observation, action in texts:
            prompt = list(self._reader.encode(observation))
            below = [] if action is None else list(self._reader.tokenizer(action, add_special_tokens=False).input_ids)
            whole = (prompt + below)[-(self._reader.context or 0) :] or [0]
            rows.append((torch.tensor(whole), min(len(below), len(whole)) or len(whole)))
        order = sorted(range(len(rows)), key=lambda i: len(rows[i][0]))
        found = torch.zeros(len(rows), self._features, device=self._device)
        model: Any = self._reader.model
        with model.disable_adapter() if is_adapted(self._reader) else contextlib.nullcontext():
            while order:
                size = max(1, CRITIC_TOKENS // len(rows[order[-1]][0]))
                part, order = order[-size:], order[:-size]
                ids = nn.utils.rnn.pad_sequence([rows[i][0] for i in part], batch_first=True).to(self._device)
                ends = torch.tensor([len(rows[i][0]) for i in part], device=self._device)[:, None]
                counts = torch.tensor([rows[i][1] for i in part], device=self._device)[:, None]
                places = torch.arange(ids.shape[1], device=self._device)[None]
                counted = ((places < ends) & (places >= ends - counts)).float()[..., None]
                states = self._decoder(input_ids=ids, use_cache=False).last_hidden_state.float()
                last = states.gather(1, (ends - 1)[..., None].expand(-1, -1, states.shape[2]))[:, 0]
                found[part] = torch.cat([(states * counted).sum(1) / counts, last], 1)
        return found


def judge(
    critic: Critic, experience: Experience, teams: Mapping[str, Sequence[str]], settings: TrainSettings
) -> tuple[list[tuple[float | None, ...]], float, dict[str, float]]:
    """Return the advantages that a critic gives, then let it learn.

    Args:
        critic: of the run.
        experience: of an update, with what all agents observed (`Decision.seen`).
        teams: names of the agents by problem.
        settings: section ``train``.

    Returns:
        Advantages and the share of flat groups, as `credit.credit`; and metrics: ``critic/explained_variance`` (of the
        returns, by the values of the states), ``critic/explained_variance/<agent>`` (by what it predicted for the
        agent's own actions), both before it learned; ``critic/error``, the mean squared error that was left after; and
        ``time/critic_s``.
    """
    began = time.perf_counter()
    decisions = experience.decisions
    given = [d.reward for d in decisions], [d.parent for d in decisions], settings.discount
    gains = settings.turn_reward == "gain"
    seen = critic.read(decisions, teams)
    found: dict[str, float] = {}
    if not critic.updates:
        returns = returns_to_go(*given, gains)
        rule = settings.advantage.model_copy(update={"baseline": "leave_one_out"})
        compared, flat_share = credit(experience, returns, Aligned(), rule)
    else:
        values, baselines = critic.values(seen), critic.baselines(seen)
        returns = returns_to_go(*given, gains, values.tolist(), critic.settings.trace)
        behind = lag(decisions, returns, baselines)
        shifted = [tuple(b + shift for b in row) for row, shift in zip(baselines, behind, strict=True)]
        compared, flat_share = credit_by_critic(experience, returns, shifted, settings.advantage)
        whole = returns_to_go(*given, gains)
        places = [place for place, value in enumerate(whole) if value is not None]
        predicted: dict[str, list[tuple[int, float]]] = {"": [(place, float(values[place])) for place in places]}
        for place in places if critic.counterfactual else ():
            for agent, baseline in zip(decisions[place].agents, baselines[place], strict=True):
                predicted.setdefault(f"/{agent}", []).append((place, baseline))
        for name, pairs in predicted.items():
            true = np.array([whole[place] for place, _ in pairs], dtype=np.float64)
            weights = np.array([decisions[place].weight for place, _ in pairs])
            share = explained_variance(true, np.array([value for _, value in pairs]), weights)
            found |= {} if share is None else {f"critic/explained_variance{name}": share}
    found["critic/error"] = critic.learn(seen, returns, [d.weight for d in decisions])
    return compared, flat_share, found | {"time/critic_s": time.perf_counter() - began}


def lag(
    decisions: Sequence[Decision], returns: Sequence[float | None], baselines: Sequence[Sequence[float]]
) -> list[float]:
    """Return by how much returns exceed baselines, on average over other problems in the same turn; 0 without any.

    Both are of one decision each; a decision's own problem does not count, so a baseline with this added to it still
    does not depend on the decision's actions.
    """
    sums: dict[tuple[int, str], tuple[float, int]] = {}
    for decision, value, row in zip(decisions, returns, baselines, strict=True):
        if value is not None and row:
            for key in ((decision.turn, ""), (decision.turn, f"of {decision.problem}")):
                total, count = sums.get(key, (0.0, 0))
                sums[key] = total + value - sum(row) / len(row), count + 1
    found = []
    for decision in decisions:
        total, count = sums.get((decision.turn, ""), (0.0, 0))
        own, fewer = sums.get((decision.turn, f"of {decision.problem}"), (0.0, 0))
        found.append((total - own) / (count - fewer) if count > fewer else 0.0)
    return found


def explained_variance(returns: Floats, values: Floats, weights: Floats) -> float | None:
    """Return 1 - Var(R - V) / Var(R), weighted; None if returns do not vary.  Below 0 it is worse than a constant."""

    def variance(x: Floats) -> float:
        return float(np.average((x - np.average(x, weights=weights)) ** 2, weights=weights))

    whole = variance(returns) if len(returns) else 0.0
    if whole <= (EQUAL * max(1.0, float(np.abs(returns).max(initial=0.0)))) ** 2:
        return None
    return 1 - variance(returns - values) / whole
