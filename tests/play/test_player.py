"""Who is asked what, when, with which seed; and what becomes of turns, trees and failures."""

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from pipeline_lib.credit.plans import Aligned
from pipeline_lib.play import Player, Root, groups
from pipeline_lib.play.roots import derive
from pipeline_lib.protocols import make_protocol
from pipeline_lib.rollouts.engine import Action, EngineError, Request, Sampling
from pipeline_lib.training.advantages import returns_to_go
from pipeline_lib.training.batch import actions_of
from pipeline_lib.training.credit import credit
from pipeline_lib.training.curriculum import problem_order
from tests.play.engines import Scripted
from tests.training.conftest import SAMPLING, TOYS, Agree, ToyState, make_settings, make_team


class Recorder(Scripted):
    """Answers every request with numbered digits."""

    def actions(self, request: Request) -> list[Action]:
        return [Action((8 + j % 4, 1), (-1.0, -0.5), str(j % 4), "stop") for j in range(request.n)]


def collect(environment: Any, agents: Sequence[str] = ("one", "two"), tree: bool = True, **options: Any) -> Any:
    engine = Recorder()
    team = make_team(agents, shared=options.pop("shared", False))
    player = Player(environment, team, engine, SAMPLING, make_protocol(options.pop("protocol", "decentralised")), tree)
    return player.play(roots(**options)), engine


def roots(problems: Sequence[Any] = TOYS, seed: int = 0, step: int = 1) -> list[Root]:
    return groups(problems, 3, seed, step)


def test_one_call_per_turn_holds_all_problems_and_agents() -> None:
    environment = Agree()
    experience, engine = collect(environment)
    assert len(engine.calls) == environment.steps == 1
    assert [(r.policy, r.n) for r in engine.calls[0]] == [("one", 3), ("two", 3)] * 3
    assert len({r.seed for r in engine.calls[0]}) == 6
    assert len(experience.decisions) == 9


def test_joint_actions_pair_the_gth_actions() -> None:
    """G joint actions cost G actions per agent, each trained once with its own reward (faults of the crossed mode)."""
    experience, _ = collect(Agree(("one", "two", "three")), ("one", "two", "three"))
    assert len(experience.decisions) == 9
    for decision in experience.decisions:
        assert len({action.ids for action in decision.actions}) == 1  # the recorder's g-th action for everyone
    returns = [d.reward for d in experience.decisions]
    compared, _ = credit(experience, returns, Aligned(), make_settings().advantage)
    rows = actions_of(experience, compared, False)
    assert {name: len(found) for name, (found, _) in rows.items()} == {"one": 9, "two": 9, "three": 9}
    expected = [row[1] for row in compared]
    assert [a.advantage for a in rows["one"][0]] == expected == [a.advantage for a in rows["three"][0]]


def test_every_agent_sees_its_own_observation_only() -> None:
    _, engine = collect(Agree())
    prompts = {r.policy: set() for r in engine.calls[0]}
    for request in engine.calls[0]:
        prompts[request.policy].add(request.prompt)
    assert not prompts["one"] & prompts["two"]


def test_shared_parameters_send_all_agents_to_one_policy() -> None:
    experience, engine = collect(Agree(), shared=True)
    assert {r.policy for r in engine.calls[0]} == {"team"}
    assert experience.decisions[0].policies == ("team", "team")


def test_tree_samples_a_fresh_group_below_every_joint_action() -> None:
    """With rewards of 0 or more the public code's defaults never reach the second turn, without a word (fault 1.3)."""
    experience, engine = collect(Agree(turns=2), problems=TOYS[:2])
    turns = Counter(d.turn for d in experience.decisions)
    assert turns == {0: 2 * 3, 1: 2 * 9}
    assert [r.n for r in engine.calls[1]] == [3] * 12
    children = [d for d in experience.decisions if d.turn == 1]
    assert {d.parent for d in children} == set(range(6))
    assert Counter(d.group for d in children) == dict.fromkeys({d.group for d in children}, 3)
    for child in children:
        assert child.weight == pytest.approx(1 / 3)
        assert child.problem == experience.decisions[child.parent].problem
    assert sum(d.weight for d in children) == pytest.approx(sum(d.weight for d in experience.decisions if d.turn == 0))


def test_episodes_go_on_without_branching_and_compare_turn_by_turn() -> None:
    experience, engine = collect(Agree(turns=3), tree=False, problems=TOYS[:2])
    assert Counter(d.turn for d in experience.decisions) == {0: 6, 1: 6, 2: 6}
    assert [r.n for r in engine.calls[1]] == [1] * 12
    assert all(d.weight == 1.0 for d in experience.decisions)
    groups = Counter((d.problem, d.turn, d.group) for d in experience.decisions)
    assert len(groups) == 6  # one per problem and turn
    assert set(groups.values()) == {3}
    values = [float(k) for k in range(18)]
    returns = returns_to_go(values, [d.parent for d in experience.decisions], 1.0)
    assert returns[0] == values[0] + values[6] + values[12]


def test_joint_actions_that_are_asked_the_same_share_a_request_and_others_do_not() -> None:
    """In a pipeline the second agent reads what the first said: the recorder says 0, 1 and 2, one for each of three."""
    experience, engine = collect(Agree(), problems=TOYS[:1], protocol="sequential_pipeline")
    assert [[(r.policy, r.n) for r in call] for call in engine.calls] == [[("one", 3)], [("two", 1)] * 3]
    assert len({r.seed for call in engine.calls for r in call}) == 4
    assert len({r.prompt for r in engine.calls[1]}) == 3
    assert [d.prompts[1] for d in experience.decisions] == [r.prompt for r in engine.calls[1]]


def test_drafts_are_actions_of_the_decision_that_they_led_to() -> None:
    experience, engine = collect(Agree(), problems=TOYS[:1], protocol="one_round_discussion")
    assert len(engine.calls) == 2
    for decision in experience.decisions:
        assert decision.policies == ("one", "two", "one", "two")
        assert decision.rounds == (0, 0, 1, 1)
    compared = [(1.0,) * 4, (-1.0,) * 4, (0.0,) * 4]
    assert [len(rows) for rows, _ in actions_of(experience, compared, False).values()] == [6, 6]


def test_a_tree_branches_under_any_protocol() -> None:
    experience, _ = collect(Agree(turns=2), problems=TOYS[:1], protocol="sequential_pipeline")
    assert Counter(d.turn for d in experience.decisions) == {0: 3, 1: 9}
    with pytest.raises(ValueError, match="a tree does not consist of episodes"):
        experience.episodes()


class EndsEarly(Agree):
    """Ends the episodes whose first action was 0."""

    def step(self, states: Any, joint_actions: Any) -> Any:
        outcomes = super().step(states, joint_actions)
        ended = [texts[0] == "0" for texts in joint_actions]
        return [
            type(o)(o.reward, o.terms, o.metrics, o.state, o.done or end)
            for o, end in zip(outcomes, ended, strict=True)
        ]


@pytest.mark.parametrize("tree", [True, False])
def test_finished_episodes_are_not_continued(tree: bool) -> None:
    experience, _ = collect(EndsEarly(turns=2), tree=tree, problems=TOYS[:1])
    assert [d.last for d in experience.decisions[:3]] == [True, False, False]
    assert {d.parent for d in experience.decisions if d.turn == 1} == {1, 2}


def test_infrastructure_failures_are_not_continued() -> None:
    experience, _ = collect(Agree(turns=2, fail=["toy/red"]))
    lost = [d for d in experience.decisions if d.problem == "toy/red"]
    assert [d.turn for d in lost] == [0, 0, 0]
    assert all(d.reward is None and d.last for d in lost)


class TakesTurns(Agree):
    """Agents act one after the other."""

    def acting(self, state: ToyState) -> Sequence[int]:
        return [state.turn % 2]

    def reward(self, problem: Any, actions: Sequence[str]) -> float:
        assert sorted(map(bool, actions)) == [False, True]
        return 1.0


def test_only_acting_agents_are_sampled_and_trained() -> None:
    experience, engine = collect(TakesTurns(turns=2), tree=False)
    assert [{r.policy for r in call} for call in engine.calls] == [{"one"}, {"two"}]
    assert [d.policies for d in experience.decisions if d.turn == 1] == [("two",)] * 9


class Varying(Agree):
    """The number of agents depends on the problem."""

    def agents(self, problem: Any) -> tuple[str, ...]:
        return ("one",) if problem.text == "red" else ("one", "two")


def test_problems_may_have_different_numbers_of_agents() -> None:
    experience, engine = collect(Varying())
    assert Counter(r.policy for r in engine.calls[0]) == {"one": 3, "two": 2}
    assert [len(d.actions) for d in experience.decisions] == [1] * 3 + [2] * 6


def test_seeds_depend_on_everything_that_should_matter_and_on_nothing_else() -> None:
    def seeds(**options: Any) -> list[int]:
        _, engine = collect(Agree(turns=2), **options)
        return [r.seed for call in engine.calls for r in call]

    first = seeds()
    assert len(set(first)) == len(first)
    assert seeds() == first
    assert not set(seeds(seed=1)) & set(first)
    assert not set(seeds(step=2)) & set(first)
    assert seeds(problems=TOYS[:1]) == [s for s in first if s in seeds(problems=TOYS[:1])]  # not on the company


def test_a_problem_that_occurs_twice_in_a_step_is_sampled_twice() -> None:
    _, engine = collect(Agree(), problems=[TOYS[0], TOYS[0]])
    assert len({r.seed for r in engine.calls[0]}) == 4


def test_errors_of_the_environment_are_not_swallowed() -> None:
    class Broken(Agree):
        def step(self, states: Any, joint_actions: Any) -> Any:
            raise TypeError("a bug in the reward")

    with pytest.raises(TypeError, match="a bug in the reward"):
        collect(Broken())


def test_problem_order_is_shuffled_anew_in_every_epoch_and_leaves_nothing_out() -> None:
    """The public code walks through the same order in every epoch (fault 1.3)."""
    order = problem_order(10, 0, 0, 30)
    epochs = [order[:10], order[10:20], order[20:]]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != list(range(10))
    assert problem_order(10, 1, 0, 30) != order


def test_problem_order_depends_on_the_position_only() -> None:
    order = problem_order(7, 3, 0, 40)
    assert [problem_order(7, 3, k, 4) for k in range(0, 40, 4)] == [order[k : k + 4] for k in range(0, 40, 4)]


def test_derived_seeds() -> None:
    assert derive("a", 1, (2, 3)) == derive("a", 1, (2, 3))
    assert len({derive("a", 1, (2, 3)), derive("a", 12, (3,)), derive("a", 1, 2), derive("b", 1, (2, 3))}) == 4
    assert 0 <= derive("x") < 2**60


@pytest.mark.parametrize("tree", [True, False])
def test_overlap_changes_the_order_of_work_and_nothing_else(tree: bool) -> None:
    class Where(Agree):
        threads: ClassVar[set[str]] = set()

        def step(self, states: Any, joint_actions: Any) -> Any:
            self.threads.add(threading.current_thread().name)
            return super().step(states, joint_actions)

    def run(overlap: int) -> tuple[list[Any], Recorder, Where]:
        engine, environment = Recorder(), Where(turns=2)
        player = Player(environment, make_team(), engine, SAMPLING, tree=tree, overlap=overlap)
        return player.play(roots()).decisions, engine, environment

    whole, one_call, _ = run(1)
    for overlap in (2, 3, 16):
        decisions, engine, environment = run(overlap)
        assert decisions == whole
        assert environment.steps == min(overlap, 3) + min(overlap, -(-9 // -(-9 // overlap)))
        assert [r for call in engine.calls for r in call] == [r for call in one_call.calls for r in call]
        assert environment.threads == {threading.current_thread().name}


def test_with_overlap_the_next_part_is_sampled_while_the_environment_works() -> None:
    began, sampled_second = threading.Event(), threading.Event()

    class Slow(Agree):
        def step(self, states: Any, joint_actions: Any) -> Any:
            began.set()
            assert self.steps > 0 or sampled_second.wait(30)
            return super().step(states, joint_actions)

    class Second(Recorder):
        def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[list[Action]]:
            if self.calls:
                assert began.wait(30)
                sampled_second.set()
            return super().generate(requests, sampling)

    Player(Slow(), make_team(), Second(), SAMPLING, tree=True, overlap=3).play(roots())


def test_an_error_while_sampling_ahead_ends_the_step() -> None:
    class Fails(Recorder):
        def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[list[Action]]:
            if len(self.calls) == 1:
                raise EngineError("the server is gone")
            return super().generate(requests, sampling)

    with pytest.raises(EngineError, match="the server is gone"):
        Player(Agree(), make_team(), Fails(), SAMPLING, tree=True, overlap=3).play(roots())
