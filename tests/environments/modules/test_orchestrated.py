"""Orchestrated teams: who is told what, who writes what, and what a hand-out earns, against plain readings."""

import itertools
import json
import random
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.audit_modules_rewards import MODULES
from pipeline_lib.audit.result import Status
from pipeline_lib.audit.run import audit
from pipeline_lib.environment_api.registry import find
from pipeline_lib.environments.modules.demonstrations import (
    LEADS_MISTAKES,
    MISTAKES,
    TOLD_WAYS,
    demonstrate_later,
    ways_told,
)
from pipeline_lib.environments.modules.generated import EARLY, LATE, TOP, Design, design_of, make_problem
from pipeline_lib.environments.modules.hand_out import (
    LEAD,
    WORKERS,
    descriptions,
    hand_out_text,
    led,
    read_hand_out,
    worked,
)
from pipeline_lib.environments.modules.problem import SINGLE
from pipeline_lib.environments.modules.program import join_single
from pipeline_lib.environments.modules.runtime import ModulesEnvironment
from pipeline_lib.environments.modules.settings import ModulesSettings as Settings
from pipeline_lib.play.fixing import Fixed, FixedActions
from pipeline_lib.sandbox import Executor
from pipeline_lib.settings import load_params
from pipeline_lib.settings.load import SettingsError
from tests.environments.modules.help import DESIGNS, generated, plain_passed, problem

ROOT = Path(__file__).parents[3]
PAIR, FAN = DESIGNS[0], DESIGNS[1]
ORCHESTRATED = Settings(team="orchestrated")


@pytest.fixture(scope="module")
def environment():
    with Executor(slots=2) as executor:
        yield ModulesEnvironment(ORCHESTRATED, lambda: executor)


@pytest.fixture
def idle():
    return ModulesEnvironment(ORCHESTRATED, lambda: pytest.fail("nothing is run"))


def play(environment, made, episodes):
    """Play episodes, each of a hand-out and a text for each worker, to their ends; return the turns of each."""
    nothing = [""] * len(made.parts)
    first = environment.step([environment.start(made)] * len(episodes), [[lead, *nothing] for lead, _ in episodes])
    going = [number for number, outcome in enumerate(first) if not outcome.done]
    second = environment.step([first[n].state for n in going], [["", *episodes[n][1]] for n in going])
    later = dict(zip(going, second, strict=True))
    return [[outcome, *([later[number]] if number in later else [])] for number, outcome in enumerate(first)]


def plainly_read(text, parts):
    """Read a hand-out of words with spaces between them, without regular expressions."""
    told, owners = {}, {}
    for line in text.split("\n"):
        name, *words = line.replace(":", " ", 1).split()
        if name in WORKERS[: len(parts)] and words:
            told[name] = told.get(name, "") + " ".join(words) + "\n"
            for word in words:
                if word.endswith(".py") and word.removesuffix(".py") in parts:
                    owners.setdefault(word.removesuffix(".py"), name)
    return told, owners


def test_a_hand_out_is_read_as_by_hand():
    parts, rng = ("one", "two", "main"), random.Random(0)
    words = ["one.py", "two.py", "main.py", "five.py", "one", "even", "early", "first"]
    cases = Counter()
    for _ in range(2000):
        lines = [
            rng.choice([*WORKERS, "nobody", "one.py"])
            + rng.choice([": ", " ", ":", " : "])
            + " ".join(rng.choices(words, k=rng.randint(0, 4)))
            for _ in range(4)
        ]
        found = read_hand_out("\n".join(lines), parts)
        assert (found.told, found.owners) == plainly_read("\n".join(lines), parts), lines
        cases.update({"several files"} if len(found.owners) > 1 else {"few files"})
        cases.update({"a worker without a file"} if {*found.told} - {*found.owners.values()} else {"files for all"})
    assert min(cases.values()) > 200 and len(cases) == 4, cases


def test_what_a_hand_out_says_in_unusual_cases():
    parts = ("one", "main")
    for text in ("", "\n\n", "first", "first:", "third: one.py", "First: one.py", "one.py: even", "first: the sum"):
        assert not read_hand_out(text, parts).owners, text
    twice = read_hand_out("first: one.py even\nsecond: one.py odd\nfirst: main.py sum\n", parts)
    assert twice.owners == {"one": "first", "main": "first"}, "a file is of the worker who is given it first"
    assert twice.told == {"first": "one.py even\nmain.py sum\n", "second": "one.py odd\n"}
    assert twice.files("first") == ("one", "main") and twice.files("second") == ()


def test_each_worker_sees_its_own_lines_only_and_who_has_no_file_does_not_act(idle):
    made = problem(FAN)
    assert idle.agents(made) == ("lead", "first", "second", "third") and idle.turns == 2
    start = idle.start(made)
    assert idle.acting(start) == [0]
    for part in made.parts:
        assert made.observations[part] in idle.observe(start, 0)
        assert all(made.observations[part] not in idle.observe(start, worker) for worker in (1, 2, 3))
    [outcome] = idle.step(
        [start], [["third: one.py: keep over 3\nfirst: main.py sum two.py\nsecond: rest", "", "", ""]]
    )
    assert outcome.reward == 0.0 and not outcome.done and not outcome.terms
    assert idle.acting(outcome.state) == [1, 3], "the second worker reads a line and has no file"
    seen = [idle.observe(outcome.state, agent) for agent in range(4)]
    assert seen[1:] == ["first\nmain.py sum two.py\n", "second\nrest\n", "third\none.py: keep over 3\n"]
    assert seen[0] == idle.observe(start, 0)
    assert not idle.divided(made), "the lead is told everything"


def test_a_problem_read_from_a_file_is_led_as_before():
    for modules in (2, 3, 4):
        made = generated(modules)["train"][0]
        read = find("modules").read_problem(json.loads(json.dumps(made.to_json(), sort_keys=True)))
        assert list(descriptions(read.observations)) == list(made.parts) == list(read.parts)
        assert led(read) == led(made)


def test_plain_prompts_say_what_to_do():
    made = make_problem(Design.parse(FAN), 4, 6, "plain")
    seen = led(made)
    assert all(text.split("You write ")[1].split(". ", 1)[1].removesuffix(" Answer with Python code only.\n") in seen
               for part, text in made.observations.items() if part != SINGLE)  # fmt: skip
    assert "first, second, third" in seen and "Answer with Python" not in seen
    assert list(descriptions(made.observations)) == list(made.parts)
    shown = worked(made, "second", read_hand_out("second: two.py keeps 3", made.parts))
    assert shown.endswith("you are told:\ntwo.py keeps 3\n") and "# one.py" in shown


def test_the_best_hand_out_of_a_small_problem_tells_one_way(environment):
    """Every hand-out of two files with two ways to two workers who do as they are told: rewards of plain Python."""
    made = problem(PAIR)
    design, lines = design_of(made), descriptions(made.observations)
    asked = [
        (ways, owners)
        for ways in itertools.product((EARLY, LATE), repeat=2)
        for owners in itertools.product((*WORKERS[:2], "nobody"), repeat=2)
    ]
    episodes = []
    for ways, owners in asked:
        told = dict(zip(made.parts, ways, strict=True))
        lead = hand_out_text(lines, told, dict(zip(made.parts, owners, strict=True)))
        own = {worker: {} for worker in WORKERS[:2]}
        for part, owner in zip(made.parts, owners, strict=True):
            own.get(owner, {})[part] = design.source(part, told[part])
        episodes.append((lead, [join_single(sources) for sources in own.values()]))
    earned = {}
    for (ways, owners), turns in zip(asked, play(environment, made, episodes), strict=True):
        written = {
            part: design.source(part, way)
            for part, way, owner in zip(made.parts, ways, owners, strict=True)
            if owner != "nobody"
        }
        system = plain_passed(made, written, TOP, made.system_tests)
        expected = 0.2 * len(written) / 2 + 0.4 * len(written) / 2 + system
        earned[ways, owners] = sum(outcome.reward for outcome in turns)
        assert earned[ways, owners] == pytest.approx(expected) and turns[-1].done
        assert len(turns) == (2 if written else 1)
        metrics = turns[-1].metrics
        assert metrics["parts_handed_out"] == len(written) / 2
        assert metrics["workers_used"] == len({*owners} - {"nobody"}) / 2
        assert turns[-1].agent_rewards == {} and "caused_by" not in turns[-1].details
    whole = {key for key in earned if "nobody" not in key[1]}
    best = {key for key, reward in earned.items() if reward == pytest.approx(1.6)}
    assert best == {(ways, owners) for ways, owners in whole if len({*ways}) == 1}
    assert max(reward for key, reward in earned.items() if key not in best) < 1.2


def test_a_file_counts_only_from_the_worker_who_was_given_it(environment):
    made = problem(PAIR)
    early = made.references[0]
    everything = join_single(early)
    lead = hand_out_text(descriptions(made.observations), dict.fromkeys(made.parts, EARLY))
    own = [join_single({part: early[part]}) for part in made.parts]
    both, turned, without_names = play(
        environment, made, [(lead, [everything] * 2), (lead, own[::-1]), (lead, list(early.values()))]
    )
    assert both[-1].reward == pytest.approx(1.6)
    assert turned[-1].reward == without_names[-1].reward == 0.0
    assert environment.exhibit(both[0].state, [lead, "", ""]).text == lead
    shown = environment.exhibit(both[-1].state, ["", everything, everything])
    assert shown.text == join_single({part: source.strip("\n") for part, source in early.items()})
    assert len(shown.checks) == 6 and all(check.passed for check in shown.checks)


def test_agents_that_are_absent_or_right_are_played(environment):
    made = problem(PAIR)
    fixed = FixedActions(environment)
    lead, *own = play_fixed(fixed, Fixed(made, right=frozenset({0, 1, 2})))
    assert lead == pytest.approx(0.0) and own == [pytest.approx(1.6)]
    assert play_fixed(fixed, Fixed(made, absent=frozenset({0}), right=frozenset({1, 2}))) == [0.0]
    without = play_fixed(fixed, Fixed(made, absent=frozenset({1}), right=frozenset({0, 2})))
    assert without[-1] == pytest.approx(0.2 + 0.4 / 2), "the stub has the right form, the other part its own tests"


def play_fixed(fixed, made):
    state, rewards, done = fixed.start(made), [], False
    while not done:
        assert not fixed.acting(state)
        [outcome] = fixed.step([state], [[""] * 3])
        state, done = outcome.state, outcome.done
        rewards.append(outcome.reward)
    return rewards


def test_demonstrations_are_hand_outs_in_mixed_ways_and_workers_who_follow():
    problems = generated(3)["train"]
    found = demonstrate_later(problems, 4000, 0.3, 3)
    assert found == demonstrate_later(problems, 4000, 0.3, 3) != demonstrate_later(problems, 4000, 0.3, 4)
    by_lead = {led(made): made for made in problems}
    designs = {made.id: design_of(made) for made in problems}
    roles, ways, complete, agreed = Counter(), Counter(), 0, 0
    for each in found:
        roles[each.role] += 1
        if each.role == LEAD:
            made = by_lead[each.observation]
            hand_out = read_hand_out(each.action, made.parts)
            told = {part: way for owner in hand_out.told for part, way in ways_told(hand_out, owner).items()}
            right = hand_out_text(
                descriptions(made.observations), {part: told.get(part, "") for part in made.parts},
                {part: hand_out.owners.get(part, "") for part in made.parts},
            )  # fmt: skip
            assert (each.action == right) != bool(each.mistake)
            ways.update(told.values())
            complete += len(told) == 3
            agreed += len({*told.values()}) == 1 and "" not in told.values()
        elif each.role != SINGLE and not each.mistake:
            lines = each.observation.splitlines()[1:]
            assert each.observation.splitlines()[0] == each.role
            files = [line.partition(".py")[0] for line in lines]
            told = [next((way for way in (EARLY, LATE) if line.endswith(way)), "") for line in lines]
            possible = [
                join_single({part: design.source(part, way) for part, way in zip(files, chosen, strict=True)})
                for design in designs.values()
                if all(design.said(part) == line.removesuffix(f" {way}")
                       for part, line, way in zip(files, lines, told, strict=True))
                for chosen in itertools.product(*([way] if way else [EARLY, LATE] for way in told))
            ]  # fmt: skip
            assert each.action in possible
    assert set(roles) == {LEAD, SINGLE, *WORKERS[:3]}
    for way, share in TOLD_WAYS.items():
        assert abs(ways[way] / ways.total() - share) < 0.04
    assert agreed < 0.2 * complete, "the base does not tell one way to all"
    mistakes = {each.role == LEAD: set() for each in found}
    for each in found:
        mistakes[each.role == LEAD].add(each.mistake)
    assert mistakes == {True: {"", *LEADS_MISTAKES}, False: {"", *MISTAKES}}
    with pytest.raises(ValueError, match="no problems to demonstrate"):
        demonstrate_later([], 1, 0.0, 0)


def test_the_sound_reward_passes_the_audit_and_pays_no_lazy_hand_out(environment):
    found = audit(ORCHESTRATED, environment, generated(2)["train"][:4])
    assert found.status is Status.PASS, found.summary
    earned = {rung.name: rung.reward for rung in found.ladder}
    for working in ("reference", "reference_2", "everything_to_one", "everything_to_all"):
        assert earned[working] == pytest.approx(1.6)
    for nothing in ("nothing_handed_out", "no_file_named", "nobody_named", "files_of_others", "copied_prompt"):
        assert earned[nothing] == 0.0
    assert earned["contradictory_ways"] < 1.0 and earned["one_file_handed_out"] < 1.0
    assert max(rung.reward for rung in found.ladder if rung.role == "degenerate") <= 0.6 + 1e-9


BAD = [entry for entry in MODULES if entry.label == "bad"]


@pytest.mark.parametrize("entry", BAD, ids=lambda entry: entry.name)
def test_wrong_rewards_of_orchestrated_teams_are_refused(entry):
    settings = entry.reward.model_copy(update={"team": "orchestrated"})
    with Executor(slots=2) as executor:
        made = ModulesEnvironment(settings, lambda: executor)
        assert audit(settings, made, generated(2)["train"][:4]).status is Status.FAIL


def params_of(folder, text):
    (folder / "params.yaml").write_text(text)
    return load_params(folder / "params.yaml", ROOT / "conf")


def test_the_preset_trains_whole_episodes_and_what_cannot_work_is_refused(tmp_path):
    params = params_of(tmp_path, "environment: modules-orchestrated\n")
    task = find("modules")
    assert (params.environment.team, params.train.groups, params.evaluate.baselines) == ("orchestrated", "episodes", ())
    assert task.agent_names(params) == ("lead", "first", "second", "third")
    assert (task.max_acting(params), task.most_turns(params), task.has_later_turns(params)) == (3, 2, True)
    assert task.notes(params.environment) == [] and task.single_agent(params.environment).team == "single"
    fixed = params_of(tmp_path, "environment: modules\n")
    assert (task.max_acting(fixed), task.most_turns(fixed), task.has_later_turns(fixed)) == (3, 1, False)
    team = "environment: {preset: modules-orchestrated}\n"
    for text, reason in (
        (f"{team}evaluate: {{baselines: [sequential_pipeline]}}\n", "workers of an orchestrated team read"),
        (f"{team}train: {{individual_reward: 0.5}}\n", "no part belongs to one agent"),
        (
            "environment: {preset: modules-classeval, team: orchestrated}\npolicy: qwen2.5-coder-3b-lora\n"
            "evaluate: {baselines: []}\n",
            "problems of kind classeval are methods of one class",
        ),
    ):
        with pytest.raises(SettingsError, match=reason):
            params_of(tmp_path, text)
