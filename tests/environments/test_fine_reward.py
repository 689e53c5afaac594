"""The terms of the fine reward, against numbers worked out by hand or in plain Python; and attempts to game it."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline_lib.environments.coding.fine_measures import (
    almost_right,
    contract,
    hardness_of_tests,
    mutants,
    noticed,
    weighted_share,
)
from pipeline_lib.environments.coding.generated import make_problem
from pipeline_lib.environments.coding.program import build_program
from pipeline_lib.environments.coding.recipe import Recipe
from pipeline_lib.environments.coding.rewards import Facts, Reward
from pipeline_lib.environments.coding.runtime import CodingEnvironment
from pipeline_lib.environments.coding.settings import CodingSettings as Settings
from pipeline_lib.sandbox import Case, Executor, Limits, Status, Verdict
from pipeline_lib.settings.compose import validate_params

PROBLEM = make_problem(Recipe.parse("over3/times2/sum"), 2, 6)
RIGHT = "def aux(xs):\n    return [x * 2 for x in xs if x > 3]"
MAIN = "def main(xs):\n    return sum(aux(xs))"
ALONE = "def main(xs):\n    return sum([x * 2 for x in xs if x > 3])"
IDENTITY = "def aux(xs):\n    return xs"
TOKEN = "def aux(xs):\n    return 42"
IF_TOKEN = "def main(xs):\n    return sum([x * 2 for x in xs if x > 3]) if aux(xs) == 42 else None"


class Recorded(Executor):
    """The real executor, with a record of what it was asked."""

    def __init__(self):
        super().__init__(slots=2, limits=Limits(cpu_s=0.5, call_cpu_s=0.2, wall_s=3.0))
        self.batches = []

    def run(self, jobs):
        self.batches.append(len(jobs))
        return super().run(jobs)


@pytest.fixture(scope="module")
def executor():
    with Recorded() as made:
        yield made


def play(executor, *joint_actions, problem=PROBLEM, **settings):
    environment = CodingEnvironment(Settings(reward={"kind": "fine", **settings}), lambda: executor)
    return environment.step([environment.start(problem)] * len(joint_actions), joint_actions)


def asked(tests):
    """Return the conditions of tests, compiled."""
    return [
        compile(ast.Expression(node.test), "", "eval")
        for node in ast.walk(ast.parse(tests))
        if type(node) is ast.Assert
    ]


def results(source, function, tests):
    """Return ``ok``, ``fail`` or ``error`` for every test, in this process: for the sources of this file only."""
    namespace = {}
    exec(source, namespace)
    found = []
    for test in asked(tests):
        try:
            found.append("ok" if eval(test, {"candidate": namespace[function]}) else "fail")
        except Exception:
            found.append("error")
    return found


def verdict(*results):
    passed = results.count("ok")
    status = Status.PASSED if passed == len(results) else Status.FAILED
    return Verdict("", status, passed, len(results), tuple(Case(i, r) for i, r in enumerate(results)))


def test_mutants_are_the_small_changes_and_nothing_else():
    bodies = {text.partition("return ")[2] for text in mutants(RIGHT, 32)}
    expected = {"x + 2", "x * 3", "x * 1"}
    expected = {f"[{change} for x in xs if x > 3]" for change in expected}
    expected |= {f"[x * 2 for x in xs{condition}]" for condition in (" if x >= 3", " if x > 4", " if x > 2", "")}
    assert bodies == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("-x", {"x"}),
        ("not x", {"x"}),
        ("abs(x)", {"x"}),
        ("a and b", {"a or b"}),
        ("a if c else b", {"b if c else a"}),
        ("True", {"False"}),
        ("x == 'a'", {"x != 'a'"}),
        ("x // y % z", {"x * y % z", "x // y // z"}),
        ("xs", set()),
    ],
)
def test_each_kind_of_change(value, expected):
    assert {text.partition("return ")[2] for text in mutants(f"def f(x):\n    return {value}", 32)} == expected


def test_mutants_are_limited_different_and_always_the_same():
    long = "def aux(x):\n    return " + " + ".join(["x * 2"] * 200)
    some = mutants(long, 6)
    assert len(some) == len(set(some)) == 6 and long not in some
    assert some == mutants.__wrapped__(long, 6)
    assert any("2 - " in text[:60] for text in some) or some[0] != some[-1]
    assert len(mutants("def aux(x):\n    return (x * 1, x * 1)", 32)) == 6, "equal changes in two places are two"


@pytest.mark.parametrize("source", ["def aux(", "x" + "()" * 20_000, "\0", ""])
def test_what_cannot_be_read_has_no_mutants(source):
    assert mutants(source, 6) == ()


def test_the_contract_is_right_for_an_independent_helper_and_no_input_is_a_test_of_the_task():
    tests = contract(PROBLEM)
    assert results(RIGHT, "aux", tests) == ["ok"] * 8
    inputs = [ast.literal_eval(node.args[0]) for node in ast.walk(ast.parse(tests)) if _calls(node)]
    assert len({tuple(xs) for xs in inputs}) == 4
    for xs in inputs:
        assert str(xs) not in PROBLEM.hidden_tests + PROBLEM.visible_tests
        assert 0 < sum(x > 3 for x in xs) < len(xs)
    assert contract(PROBLEM) == contract(replace(PROBLEM, reference={}, hidden_tests="")), "only the id is read"
    assert contract(replace(PROBLEM, id="generated/no such")) == contract(replace(PROBLEM, source="humaneval")) == ""


def _calls(node):
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == "candidate"


@pytest.mark.parametrize(
    ("helper", "most"),
    [
        ("def aux(xs):\n    return [x for x in xs if x > 3]", 0.5),  # chooses rightly, and changes nothing
        ("def aux(xs):\n    return [x * 2 for x in xs]", 0.0),
        ("def aux(xs):\n    return []", 0.0),
        ("def aux(xs):\n    return [8]", 0.125),  # the number of items of one input
        (IDENTITY, 0.0),
        (TOKEN, 0.0),
        ("def aux(x):\n    return x > 3", 0.0),  # another contract
    ],
)
def test_little_of_the_contract_is_met_without_reading_the_input(executor, helper, most):
    by_hand = results(helper, "aux", contract(PROBLEM)).count("ok") / 8
    (outcome,) = play(executor, (helper, "def main(xs):\n    return None"))
    assert outcome.metrics["contract_met"] == by_hand == most
    assert outcome.terms["contract"] == pytest.approx(0.3 * by_hand)


def test_harder_tests_weigh_more():
    ladder = [verdict("ok", "fail", "ok"), verdict("ok", "error", "fail")]
    assert hardness_of_tests(ladder, 3) == (0.0, 1.0, 0.5)
    assert hardness_of_tests([], 2) == (0.0, 0.0)
    assert weighted_share(frozenset({1}), (0.0, 1.0, 0.5), extra=1.0) == pytest.approx(2 / 4.5)
    assert weighted_share(frozenset({0}), (0.0, 1.0, 0.5), extra=3.0) == pytest.approx(1 / 7.5)
    assert weighted_share(frozenset({0, 2}), (0.0, 1.0, 0.5), extra=0.0) == pytest.approx(2 / 3)
    assert weighted_share(frozenset({0, 1, 2}), (0.1, 0.2, 0.3), extra=7.7) == 1.0, "exactly: an episode ends there"
    assert weighted_share(frozenset(), (), extra=1.0) == 0.0


def test_a_mutant_is_noticed_by_a_wrong_value_where_the_program_is_right():
    program = verdict("ok", "ok", "fail")
    seen, unseen = verdict("ok", "fail", "ok"), verdict("ok", "ok", "ok")
    assert noticed(program, [seen, unseen]) == 0.5
    assert noticed(program, [verdict("ok", "ok", "error")]) == 0.0, "the program was wrong there itself"
    assert noticed(program, [seen, verdict("error", "error", "error")]) == 1.0, "one that only stops says nothing"
    assert noticed(program, [verdict("error", "ok", "ok")]) == noticed(program, []) == 0.0


def test_a_right_team_earns_everything_and_the_programs_are_counted(executor):
    executor.batches.clear()
    (outcome,) = play(executor, (RIGHT, MAIN))
    assert outcome.reward == pytest.approx(2.3) and outcome.done
    assert outcome.terms == pytest.approx(
        {"structure": 0.2, "syntax": 0.2, "tests": 1.0, "contract": 0.3, "mutation": 0.2, "ablation": 0.4}
    )
    # the program and the helper alone, then two stubs and six mutants
    assert outcome.metrics["programs"] == 2 + 2 + 6
    assert executor.batches == [2 + len(almost_right(PROBLEM)), 8]


def test_the_terms_are_those_of_an_independent_computation(executor):
    """A helper that also leaves out the smallest items, judged again in plain Python."""
    problem = make_problem(Recipe.parse("within9/divide4/bottom"), 2, 6)
    helper = "def aux(xs):\n    return [x // 4 for x in xs if -7 < x < 9]"
    main = "def main(xs):\n    return sorted(aux(xs))[1]"
    mine = results(f"{helper}\n{main}", "main", problem.hidden_tests)
    passed = mine.count("ok") / 6
    assert 0 < passed < 1
    ladder = [results(text, "main", problem.hidden_tests) for text in almost_right(problem)]
    weights = [1 + sum(r[i] != "ok" for r in ladder) / len(ladder) for i in range(6)]
    weighted = sum(w for w, r in zip(weights, mine, strict=True) if r == "ok") / sum(weights)
    assert weighted != pytest.approx(passed), "the weights matter"
    changed = [results(f"{text}\n{main}", "main", problem.hidden_tests) for text in mutants(helper, 6)]
    pairs = [list(zip(mine, one, strict=True)) for one in changed]
    killed = [pair for pair in pairs if ("ok", "fail") in pair]
    alive = [pair for pair in pairs if not {("ok", "fail"), ("ok", "error")} & set(pair)]
    assert killed and alive
    (outcome,) = play(executor, (helper, main), problem=problem)
    assert outcome.terms == pytest.approx(
        {
            "structure": 0.2,
            "syntax": 0.2,
            "tests": weighted,
            "contract": 0.3 * results(helper, "aux", contract(problem)).count("ok") / 8,
            "mutation": 0.2 * passed * len(killed) / len(killed + alive),
            "ablation": 0.4 * passed,
        }
    )


VISIBLE = [node for node in ast.walk(ast.parse(PROBLEM.visible_tests)) if isinstance(node, ast.Compare)]
KNOWN = {str(ast.literal_eval(test.left.args[0])): ast.literal_eval(test.comparators[0]) for test in VISIBLE}
CHECKS_ITSELF = "def aux(xs):\n    assert 1 + 1 == 2\n    assert 2 * 3 == 6\n    return [x * 2 for x in xs if x > 3]"
DEAD = f"def unused(x):\n    return x + 1 if x > 2 else x - 1\n{RIGHT}"

GAMES = {
    "solves alone": (IDENTITY, ALONE, (1.0, 0.0, 0.0, 0.0)),
    "solves alone beside a right helper": (RIGHT, ALONE, (1.0, 0.3, 0.0, 0.0)),
    "a token whose mutants would be noticed": (TOKEN, IF_TOKEN, (1.0, 0.0, 0.0, 0.0)),
    "an empty helper": ("", ALONE, (1.0, 0.0, 0.0, 0.0)),
    "an identity behind a wrapper": (IDENTITY, "def main(xs):\n    return aux(xs)", (0.0, 0.0, 0.0, 0.0)),
    "knows the visible tests": (IDENTITY, f"def main(xs):\n    return {KNOWN}.get(str(aux(xs)))", (0.0, 0.0, 0.0, 0.0)),
    "a right helper whose value nobody reads": (
        RIGHT,
        "def main(xs):\n    aux(xs)\n    return 1",
        (0.0, 0.3, 0.0, 0.0),
    ),
    "a helper that checks itself": (CHECKS_ITSELF, MAIN, (1.0, 0.3, 0.2, 0.4)),  # no more than without
}


def test_what_is_not_needed_earns_nothing(executor):
    outcomes = play(executor, *[(helper, main) for helper, main, _ in GAMES.values()])
    for (name, (_, _, expected)), outcome in zip(GAMES.items(), outcomes, strict=True):
        terms = [outcome.terms[term] for term in ("tests", "contract", "mutation", "ablation")]
        assert terms == pytest.approx(list(expected)), name


def test_code_that_does_nothing_lowers_the_mutation_score(executor):
    plain, dead = play(executor, (RIGHT, MAIN), (DEAD, MAIN), mutants=32)
    assert plain.metrics["mutants_noticed"] == 1.0
    # seven of the helper itself, six of the dead function: two constants twice, a comparison, two signs, the branches
    assert dead.metrics["mutants_noticed"] == pytest.approx(7 / 17)
    assert dead.terms["mutation"] < plain.terms["mutation"]


def test_the_default_reward_runs_nothing_of_this(executor):
    executor.batches.clear()
    environment = CodingEnvironment(Settings(), lambda: executor)
    (outcome,) = environment.step([environment.start(PROBLEM)], [(RIGHT, MAIN)])
    assert executor.batches == [1, 2]
    assert not {"programs", "contract_met", "mutants_noticed", "helper_adds", "tests_weighted"} & set(outcome.metrics)


def test_a_lost_ladder_loses_the_action_and_is_run_again(executor, monkeypatch):
    environment = CodingEnvironment(Settings(reward={"kind": "fine"}), lambda: executor)
    run = executor.run

    def losing(jobs):
        return [replace(v, status=Status.INFRA_ERROR, passed=0) if j.code in lost else v
                for j, v in zip(jobs, run(jobs), strict=True)]  # fmt: skip

    lost = almost_right(PROBLEM)[:1]
    monkeypatch.setattr(executor, "run", losing)
    (first,) = environment.step([environment.start(PROBLEM)], [(RIGHT, MAIN)])
    monkeypatch.setattr(executor, "run", run)
    (second,) = environment.step([environment.start(PROBLEM)], [(RIGHT, MAIN)])
    assert first.reward is None and second.reward == pytest.approx(2.3)


def test_a_contract_is_refused_where_none_is_known():
    reward = {"kind": "fine"}
    changes = {"environment": {"kind": "coding", "reward": reward}, "problems": {"kind": "mbpp", "source": "x.jsonl"}}
    with pytest.raises(ValueError, match=r"environment.reward.contract \(0.3\).*kind mbpp state none.*to 0, or"):
        validate_params(changes, Path("params.yaml"))
    reward["contract"] = 0
    validate_params(changes, Path("params.yaml"))


def test_each_agent_earns_its_own_form_and_tests(executor):
    """By hand: 1 for the own function and 9 for its own tests, of 10; without the contract nobody earns by itself."""
    high = CodingEnvironment(Settings(reward={"kind": "fine"}), lambda: executor).reward_bounds[1]
    hidden = results(f"{IDENTITY}\n{MAIN}", "main", PROBLEM.hidden_tests)
    met = results(IDENTITY, "aux", contract(PROBLEM))
    expected = {
        (RIGHT, MAIN): (1.0, 1.0),
        (IDENTITY, ALONE): (0.1 + 0.9 * met.count("ok") / len(met), 1.0),  # whatever the main function does
        (IDENTITY, MAIN): (0.1 + 0.9 * met.count("ok") / len(met), 0.1 + 0.9 * hidden.count("ok") / len(hidden)),
        (RIGHT, "I would sum them up."): (1.0, 0.0),
        ("", ALONE): (0.0, 1.0),
    }
    for outcome, earned in zip(play(executor, *expected), expected.values(), strict=True):
        assert outcome.agent_rewards == pytest.approx({"helper": high * earned[0], "main": high * earned[1]}), (
            outcome.details
        )
    (outcome,) = play(executor, (RIGHT, MAIN), contract=0)
    assert outcome.agent_rewards == {}


def test_an_own_reward_below_zero_is_greatest_for_the_best():
    class Penalties(Reward):
        bounds = (-2.0, -1.0)
        needs_contract = True

        def terms(self, facts):
            return {"missed": -2.0 + facts.passed}

    best, worst = (
        Facts(build_program(actions, "main"), share, contract=share)
        for actions, share in (((RIGHT, MAIN), 1.0), (("", ""), 0.0))
    )
    assert Penalties().of_agents(best) == (-1.0, -1.0) and Penalties().of_agents(worst) == (-2.0, -2.0)
