"""The modules as the chain knows them: settings, presets, demonstrations, audit."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline_lib.audit.result import Status
from pipeline_lib.audit.run import audit
from pipeline_lib.environment_api.registry import find
from pipeline_lib.environments.modules.demonstrations import MISTAKES, WAYS, demonstrate
from pipeline_lib.environments.modules.generated import design_of
from pipeline_lib.environments.modules.problem import SINGLE
from pipeline_lib.environments.modules.program import join_single
from pipeline_lib.environments.modules.runtime import ModulesEnvironment
from pipeline_lib.environments.modules.settings import ModulesSettings as Settings
from pipeline_lib.environments.modules.settings import SoundModulesReward
from pipeline_lib.sandbox import Executor
from pipeline_lib.settings import load_params
from pipeline_lib.settings.environment import CustomReward
from pipeline_lib.settings.load import SettingsError
from tests.environments.modules.help import generated
from tests.sampling import sampled

ROOT = Path(__file__).parents[3]


def params_of(folder: Path, text: str):
    (folder / "params.yaml").write_text(text)
    return load_params(folder / "params.yaml", ROOT / "conf")


def test_a_preset_brings_everything_that_goes_with_it(tmp_path: Path):
    params = params_of(tmp_path, "environment: modules\n")
    assert (params.environment.kind, params.problems.kind) == ("modules", "module_graphs")
    assert params.evaluate.metric == "system_passed"
    assert [guard.metric for guard in params.evaluate.guards] == ["parts_parse"]
    assert find("modules").agent_names(params) == ("one", "two", "main")


def test_the_number_of_modules_is_the_number_of_agents(tmp_path: Path):
    for modules, names in ((2, ("one", "main")), (4, ("one", "two", "three", "main"))):
        params = params_of(tmp_path, f"environment: {{kind: modules}}\nproblems: {{modules: {modules}}}\n")
        assert find("modules").agent_names(params) == names and find("modules").max_acting(params) == modules
        assert generated(modules)["train"][0].parts == names
    with pytest.raises(SettingsError, match="no level 2 with 2 modules"):
        params_of(tmp_path, "environment: {kind: modules}\nproblems: {modules: 2, levels: [2]}\n")
    with pytest.raises(SettingsError, match=r"train.problems_per_step \(32\) is more than problems.sizes.train \(8\)"):
        params_of(
            tmp_path, "environment: {kind: modules}\nproblems: {sizes: {train: 8}}\ntrain: {problems_per_step: 32}\n"
        )


def test_the_task_says_what_makes_no_sense_and_strips_code(tmp_path: Path):
    task, team = find("modules"), Settings()
    single = task.single_agent(team)
    assert (single.team, team.team) == ("single", "modules")
    assert "no other agents" in task.unsuitable("one_round_discussion", single)
    assert "single turn" in task.unsuitable("naive_concatenation", team)
    assert not task.unsuitable("sequential_pipeline", team)
    made = generated(3)["train"][0]
    assert task.read_problem(made.to_json()) == made
    stripped = task.without_code(replace(made, prelude="x = 1"))
    environment = ModulesEnvironment(Settings(), lambda: pytest.fail("nothing is run"))
    (outcome,) = environment.step([environment.start(stripped)], [list(made.references[0].values())])
    assert outcome.reward is None and outcome.details == {"status": "untested"}


def test_demonstrations_mix_both_ways_and_mistakes():
    problems = generated(3)["train"]
    found = demonstrate(problems, 3000, 0.4, 3)
    assert found == demonstrate(problems, 3000, 0.4, 3) != demonstrate(problems, 3000, 0.4, 4)
    by_text = {text: (made, role) for made in problems for role, text in made.observations.items()}
    kinds: Counter[str] = Counter()
    for each in found:
        made, role = by_text[each.observation]
        assert role == each.role
        right = [join_single(known) if role == SINGLE else known[role] for known in made.references]
        assert (each.action in right) or each.mistake, (each.action, design_of(made).name)
        if not each.mistake:
            assert each.action == right[list(WAYS).index(each.way)]
        kinds.update([each.mistake, each.role, each.way])
    assert 0.35 < 1 - kinds[""] / 3000 < 0.45 and set(MISTAKES) < set(kinds)
    assert 0.5 < kinds["early"] / 3000 < 0.6 and 0.1 < kinds[SINGLE] / 3000 < 0.2
    assert min(kinds[part] for part in ("one", "two", "main")) > 750
    with pytest.raises(ValueError, match="no problems to demonstrate"):
        demonstrate([], 1, 0.0, 0)


@pytest.fixture(scope="module")
def executor():
    with Executor(slots=2) as made:
        yield made


def audited(executor, modules: int, **settings):
    made = Settings(**settings)
    return audit(made, ModulesEnvironment(made, lambda: executor), generated(modules)["train"][:4])


#: Number of modules, and who writes them.
TEAMS = ((2, "modules"), (3, "modules"), (4, "modules"), (3, "single"))


@pytest.mark.drawn("audits of modules", "pipeline_lib")
@pytest.mark.parametrize("which", sampled(TEAMS, 1, "the audit of modules", "pipeline_lib"), ids=str)
def test_the_sound_reward_passes_the_audit(executor, which: tuple[int, str]):
    modules, team = which
    found = audited(executor, modules, team=team)
    assert found.status is Status.PASS, found.summary
    rungs = {rung.name: rung for rung in found.ladder}
    assert found.ladder[0].name == "reference" and rungs["one_writes_all"].outcome == 1.0
    assert rungs["reference"].reward == rungs["reference_2"].reward == pytest.approx(1.6)
    assert rungs["one_writes_all_alone"].reward < rungs["one_writes_all"].reward < 1.6
    assert rungs["stubs_that_satisfy_unit_tests"].reward == pytest.approx(0.6)
    assert rungs["right_on_a_third"].outcome == pytest.approx(1 / 3)
    assert rungs["right_on_a_third"].reward == pytest.approx(0.6 + 1 / 3), "every part passes its own tests"
    assert rungs["nobody_does_anything"].reward == 0.0
    assert {"copies_of_another_file", "all_the_same_file", "stubs"} <= {
        r.name for r in found.ladder if r.role == "degenerate"
    }


@pytest.mark.drawn("audits of modules", "pipeline_lib")
def test_rewards_for_parts_alone_are_refused(executor, own_rewards):
    found = audited(executor, 3, reward=SoundModulesReward(unit=2.0, form=0.5, system=0.1))
    refused = {check.name for check in found.checks if check.status is Status.FAIL}
    assert found.status is Status.FAIL and "form" in refused
    found = audited(executor, 3, reward=CustomReward(path="modules_rewards:SystemOnly"))
    refused = {check.name for check in found.checks if check.status is Status.FAIL}
    assert "alone" in refused, "a team in which one agent does everything earns as much"
    with pytest.raises(ValueError, match="must set its attribute 'bounds'"):
        ModulesEnvironment(Settings(reward=CustomReward(path="modules_rewards:NoBounds")), lambda: executor)
