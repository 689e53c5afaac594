"""Agents that are trained on rewards of their own: their returns against plain Python, and where that leads."""

import importlib.util
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline_lib.credit.plans import Aligned
from pipeline_lib.environment_api.environment import RewardError
from pipeline_lib.environment_kit.make import make_environment
from pipeline_lib.environments.philosophers.settings import PhilosophersSettings
from pipeline_lib.environments.philosophers.task import PhilosophersTask
from pipeline_lib.environments.philosophers.text import ACTIONS, action_name
from pipeline_lib.play.experience import Decision, Experience
from pipeline_lib.rollouts.engine import Action
from pipeline_lib.settings import SettingsError, load_params
from pipeline_lib.settings.sandbox import ProcessSandbox
from pipeline_lib.settings.train import AdvantageSettings
from pipeline_lib.training.advantages import returns_to_go
from pipeline_lib.training.credit import credit, credit_individually

ROOT = Path(__file__).parents[2]
AGENTS = ("row", "column")
TEAMS = {"a": AGENTS}
MEAN = AdvantageSettings()


def games() -> Any:
    spec = importlib.util.spec_from_file_location("matrix_games", ROOT / "docs/examples/matrix_games.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def decision(joint: float | None, own: dict[str, float], group: int, parent: int | None = None) -> Decision:
    said = (Action((8,), (-0.1,), "0", "stop"),) * len(own)
    policies, prompts = tuple(own), ((5,),) * len(own)
    made = Decision("a", 0, group, parent, 1.0, policies, prompts, said, joint, agent_rewards=own)
    made.agents = tuple(own)
    return made


def tree(seed: int) -> Experience:
    """Return two turns of groups of three, with rewards of two agents; some are lost."""
    rng = np.random.default_rng(seed)

    def draw() -> tuple[float | None, dict[str, float]]:
        own = {agent: float(rng.normal()) for agent in AGENTS}
        return (None if rng.random() < 0.1 else sum(own.values()) / 2), own

    decisions = [decision(*draw(), group=0) for _ in range(3)]
    for parent in [place for place in range(3) if decisions[place].reward is not None]:
        decisions += [decision(*draw(), group=1 + parent, parent=parent) for _ in range(3)]
    return Experience(decisions)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("share", [0.25, 1.0])
def test_an_agents_advantage_is_that_of_its_own_returns_in_its_group(seed: int, share: float) -> None:
    experience, discount = tree(seed), 0.5
    found, _ = credit_individually(experience, TEAMS, share, discount, False, MEAN)
    for number, agent in enumerate(AGENTS):
        paid = [
            None if d.reward is None else (1 - share) * d.reward + share * d.agent_rewards[agent]
            for d in experience.decisions
        ]
        returns: list[float | None] = list(paid)
        for place in (0, 1, 2):
            below = [p for p, d in zip(paid, experience.decisions, strict=True) if d.parent == place and p is not None]
            first = paid[place]
            if first is not None:
                later = any(d.parent == place for d in experience.decisions)
                returns[place] = first + discount * sum(below) / len(below) if below else None if later else first
        for place, d in enumerate(experience.decisions):
            group = [
                r for r, e in zip(returns, experience.decisions, strict=True) if e.group == d.group and r is not None
            ]
            own = returns[place]
            expected = None if own is None else own - sum(group) / len(group)
            assert found[place][number] == (None if expected is None else pytest.approx(expected, abs=1e-12))


def test_with_equal_rewards_or_one_agent_it_is_the_joint_advantage() -> None:
    rewards = [1.0, 0.0, 0.5, 0.5]
    alike = Experience([decision(r, dict.fromkeys(AGENTS, r), 0) for r in rewards])
    alone = Experience([decision(r, {"only": 99.0}, 0) for r in rewards])
    for experience, team in ((alike, AGENTS), (alone, ("only",))):
        joint = credit(experience, returns_to_go(rewards, [None] * 4, 1.0), Aligned(), MEAN)
        assert credit_individually(experience, {"a": team}, 1.0, 1.0, False, MEAN) == joint


def test_teams_of_several_sizes_train_together_and_an_agent_that_acts_alone_in_a_turn_is_paid_its_own() -> None:
    small = [decision(0.0, {"row": 1.0 * number, "column": 0.0}, group=0) for number in range(2)]
    large = [decision(0.0, {"row": 0.0, "column": 0.0, "third": 4.0 * number}, group=1) for number in range(2)]
    turns = [decision(0.0, {"row": 3.0 * number, "column": 0.0}, group=2) for number in range(2)]
    for one, problem, acting in [*((d, "b", (*AGENTS, "third")) for d in large), *((d, "a", ("row",)) for d in turns)]:
        one.problem, one.agents = problem, acting
    teams = {"a": AGENTS, "b": (*AGENTS, "third")}
    found, flat = credit_individually(Experience([*small, *large]), teams, 1.0, 1.0, False, MEAN)
    assert found == [(-0.5, 0.0), (0.5, 0.0), (0.0, 0.0, -2.0), (0.0, 0.0, 2.0)] and flat == 0.0
    assert credit_individually(Experience(turns), teams, 1.0, 1.0, False, MEAN)[0] == [(-1.5,), (1.5,)]


@pytest.mark.parametrize(
    "own",
    [
        {"row": 1.0},
        {"row": 1.0, "column": math.nan},
        {"Column": 0.0, "row": -math.inf},
        {"row": 1e30, "column": 0.0},
        {},
    ],
)
def test_an_agent_without_a_reward_of_its_own_is_named(own: dict[str, float]) -> None:
    lacking = decision(1.0, dict.fromkeys(AGENTS, 0.0), group=0)
    lacking.agent_rewards = own
    with pytest.raises(RewardError, match=r"agent (row|column) .* no number for it .*one for each of row, column"):
        credit_individually(Experience([lacking]), TEAMS, 0.5, 1.0, False, MEAN)
    lacking.reward = None  # it is lost
    assert credit_individually(Experience([lacking]), TEAMS, 0.5, 1.0, False, MEAN)[0] == [(None, None)]


def learned(table: dict[tuple[str, str], tuple[int, int]], share: float, seed: int) -> tuple[float, float]:
    """Train two softmax policies over two moves from equal chances; return how often each plays A in the end."""
    rng = np.random.default_rng(seed)
    logits = np.zeros(2)  # of A, for row and column
    for _ in range(400):
        chances = 1 / (1 + np.exp(-logits))
        plays = rng.random((16, 2)) < chances
        moves = [tuple("A" if a else "B" for a in play) for play in plays]
        decisions = [
            decision(sum(table[m]) / 2, {a: float(p) for a, p in zip(AGENTS, table[m], strict=True)}, 0) for m in moves
        ]
        found, _ = credit_individually(Experience(decisions), TEAMS, share, 1.0, False, MEAN)
        gradient = (np.array(found, dtype=float) * (plays - chances)).mean(axis=0)
        logits += 0.5 * gradient
    row, column = 1 / (1 + np.exp(-logits))
    return float(row), float(column)


def test_own_payoffs_lead_to_the_equilibrium_and_the_joint_one_to_the_best() -> None:
    module = games()
    dilemma = "AA 4 4, AB 0 5, BA 5 0, BB 1 1"
    hunt = "AA 6 6, AB 0 5, BA 5 0, BB 5 5"  # from equal chances the hare pays 5, the stag 3
    assert module.equilibria(dilemma) == [("B", "B")] and module.best(dilemma) == ("A", "A")
    assert module.equilibria(hunt) == [("A", "A"), ("B", "B")] and module.best(hunt) == ("A", "A")
    for seed in range(3):
        for text in (dilemma, hunt):
            table = module.payoffs(text)
            assert max(learned(table, 1.0, seed)) < 0.1, "each for itself: below the best"
        assert min(learned(module.payoffs(dilemma), 0.0, seed)) > 0.9, "for the team: the best"


def test_games_that_are_drawn_are_of_their_kind_and_their_rewards_agree() -> None:
    module, rng = games(), random.Random(0)
    for _ in range(200):
        dilemma, hunt = module.Prisoners().draw(rng), module.StagHunt().draw(rng)
        assert module.equilibria(dilemma) == [("B", "B")] and module.best(dilemma) == ("A", "A"), dilemma
        assert module.equilibria(hunt) == [("A", "A"), ("B", "B")] and module.best(hunt) == ("A", "A"), hunt
        for text, task in ((dilemma, module.Prisoners()), (hunt, module.StagHunt())):
            for row in ("A", "B", "what?"):
                for column in ("A", "B", ""):
                    score = task.score(text, {"row": row, "column": column})
                    mean = sum(score.agent_rewards.values()) / 2
                    assert sum(score.terms.values()) == pytest.approx(mean), "the joint reward is the mean"
                    assert 0 <= sum(score.terms.values()) <= 1


def test_each_philosophers_own_meals_add_up_to_the_joint_share() -> None:
    settings = PhilosophersSettings(reward={"kind": "terms", "weights": {"meals": 1.0}})
    task = PhilosophersTask()
    environment = make_environment(settings, ProcessSandbox())
    problem = task.make_problems(task.problems[0](sizes={"train": 1, "validation": 1, "test": 1}))["train"][0]
    state, rng = environment.start(problem), random.Random(1)
    agents = environment.agents(problem)
    joint, own, done = 0.0, dict.fromkeys(agents, 0.0), False
    while not done:
        actions = [action_name(rng.randrange(len(ACTIONS))) for _ in agents]
        (outcome,) = environment.step([state], [actions])
        assert set(outcome.agent_rewards) == set(agents)
        joint += outcome.reward
        own = {name: own[name] + outcome.agent_rewards[name] for name in agents}
        state, done = outcome.state, outcome.done
    assert joint > 0 and sum(own.values()) / len(agents) == pytest.approx(joint)
    assert joint == pytest.approx(outcome.metrics["meals_share"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{environment: writing, train: {individual_reward: 1}}", "rewards the team only"),
        ("train: {individual_reward: 1}", "set problems.kind to generated, and environment.reward to"),
        (
            "{environment: {reward: {kind: fine, contract: 0}}, train: {individual_reward: 1}}",
            "with contract above 0",
        ),
        (
            "{environment: modules, train: {individual_reward: 1, credit: {kind: latin}}}",
            "set credit: {kind: aligned}",
        ),
        ("{environment: philosophers, train: {individual_reward: 0.5, fidelity_every: 5}}", "set one of them to 0"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (file := tmp_path / "params.yaml").write_text(text)
    with pytest.raises(SettingsError, match=words):
        load_params(file, ROOT / "conf")


@pytest.mark.parametrize("measured", [False, True])
def test_a_coding_reward_of_your_own_must_have_the_helpers_contract_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: bool
) -> None:
    (tmp_path / f"own_{measured}.py").write_text(
        "from pipeline_lib.environments.coding.rewards import Reward\n\n\n"
        "class Own(Reward):\n"
        "    bounds = (0.0, 1.0)\n"
        f"    needs_contract = {measured}\n\n"
        "    def terms(self, facts):\n"
        "        return {'tests': facts.passed}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    reward = f"{{kind: custom, path: 'own_{measured}:Own'}}"
    (file := tmp_path / "params.yaml").write_text(
        f"{{environment: {{reward: {reward}}}, train: {{individual_reward: 0.5}}}}"
    )
    if measured:
        assert load_params(file, ROOT / "conf").train.individual_reward == 0.5
        return
    with pytest.raises(SettingsError, match="or to a custom one whose attribute needs_contract is True"):
        load_params(file, ROOT / "conf")
