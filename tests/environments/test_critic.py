"""The critic: an agent's own base, never what was trained, answers what the agent is shown, and nothing else."""

import contextlib
import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline_lib.assembly.teams import Setup, base_team
from pipeline_lib.assembly.training import train_team
from pipeline_lib.environment_kit.make import make_environment
from pipeline_lib.environments.coding.feedback import MAX_CRITIC, note_of
from pipeline_lib.environments.coding.runtime import CodingEnvironment
from pipeline_lib.evaluation.run import evaluate_team
from pipeline_lib.play import Experience, Player, groups, join, paired
from pipeline_lib.play.fixing import Fixed, FixedActions
from pipeline_lib.play.turn import COSTS
from pipeline_lib.policies.policy import PolicyError, Team
from pipeline_lib.policies.store import team_digest
from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.problems.splits import load_split
from pipeline_lib.protocols import Decentralised
from pipeline_lib.rollouts.engine import Action, Request, Sampling
from pipeline_lib.rollouts.transformers_engine import TransformersEngine
from pipeline_lib.settings import load_params
from pipeline_lib.settings.params import Params
from tests.environments.test_feedback import AUX, HIDDEN, MAIN, PROBLEM, Failing

ROOT = Path(__file__).parents[2]
TINY = {
    "hidden_size": 32, "layers": 1, "heads": 2, "kv_heads": 1, "mlp_size": 48, "vocabulary": 400, "context": 640,
    "warm_start": {"steps": 12, "batch": 8},
}  # fmt: skip
LARGER = {"hidden_size": 64, "layers": 2, "seed": 5}
SAMPLING = Sampling(max_new_tokens=12)
ONLY = "the untrained model would write:\n"


def settings(**policy: Any) -> Params:
    plain = load_params(ROOT / "params.yaml").model_dump(mode="json")
    plain["environment"] |= {"turns": 2, "feedback": ["tests", "critic"]}
    plain["policy"] |= {**TINY, **policy}
    plain["train"] |= {"steps": 2, "checkpoint_every": 1, "problems_per_step": 4, "group_size": 4}
    plain["problems"]["sizes"] = {"train": 16, "validation": 4, "test": 4}
    plain["rollouts"] |= {"max_new_tokens": 12}
    return Params.model_validate(plain)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the problems, and of the base of a team whose agents are alike."""
    made = tmp_path_factory.mktemp("critic")
    prepare("coding", settings().problems, made / "problems")
    build_base(settings().policy, made / "problems", made / "base")
    return made


class Recording(TransformersEngine):
    """The real engine, with a record of what bases were asked: the base, the prompt as text, and the answer."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.asked: list[tuple[str, str, Action]] = []

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[list[Action]]:
        found = super().generate(requests, sampling)
        for request, actions in zip(requests, found, strict=True):
            policy = self.policy_of(request.policy)
            if request.policy.startswith("base of "):
                assert sampling.temperature == 0
                self.asked.append((request.policy, policy.decode(request.prompt), actions[0]))
        return found


def failing(**changes: Any) -> CodingEnvironment:
    """Return the environment with a sandbox in which every program fails, so that every episode goes on."""
    section = settings().environment
    return CodingEnvironment(section.model_copy(update=changes), Failing)


def stir(team: Team) -> None:
    """Change all weights that are trained, as training does."""
    torch.manual_seed(0)
    with torch.no_grad():
        for policy in team.policies.values():
            for _, parameter in policy.trainable():
                parameter.add_(torch.randn_like(parameter))
            policy.version += 1


@contextlib.contextmanager
def playing(
    params: Params, base: Path, environment: CodingEnvironment | None = None, **engine: Any
) -> Iterator[tuple[Player, Recording]]:
    """Yield a team whose weights have moved away from its base."""
    environment = environment or failing()
    team = base_team(params, base, environment, [PROBLEM])
    stir(team)
    recording = Recording(**engine)
    recording.load(team.sampled())
    yield Player(environment, team, recording, SAMPLING), recording
    recording.close()


#: What is given in the first turn: texts whose names tell whose they are.
GIVEN = Fixed(PROBLEM, given={0: AUX, 1: MAIN})


def after_given(player: Player, samples: int = 1) -> Experience:
    """Play episodes whose first actions are `GIVEN`."""
    given = replace(player, environment=FixedActions(player.environment))
    return given.play(paired([GIVEN], samples, 1))


WAYS: dict[str, dict[str, Any]] = {
    "separate": {},
    "shared": {"parameters": "shared"},
    "lora": {"adapter": {"kind": "lora", "rank": 4}},
    "two sizes": {"agents": {"main": LARGER}},
    "frozen": {"agents": {"main": {"trained": False}}},
}


class TestTheBaseAnswers:
    @pytest.mark.parametrize("way", WAYS)
    def test_it_has_the_weights_from_before_training(self, way: str, folder: Path, tmp_path: Path) -> None:
        params = settings(**WAYS[way])
        base = folder / "base"
        if way == "two sizes":
            base = tmp_path / "base"
            build_base(params.policy, folder / "problems", base)
        untrained = base_team(params, base, failing(), [PROBLEM])
        with playing(params, base) as (player, engine):
            experience = after_given(player)
            asked = engine.asked
        plain = TransformersEngine()
        plain.load(untrained.policies)
        greedy = Sampling(temperature=0.0, max_new_tokens=SAMPLING.max_new_tokens)
        environment = player.environment
        state = environment.step([environment.start(PROBLEM)], [(AUX, MAIN)])[0].state
        second = experience.decisions[1]
        for number, agent in enumerate(("helper", "main")):
            policy = untrained.policy_of(agent)
            prompt = policy.encode(environment.observe(state, number))
            (expected,) = plain.generate([Request(policy.name, prompt, 1, 99)], greedy)[0]
            name, question, answer = asked[number]
            assert (question, answer.ids) == (policy.decode(prompt), expected.ids)
            assert name == player.team.base_of(agent).name
            told = environment.criticised(state, {number: expected.text})
            assert player.team.policy_of(agent).decode(second.prompts[number]) == environment.observe(told, number)
        for name, policy in untrained.policies.items():
            pairs = zip(policy.trainable(), player.team.policies[name].trainable(), strict=True)
            assert not any(torch.equal(before, after) for (_, before), (_, after) in pairs), "nothing was trained"

    def test_agents_with_one_base_share_it_and_an_adapter_needs_no_second_copy(self, folder: Path) -> None:
        for way, bases in (("separate", 1), ("shared", 1), ("lora", 1), ("frozen", 1)):
            team = base_team(settings(**WAYS[way]), folder / "base", failing(), [PROBLEM])
            assert len({base.name for base in team.bases.values()}) == bases
            assert not any(parameter.requires_grad for parameter in team.base_of("main").model.parameters())
        team = base_team(settings(**WAYS["lora"]), folder / "base", failing(), [PROBLEM])
        held = {parameter.data_ptr() for parameter in team.policies["main"].model.parameters()}
        assert {parameter.data_ptr() for parameter in team.base_of("main").model.parameters()} <= held

    def test_training_never_moves_it_and_its_costs_are_counted(self, folder: Path, tmp_path: Path) -> None:
        params = settings()
        steps: list[dict[str, float]] = []
        result = train_team(
            Setup(params, params.environment, Decentralised(), folder / "problems", folder / "base"), 0,
            tmp_path / "run", on_step=lambda step, metrics: steps.append(metrics),
        )  # fmt: skip
        assert result.steps == 2
        for metrics in steps:
            assert metrics["costs/critic_requests"] > 0
            assert metrics["costs/critic_prompt_tokens"] > 50 * metrics["costs/critic_requests"]
            assert 0 < metrics["costs/critic_completion_tokens"] <= 12 * metrics["costs/critic_requests"]


class TestWhatItSees:
    def test_no_hidden_test_and_nothing_of_another_agent_reaches_the_question(self, folder: Path) -> None:
        with playing(settings(), folder / "base") as (player, engine):
            after_given(player)
            helper, main = (question for _, question, _ in engine.asked)
        assert "helpers_name" in helper and "mains_name" not in helper and PROBLEM.observations["main"] not in helper
        assert "mains_name" in main and "helpers_name" not in main and PROBLEM.observations["helper"] not in main
        assert "assert candidate([1, 2, 3]) == 4: got 6, expected 4" in main
        assert not any(text in question for question in (helper, main) for text in HIDDEN)

    def test_it_does_not_read_its_own_note_of_the_same_turn_but_that_of_turns_before(self, folder: Path) -> None:
        environment = failing(turns=3, history="all")
        with playing(settings(), folder / "base", environment) as (player, engine):
            after_given(player)
            questions = [question for name, question, _ in engine.asked]
        assert [question.count("the untrained model would write") for question in questions] == [0, 0, 1, 1]

    def test_a_history_that_is_too_long_is_cut_for_it_too(self, folder: Path) -> None:
        environment = failing(turns=8, history="all")
        with playing(settings(), folder / "base", environment) as (player, engine):
            player = replace(player, environment=FixedActions(environment), sampling=Sampling(max_new_tokens=60))
            experience = player.play(paired([GIVEN], 1, 1))
            lengths = [len(player.team.base_of("main").encode(question)) for _, question, _ in engine.asked]
        assert len(experience.decisions) == 8 and len(lengths) == 14
        assert max(lengths) + 60 <= TINY["context"], "the whole history does not fit"
        assert max(decision.cut_turns for decision in experience.decisions) > 0

    def test_what_is_shown_of_an_answer_is_bounded_and_printable(self) -> None:
        assert note_of("def f():\n\treturn 1\n\n").text == f"{ONLY}def f():\n    return 1"
        assert note_of("\x1b[2Jx\u2028y").text == f"{ONLY}[2Jx\ny"
        long = note_of("y" * 5000).text
        assert len(long) == len(ONLY) + MAX_CRITIC and long.endswith("...")
        assert note_of(" \n").text == "the untrained model would write nothing"
        assert note_of("x").source == "critic"


class TestReproducible:
    def told(self, folder: Path, slots: Sequence[int] = range(4), overlap: int = 1, rows: int = 64) -> Experience:
        problems = load_split(folder / "problems", "train")[:4]
        with playing(settings(), folder / "base", rows=rows) as (player, _):
            roots = groups([problems[i] for i in slots], 3, 5, 1, slots)
            return replace(player, overlap=overlap).play(roots)

    def test_rows_parts_and_processes_change_no_note(self, folder: Path) -> None:
        whole = self.told(folder)

        def read(experience: Experience) -> list[Any]:
            return sorted((d.problem, d.turn, d.prompts, tuple(a.ids for a in d.actions)) for d in experience.decisions)

        assert any(decision.turn for decision in whole.decisions)
        for other in (self.told(folder, rows=2), self.told(folder, overlap=3)):
            assert read(other) == read(whole)
        apart = join([self.told(folder, (0, 2)), self.told(folder, (1, 3))])
        assert read(apart) == read(whole)
        assert apart.costs == whole.costs

    def test_credit_for_other_combinations_asks_nothing_more(self, folder: Path) -> None:
        from pipeline_lib.credit.plans import make_plan

        problems = load_split(folder / "problems", "train")[:2]
        costs = []
        for plan in ("aligned", "cross"):
            with playing(settings(), folder / "base") as (player, _):
                crossed = replace(player, plan=make_plan(kind=plan))
                experience = crossed.play(groups(problems, 3, 5, 1))
                costs.append(experience.costs)
                assert bool(experience.cells) == (plan == "cross")
        assert costs[0] == costs[1]


class TestCosts:
    def test_equal_questions_are_asked_once_and_every_turn_has_all_counts(self, folder: Path) -> None:
        with playing(settings(), folder / "base") as (player, engine):
            experience = after_given(player, samples=3)
            asked = engine.asked
        assert len(asked) == 2
        read = [player.team.base_of("main").encode(question) for _, question, _ in asked]
        first, second, third = (decision.details["costs"] for decision in experience.decisions if not decision.turn)
        assert first == {
            "critic_requests": 2.0,
            "critic_prompt_tokens": float(sum(map(len, read))),
            "critic_completion_tokens": float(sum(len(answer.ids) for _, _, answer in asked)),
        }
        assert second == third == dict.fromkeys(COSTS, 0.0)
        assert experience.costs == first

    def test_only_episodes_that_go_on_are_criticised(self, folder: Path) -> None:
        with playing(settings(), folder / "base") as (player, engine):
            one = replace(player, turns=1).play(paired([PROBLEM], 1, 1))
            assert not engine.asked
            assert one.costs == {} and len(one.decisions) == 1

    def test_without_a_critic_no_base_is_loaded_and_nothing_is_counted(self, folder: Path) -> None:
        for plain in (failing(feedback=("tests",)), failing(turns=1)):
            team = base_team(settings(), folder / "base", plain, [PROBLEM])
            assert not team.bases and team.sampled() == team.policies
            with pytest.raises(PolicyError, match="'main' has no base here"):
                team.base_of("main")
            engine = Recording()
            engine.load(team.policies)
            experience = Player(plain, team, engine, SAMPLING).play(paired([PROBLEM], 1, 1))
            assert not experience.costs and "costs" not in experience.decisions[0].details


def test_an_episode_shows_the_note_with_its_source(folder: Path) -> None:
    with playing(settings(), folder / "base") as (player, engine):
        (record,) = evaluate_team(player, [PROBLEM], 1, 1, keep_texts=True)
        answers = [answer.text for _, _, answer in engine.asked]
    assert record.shown is not None
    for one, answer in zip(record.shown["seen"][1], answers, strict=True):
        assert [source for source, _ in one["prompt"]] == ["task", "own code", "tests", "critic", ""]
        assert ("critic", f"- {note_of(answer).text}\n") in one["prompt"]
    assert record.details["critic_requests"] == 2


def test_a_checkpoint_holds_no_base(folder: Path) -> None:
    params = settings()
    alone = base_team(params, folder / "base", failing(feedback=("tests",)), [PROBLEM])
    assert team_digest(base_team(params, folder / "base", failing(), [PROBLEM])) == team_digest(alone)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rollouts": {"kind": "vllm"}}, "set rollouts.kind to transformers"),
        (
            {"agents": {"main": {"server": {"url": "http://127.0.0.1:9/v1", "model": "wise"}}}},
            "the base of policy.agents.main is on a server",
        ),
    ],
)
def test_where_a_base_cannot_be_asked_the_settings_are_refused(changes: dict[str, Any], said: str) -> None:
    plain = settings().model_dump(mode="json")
    if "rollouts" in changes:
        plain["rollouts"] = changes["rollouts"]
        plain["policy"] = {"kind": "pretrained", "models": ["some/model"]}
    else:
        plain["policy"] |= changes
    with pytest.raises(ValueError, match=said):
        Params.model_validate(plain)
    other = copy.deepcopy(plain)
    other["environment"]["feedback"] = ["tests"]
    Params.model_validate(other)


def test_the_real_sandbox_and_a_trained_step_agree_on_who_goes_on(folder: Path) -> None:
    params = settings()
    with contextlib.closing(make_environment(params.environment, params.sandbox)) as environment:
        assert environment.has_critic
        team = base_team(params, folder / "base", environment, [PROBLEM])
        engine = Recording()
        engine.load(team.sampled())
        problems = load_split(folder / "problems", "validation")
        experience = Player(environment, team, engine, SAMPLING).play(paired(problems, 1, 1))
    later = [decision for decision in experience.decisions if decision.turn]
    assert later and len(engine.asked) == experience.costs["critic_requests"] <= 2 * len(later)
