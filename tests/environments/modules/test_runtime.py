"""The modules on the real sandbox: rewards against plain Python, isolation of parts, hostile modules, failures."""

import json
import random

import pytest

from pipeline_lib.environments.modules.audit import memorised, whole
from pipeline_lib.environments.modules.demonstrations import demonstrate
from pipeline_lib.environments.modules.generated import TOP
from pipeline_lib.environments.modules.problem import ModulesProblem
from pipeline_lib.environments.modules.program import below, join_single, split_single, top_level, unfenced
from pipeline_lib.environments.modules.runtime import ModulesEnvironment
from pipeline_lib.environments.modules.settings import ModulesSettings as Settings
from pipeline_lib.sandbox import Executor, Limits, Status, Verdict
from pipeline_lib.storage import write_jsonl
from tests.environments.modules.help import DESIGNS, generated, plain_passed, problem

FAN, CHAIN = DESIGNS[1], DESIGNS[2]


@pytest.fixture(scope="module")
def executor():
    with Executor(slots=2, limits=Limits(cpu_s=0.5, call_cpu_s=0.2, wall_s=3.0)) as made:
        yield made


@pytest.fixture
def environment(executor):
    return ModulesEnvironment(Settings(), lambda: executor)


def play(environment, made, *joint_actions):
    states = [environment.start(made)] * len(joint_actions)
    return environment.step(states, [list(actions.values()) for actions in joint_actions])


@pytest.mark.parametrize("design", DESIGNS)
def test_a_right_team_gets_everything_and_needs_every_agent(environment, design: str):
    made = problem(design)
    for outcome in play(environment, made, *made.references):
        assert outcome.reward == pytest.approx(environment.reward_bounds[1]) and outcome.done
        assert outcome.terms == pytest.approx({"form": 0.2, "unit": 0.4, "system": 1.0})
        assert set(outcome.metrics.values()) == {1.0} and outcome.details == {"status": "passed"}
        assert outcome.agent_rewards == pytest.approx(dict.fromkeys(made.parts, environment.reward_bounds[1]))
        assert {f"needed_{part}" for part in made.parts} < set(outcome.metrics)


@pytest.mark.parametrize("modules", [2, 3, 4])
def test_rewards_equal_those_of_plain_python(environment, modules: int):
    """Demonstrated modules, half of them with a mistake, joined at random."""
    made = generated(modules)["train"][:6]
    rng = random.Random(modules)
    states, teams = [], []
    for each in made:
        texts = {part: [] for part in each.parts}
        for shown in demonstrate([each], 60, 0.5, modules):
            if shown.role in texts:
                texts[shown.role].append(shown.action)
        for _ in range(6):
            states.append(environment.start(each))
            teams.append({part: rng.choice(texts[part]) for part in each.parts})
    outcomes = environment.step(states, [list(team.values()) for team in teams])
    for state, team, outcome in zip(states, teams, outcomes, strict=True):
        each = state.problem
        system = plain_passed(each, team, TOP, each.system_tests)
        units = []
        for part in each.parts:
            among = [
                {**{name: known[name] for name in below(each, part)}, part: team[part]} for known in each.references
            ]
            units.append(max(plain_passed(each, sources, part, each.unit_tests[part]) for sources in among))
        defined = ["run" in (top_level(text) or ()) for text in team.values()]
        expected = 0.2 * sum(defined) / modules + 0.4 * sum(units) / modules + system
        assert outcome.reward == pytest.approx(expected), (each.id, team)
        assert outcome.metrics["system_passed"] == pytest.approx(system)
        for part, share in zip(each.parts, units, strict=True):
            assert outcome.metrics[f"unit_{part}"] == pytest.approx(share)
            stubbed = {**team, part: "def run(*args):\n    return None\n"}
            needed = plain_passed(each, stubbed, TOP, each.system_tests) < system
            assert outcome.metrics[f"needed_{part}"] == needed
    assert len({round(outcome.reward, 6) for outcome in outcomes}) > 6


def test_a_problem_from_a_file_is_played_like_the_one_that_was_written(environment, tmp_path):
    """The files of problems do not keep the order of keys."""
    made = problem(FAN)
    write_jsonl(tmp_path / "problems.jsonl", [made.to_json()])
    read = ModulesProblem.from_json(json.loads((tmp_path / "problems.jsonl").read_text()))
    assert environment.agents(read) == environment.agents(made) == ("one", "two", "main")
    early = made.references[0]
    (outcome,) = environment.step([environment.start(read)], [[early[part] for part in made.parts]])
    assert outcome.reward == pytest.approx(1.6)
    single = ModulesEnvironment(Settings(team="single"), lambda: pytest.fail("nothing is run"))
    assert single.right_part(single.start(read), 0) == join_single(early)


def test_parts_that_do_not_fit_pass_their_own_tests_only(environment):
    made = problem(FAN)
    early, late = made.references
    (outcome,) = play(environment, made, {**early, TOP: late[TOP]})
    assert outcome.metrics["units_right"] == 1.0 and outcome.metrics["system_passed"] < 0.5
    assert outcome.details["caused_by"] == ""


def test_an_agents_own_reward_is_for_its_own_part_whatever_the_others_write(environment):
    made = problem(FAN)
    right, high = made.references[0], environment.reward_bounds[1]
    for broken in made.parts:
        (outcome,) = play(environment, made, {**right, broken: "def nothing(:"})
        assert outcome.agent_rewards == pytest.approx({part: high * (part != broken) for part in made.parts})
        assert outcome.reward < high


def test_one_agent_that_writes_all_is_needed_alone(environment):
    made = problem(FAN)
    known = made.references[0]
    (outcome,) = play(environment, made, {"one": "", "two": "", TOP: whole(made)})
    assert outcome.metrics["system_passed"] == 1.0 and outcome.metrics["parts_needed"] == pytest.approx(1 / 3)
    assert outcome.metrics["needed_main"] == 1.0 and outcome.metrics["needed_one"] == 0.0
    assert outcome.reward == pytest.approx(0.2 / 3 + 0.4 / 3 + 1.0)
    (outcome,) = play(environment, made, {**known, "two": ""})
    assert outcome.details["caused_by"] == "two" and outcome.metrics["unit_main"] == 1.0
    (outcome,) = play(environment, made, {part: memorised(made, part) for part in made.parts})
    assert outcome.metrics["units_right"] == 1.0 and outcome.metrics["system_passed"] == 0.0


HOSTILE = {
    "patches another module": "from app import main\nmain.run = lambda xs: 0\ndef run(xs):\n    return xs\n",
    "patches the import system": "import sys\nsys.meta_path.clear()\nsys.modules.clear()\nrun = list\n",
    "patches the program": (
        "import sys\nfor name, found in list(sys.modules.items()):\n    if hasattr(found, 'Files'):\n"
        "        found.run = lambda *args: 0\ndef run(xs):\n    return xs\n"
    ),
    "patches builtins": "import builtins\nbuiltins.sum = builtins.max = lambda *a: 0\ndef run(xs):\n    return xs\n",
    "answers that are equal to everything": (
        "class Any(list):\n    def __eq__(self, other):\n        return True\ndef run(xs):\n    return Any()\n"
    ),
    "exits": "import os\nos._exit(0)\n",
    "exits politely": "raise SystemExit(0)\n",
    "loops": "while True:\n    pass\n",
    "loops in calls": "def run(xs):\n    while True:\n        pass\n",
    "no module": "def run(xs:\n",
    "a null byte": "def run(xs):\n    return xs\n\0",
    "half a letter": "def run(xs):\n    return '\ud800'\n",
    "looks for tests": (
        "import gc\ndef run(xs):\n    found = [o for o in gc.get_objects() if isinstance(o, str) and 'assert' in o]\n"
        "    return found\n"
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_modules_gain_nothing_and_cost_others_nothing_of_their_own(environment, name: str):
    made = problem(FAN)
    (outcome,) = play(environment, made, {**made.references[0], "one": HOSTILE[name]})
    assert outcome.reward is not None, "a program cannot make the sandbox fail"
    assert outcome.metrics["unit_one"] == 0.0
    assert outcome.metrics["unit_two"] == outcome.metrics["unit_main"] == 1.0, "parts are tested apart"
    assert outcome.metrics["system_passed"] <= 0.5
    (after,) = play(environment, made, made.references[0])
    assert after.reward == pytest.approx(1.6)


def test_a_module_that_overwrites_another_one_does_not_pass_that_ones_tests(environment):
    """In the joined program it is one program with the others; what it took over is not credited to them."""
    made = problem(CHAIN)
    early = dict(made.references[0])
    taking_over = early["one"] + "import sys\nsys.modules['app.two'] = sys.modules['app.one']\n"
    (outcome,) = play(environment, made, {**early, "one": taking_over, "two": ""})
    assert outcome.metrics["unit_two"] == 0.0 and outcome.metrics["needed_two"] == 0.0


def test_modules_may_import_each_other_in_every_usual_form(environment):
    made = problem(FAN)
    early = dict(made.references[0])
    body = early[TOP].partition("\n\n")[2]
    for imports in (
        "from app import one, two",
        "from . import one, two",
        "import app.one as one, app.two as two",
        "from app import one\nimport importlib\ntwo = importlib.import_module('app.two')",
    ):
        (outcome,) = play(environment, made, {**early, TOP: f"{imports}\n\n{body}"})
        assert outcome.reward == pytest.approx(1.6), imports
    (outcome,) = play(environment, made, {**early, TOP: f"import one, two\n\n{body}"})
    assert outcome.metrics["system_passed"] == 0.0, "the files are in a package"


def test_a_single_agent_writes_all_modules_below_headings(executor):
    single = ModulesEnvironment(Settings(team="single"), lambda: executor)
    made = problem(FAN)
    assert single.agents(made) == ("single",) and not single.divided(made)
    text = join_single(made.references[0])
    states = [single.start(made)] * 3
    whole_text, fenced, nothing = single.step(states, [[text], [f"Here:\n```python\n{text}```\n"], ["run"]])
    assert whole_text.reward == fenced.reward == pytest.approx(1.6) and nothing.reward == 0.0
    assert single.right_part(states[0], 0) == text
    assert single.step(states[:1], [[single.stub(states[0], 0)]])[0].terms["form"] == pytest.approx(0.2)
    assert split_single("# one.py\na\n# one.py\nb", ("one", "two")) == {"one": "b", "two": ""}
    assert unfenced("a\n```py\nb = 1\n```\nc") == "b = 1\n" and unfenced("x = '``'") == "x = '``'"


def test_outcomes_show_people_the_tests_and_agents_nothing(environment):
    made = problem(FAN)
    state = environment.start(made)
    wrong = {**made.references[0], "one": "def run(xs):\n    return xs\n"}
    (outcome,) = play(environment, made, wrong)
    shown = environment.exhibit(outcome.state, list(wrong.values()))
    assert len(shown.checks) == 6 and not all(check.passed for check in shown.checks) and "# two.py" in shown.text
    assert environment.exhibit(state, list(wrong.values())).checks == ()
    for number in range(3):
        assert environment.observe(outcome.state, number) == environment.observe(state, number)
    assert environment.divided(made) and environment.right_part(state, 1) == made.references[0]["two"]


def test_a_failure_of_the_sandbox_gives_no_reward_and_a_wrong_number_of_texts_is_refused():
    class Broken:
        def run(self, jobs):
            return [Verdict(job.id, Status.INFRA_ERROR, 0, 1, error="no worker\nat all") for job in jobs]

        def close(self):
            pass

    environment = ModulesEnvironment(Settings(), Broken)
    made = problem(FAN)
    (outcome,) = play(environment, made, made.references[0])
    assert outcome.reward is None and outcome.details == {"status": "infra_error", "error": "no worker at all"}
    with pytest.raises(ValueError, match="got 2 actions for the 3 agents"):
        environment.step([environment.start(made)], [["", ""]])
    environment.close()
    environment.close()


def test_a_form_is_what_the_top_level_binds():
    for text in (
        "def run(xs): pass",
        "run = 1",
        "run: int = 1",
        "from app.one import run",
        "import x as run",
        "import run.fast",
        "one, run = 1, 2",
        "class run: ...",
    ):
        assert "run" in (top_level(text) or ()), text
    for text in (
        "def start(): pass",
        "if x:\n  def run(): pass",
        "run: int",
        "print(run)",
        "table[run] = 1",
        "run.x = 1",
        "def f():\n  run = 1",
    ):
        assert top_level(text) is not None and "run" not in top_level(text), text
    assert top_level("def run(") is top_level("(" * 10000) is None
