"""Settings: read once, refused in words."""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_origin

import pydantic
import pytest
import yaml
from dvc.utils.hydra import apply_overrides
from dvc.utils.serialize import load_yaml

from pipeline_lib.environment_api.registry import names
from pipeline_lib.settings import Params, SettingsError, load_params
from pipeline_lib.settings.compose import compose
from pipeline_lib.settings.environment import environment_model, kinds_of, problem_models
from pipeline_lib.settings.evaluate import RayNodes
from pipeline_lib.settings.load import changed_params, given_in
from pipeline_lib.settings.mistakes import _models, explain
from pipeline_lib.settings.reading import read_mapping
from tasks.chain.form import requested_changes

ROOT = Path(__file__).parents[2]


def write(folder: Path, text: str) -> Path:
    path = folder / "params.yaml"
    path.write_text(text)
    return path


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load_params(write(folder, text), ROOT / "conf")
    return str(caught.value)


def test_the_shipped_file_spells_out_every_default():
    assert load_params(ROOT / "params.yaml", ROOT / "conf") == Params()
    written = yaml.safe_load((ROOT / "params.yaml").read_text())
    assert given_in(written, "params.yaml") == {
        section: {"preset": None} for section in written if section != "verdict"
    }
    for section in written.values():
        section.pop("preset", None)
    assert set(every_setting(written)) == set(every_setting(Params().model_dump(mode="json")))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("train: {steps: default 61}", "train.steps: got 'default 61', but the default is 60"),
        ("seeds: {train: [18446744073709551616]}", "must be different, and from 0 to 4294967295"),
        ('seeds: {train: ["3"]}', "seeds.train: got ['3'], but the default is [0, 1, 2]"),
        ("train: {stepz: default 60}", "train.stepz: there is no such setting; did you mean 'steps'?"),
        ("trian: {steps: default 60}", "sandbox, seeds, train, verdict; did you mean 'train'?"),
        ("train: {betas: 'default [0.9'}", "train.betas: got 'default [0.9', but the default is [0.9, 0.98]"),
    ],
)
def test_what_is_written_as_the_default_must_be_it(tmp_path: Path, text: str, said: str):
    assert said in refusal(tmp_path, text)


def every_setting(content: Any, prefix: str = "") -> Iterator[str]:
    """Yield the dotted name of each setting."""
    for key, value in content.items():
        if isinstance(value, dict) and value:
            yield from every_setting(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def put(content: dict[str, Any], name: str, value: Any) -> None:
    *parents, last = name.split(".")
    for part in parents:
        content = content.setdefault(part, {})
    content[last] = value


def at(content: Any, name: str) -> Any:
    for part in name.split("."):
        content = content.get(part) if isinstance(content, dict) else None
    return content


@pytest.mark.parametrize("environment", ["philosophers", "writing", "coding-two-turns", "modules", "coding-quick"])
def test_a_value_that_equals_the_default_wins_over_the_preset(environment: str, tmp_path: Path):
    """Each value that the preset changes is given as it is by default: through DVC, ``-S``, a study and in Python."""
    default = Params().model_dump(mode="json")
    preset = load_params(write(tmp_path, f"environment: {environment}"), ROOT / "conf").model_dump(mode="json")
    sections = {name for name in default if name not in ("environment", "problems", "evaluate")}
    if preset["environment"]["kind"] == "coding":
        sections |= {"problems", "evaluate"}
    shipped = yaml.safe_load((ROOT / "params.yaml").read_text())
    changed = [name for name in every_setting(default) if name.partition(".")[0] in sections]
    changed = [name for name in changed if at(default, name) != at(preset, name)]
    assert len(changed) >= 3
    for name in changed:
        value = at(default, name)
        given: dict[str, Any] = {}
        put(given, name, value)
        expected: Any
        try:
            expected = compose({"environment": environment, **given}, ROOT / "conf")
        except SettingsError as error:  # the preset's other values do not go with it: refused, and not dropped
            expected = str(error).partition(": ")[2]
        else:
            assert at(expected.model_dump(mode="json"), name) == value
        file = write(tmp_path, yaml.safe_dump(shipped))
        overrides = [f"{name}={yaml.safe_dump(value, default_flow_style=True).splitlines()[0]}"]
        overrides.insert(len(name) % 2, f"environment={environment}")
        apply_overrides(str(file), overrides)
        ours = partial(changed_params, file=ROOT / "params.yaml", conf=ROOT / "conf", who="us")
        doors = {
            "dvc exp run -S": partial(load_params, file, ROOT / "conf"),
            "symposium run -S": partial(ours, requested_changes({}, {}, overrides)),
            "study": partial(ours, {name: value, "environment": environment}),
        }
        for door, load in doors.items():
            if isinstance(expected, str):
                with pytest.raises(SettingsError) as caught:
                    load()
                assert str(caught.value).partition(": ")[2] == expected, door
            else:
                assert load() == expected, (door, name)


def test_a_preset_and_values_of_its_section_go_together(tmp_path: Path):
    """``preset`` among the keys, as ``-S train.preset=coding-paper -S train.steps=60`` writes it."""
    file = write(tmp_path, (ROOT / "params.yaml").read_text())
    apply_overrides(str(file), ["train.steps=60", "train.preset=coding-paper", "train.group_size=8"])
    found = load_params(file, ROOT / "conf").train
    preset = load_params(write(tmp_path, "train: coding-paper"), ROOT / "conf").train
    assert (preset.steps, preset.group_size) == (500, 4)
    assert found == preset.model_copy(update={"steps": 60, "group_size": 8})
    assert found == compose({"train": {"preset": "coding-paper", "steps": 60, "group_size": 8}}, ROOT / "conf").train
    with pytest.raises(SettingsError, match=r"train.preset: got 3; expected the name of a preset"):
        load_params(write(tmp_path, "train: {preset: 3}"), ROOT / "conf")


def test_values_of_another_kind_replace_a_preset(tmp_path: Path):
    given = {"kind": "pretrained", "models": ["some/model"]}
    found = compose({"environment": "philosophers", "policy": given}, ROOT / "conf")
    assert found.policy == compose({"policy": given}, ROOT / "conf").policy
    writing = compose({"environment": {"preset": "coding-quick", "kind": "writing"}}, ROOT / "conf")
    assert writing == compose({"environment": {"kind": "writing"}}, ROOT / "conf"), "what the preset brought stayed"
    lora = compose({"policy": {"preset": "embedded-lora", "adapter": {"rank": 8}}}, ROOT / "conf").policy
    assert (lora.adapter.kind, lora.adapter.rank, lora.adapter.alpha) == ("lora", 8, 192)
    assert compose({"environment": {"reward": {"structure": 0.3}}}, ROOT / "conf").environment.reward.kind == "sound"


def changed(*overrides: str, file: Path = ROOT / "params.yaml") -> Params:
    return changed_params(requested_changes({}, {}, overrides), file, ROOT / "conf", "-S")


def test_a_value_of_the_reward_goes_to_the_kind_that_the_environment_has_by_default():
    reward = changed("environment=planning", "environment.reward.token=0.01").environment.reward
    assert reward == environment_model("planning")().reward.model_copy(update={"token": 0.01})
    judge = "environment.reward.judge"
    writing = changed("environment=writing", f"{judge}.url=http://a", f"{judge}.model=m").environment.reward
    assert (writing.kind, writing.judge.url, writing.judge.weight) == ("sound", "http://a", 0.3)
    with pytest.raises(SettingsError, match=r"environment.reward.tokn: unknown key; .*did you mean 'token'"):
        changed("environment=planning", "environment.reward.tokn=0.01")


def test_a_value_inside_of_null_changes_what_a_preset_has_there_and_is_refused_without_one(tmp_path: Path):
    found = changed("environment.tools.calls=3", "environment=documents-tools").environment.tools
    assert found is not None and (found.calls, found.tokens) == (3, 64)
    both = changed("environment=documents-tools", "environment.tools.calls=3", "environment.tools.tokens=32")
    assert (both.environment.tools.calls, both.environment.tools.tokens) == (3, 32)
    for text in ((ROOT / "params.yaml").read_text(), "environment: coding-quick", "environment: {tools: null}", ""):
        file = write(tmp_path, text)
        with pytest.raises(SettingsError) as caught:
            changed("environment=documents", "environment.tools.calls=2", file=file)
        assert str(caught.value) == (
            f"-S changes environment.tools.calls, but environment.tools is null: neither {file} nor a preset sets it; "
            "give environment.tools as a whole: '{calls: 2, tokens: 128}'"
        )
    whole = "environment.tools={calls: 2, tokens: 128}"
    assert changed("environment=documents", whole, "environment.tools.calls=3").environment.tools.calls == 3
    with pytest.raises(SettingsError, match=r"changes train.steps.most, but train.steps is 'default 60', without"):
        changed("train.steps.most=1")


@pytest.mark.parametrize("order", [1, -1])
def test_a_setting_that_is_null_and_one_inside_of_it_are_not_both_taken(order: int):
    with pytest.raises(SettingsError, match=r"sets policy.warm_start to null and also policy.warm_start.steps, which"):
        changed(*("policy.warm_start=null", "policy.warm_start.steps=3")[::order])


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("models: [a/b, c/d, e/f]", "policy.models: got 3 models; name one, or one for each of helper, main"),
        ("models: [a/b, c/d], parameters: shared", "policy.models: got 2 models; name one, since the agents share it"),
    ],
)
def test_models_that_do_not_fit_the_team_are_refused_before_anything_runs(policy: str, words: str, tmp_path: Path):
    assert words in refusal(tmp_path, f"policy: {{kind: pretrained, {policy}}}")
    assert len(load_params(write(tmp_path, "policy: {kind: pretrained, models: [a/b, c/d]}")).policy.models) == 2


@pytest.mark.parametrize(
    ("agents", "words"),
    [
        ("{mian: {trained: false}}", "policy.agents.mian: the team of coding has no such agent; it has helper, main"),
        ("{main: {hidden_size: 65}}", "policy: agents.main: hidden_size (65) must be a multiple of heads (4)"),
        ("{main: {trained: false}, helper: {trained: false}}", "policy.agents: no agent is trained"),
    ],
)
def test_agents_that_cannot_play_are_refused_before_anything_runs(agents: str, words: str, tmp_path: Path):
    said = refusal(tmp_path, f"policy: {{kind: embedded, agents: {agents}}}")
    assert words in said and "pydantic" not in said


def test_agents_of_another_environment_are_refused(tmp_path: Path):
    said = refusal(tmp_path, "environment: writing\npolicy: {kind: embedded, agents: {main: {trained: false}}}")
    assert "policy.agents.main: the team of writing has no such agent; it has first, second" in said


PRESETS = sorted(path for path in (ROOT / "conf").glob("*/*.yaml") if path.parent.name != "studies")


@pytest.mark.parametrize("preset", PRESETS, ids=lambda p: f"{p.parent.name}={p.stem}")
def test_every_preset_is_valid(preset: Path, tmp_path: Path):
    section, name = preset.parent.name, preset.stem
    # Long actions leave no space in a tiny context, and the published prompt is not for the embedded model.
    chosen = {"policy": "qwen2.5-coder-3b-lora"} if section == "rollouts" or name == "dpbench" else {}
    params = load_params(write(tmp_path, yaml.safe_dump(chosen | {section: name})), ROOT / "conf")
    if section == "environment":  # it may differ in nothing but what it brings along
        assert params != Params()
    else:
        assert getattr(params, section) != getattr(Params(), section)


def test_an_environment_brings_values_of_other_sections_along(tmp_path: Path):
    """One override of the shipped file is enough, and what differs from the defaults stays on top."""
    shipped = yaml.safe_load((ROOT / "params.yaml").read_text())

    def load(**changes: Any) -> Params:
        return load_params(write(tmp_path, yaml.safe_dump(shipped | changes)), ROOT / "conf")

    alone = load(environment="philosophers")
    content = yaml.safe_load((ROOT / "conf/environment/philosophers.yaml").read_text())
    brought = content.pop("with")
    assert alone == load(environment=content, **brought)
    assert alone.problems.kind == "scenarios"
    assert alone.seeds.single_agent == ()
    train = load(environment="philosophers", train=shipped["train"] | {"steps": 30}).train
    assert train == alone.train.model_copy(update={"steps": 30})
    lora = load(environment="philosophers", policy="embedded-lora").policy
    assert lora == load(environment=content, **brought | {"policy": "embedded-lora"}).policy != alone.policy
    assert lora == load(policy="embedded-lora").policy, "a preset that is named takes the place of what is brought"
    nested = shipped["train"] | {"loss": shipped["train"]["loss"] | {"entropy": 0.5}}
    assert load(environment="philosophers", train=nested).train.loss.entropy == 0.5


def presets_in(folder: Path, **contents: str) -> Path:
    (folder / "conf/environment").mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / f"conf/environment/{name}.yaml").write_text(content)
    return folder / "conf"


@pytest.mark.parametrize(
    ("brought", "said"),
    [
        ("{train: coding-paper}", "must contain other sections and their values by key, got {'train': 'coding-paper'}"),
        ("{trian: {steps: 1}}", "must contain other sections"),
        ("{environment: {turns: 2}}", "must contain other sections"),
        ("[train]", "must contain other sections"),
        ("{train: {stps: 1}}", "train.stps: unknown key; .*did you mean 'steps'"),
        ("{train: {preset: coding-paper}}", "train.preset: unknown key"),
        ("{policy: {kind: embeded}}", "policy.kind: got 'embeded'"),
    ],
)
def test_a_mistake_in_what_an_environment_brings_is_named_with_its_file(tmp_path: Path, brought: str, said: str):
    conf = presets_in(tmp_path, mine=f"kind: coding\nwith: {brought}\n", like="preset: mine\n")
    for name in ("mine", "like"):
        with pytest.raises(SettingsError, match=rf"conf/environment/{name}\.yaml: .*{said}"):
            load_params(write(tmp_path, f"environment: {name}"), conf)


def test_a_preset_holds_what_differs_from_the_one_that_it_names(tmp_path: Path):
    conf = presets_in(
        tmp_path,
        first="kind: coding\nturns: 2\n"
        "with: {train: {steps: 20, group_size: 4}, policy: {kind: embedded, layers: 3}}\n",
        second="preset: first\nfeedback: []\nwith: {train: {group_size: 2}, seeds: {train: [5]}}\n",
        third="preset: second\nwith: {policy: {kind: pretrained, models: [a/b]}}\n",
    )
    second, third = (load_params(write(tmp_path, f"environment: {name}"), conf) for name in ("second", "third"))
    for params in (second, third):
        assert (params.environment.turns, params.environment.feedback) == (2, ())
        assert (params.train.steps, params.train.group_size, params.seeds.train) == (20, 2, (5,))
    assert (second.policy.layers, third.policy.models) == (3, ("a/b",)), "another kind replaces the values below"
    given = load_params(write(tmp_path, "environment: {preset: second, turns: 3}\ntrain: {group_size: 8}"), conf)
    assert (given.environment.turns, given.train.group_size, given.train.steps) == (3, 8, 20)
    (conf / "train").mkdir()
    (conf / "train/long.yaml").write_text("steps: 90\nlearning_rate: 0.01\n")
    (conf / "train/longer.yaml").write_text("preset: long\nsteps: 95\n")
    train = load_params(write(tmp_path, "train: longer"), conf).train
    assert (train.steps, train.learning_rate) == (95, 0.01)


def test_a_preset_below_itself_and_one_that_is_not_there_are_refused(tmp_path: Path):
    conf = presets_in(tmp_path, one="preset: two\n", two="preset: one\n", lost="preset: tow\n", odd="preset: [one]\n")
    for name, said in (
        ("one", r"two\.yaml: preset: 'one' would be below itself"),
        ("lost", r"no preset 'tow' for 'environment'; known presets: lost, odd, one, two; did you mean 'two'\?"),
        ("odd", r"odd\.yaml: preset: got \['one'\]; expected the name of a preset"),
    ):
        with pytest.raises(SettingsError, match=said):
            load_params(write(tmp_path, f"environment: {name}"), conf)


def test_the_name_of_an_environments_preset_in_another_section_is_answered_with_it(tmp_path: Path):
    said = refusal(tmp_path, "train: writing")
    assert "no preset 'writing' for 'train'; known presets: coding-paper; environment=writing brings values" in said
    assert "no preset 'writing' for 'seeds'; known presets: none" in refusal(tmp_path, "seeds: writing")


def test_which_baselines_make_sense_depends_on_the_environment(tmp_path: Path):
    three = ("naive_concatenation", "sequential_pipeline", "one_round_discussion")
    shipped = yaml.safe_load((ROOT / "params.yaml").read_text())

    def load(environment: Any, baselines: Any, **changes: Any) -> Params:
        evaluate = {"baselines": list(baselines)}
        content = shipped | {"environment": environment, "evaluate": evaluate} | changes
        return load_params(write(tmp_path, yaml.safe_dump(content)), ROOT / "conf")

    default = Params().evaluate.baselines
    unset = {"evaluate": shipped["evaluate"]}
    assert load("coding-two-turns", (), **unset).evaluate.baselines == three
    assert load("philosophers", (), **unset).evaluate.baselines == ()
    qwen = {"policy": "qwen2.5-coder-3b-lora"}
    assert load("dpbench", (), **unset, **qwen).evaluate.baselines == three[1:]
    assert load(shipped["environment"] | {"team": "single"}, ()).evaluate.baselines == ()
    pipeline = {"rollouts": {"kind": "transformers", "protocol": "sequential_pipeline"}}
    assert load(shipped["environment"], three[2:], **pipeline).rollouts.protocol == "sequential_pipeline"
    with pytest.raises(SettingsError, match=r"the base already plays sequential_pipeline, which is rollouts.protocol"):
        load(shipped["environment"], default, **pipeline)
    with pytest.raises(
        SettingsError,
        match=r"rollouts.protocol: sequential_pipeline does not suit this environment: .* no other agents",
    ):
        load(shipped["environment"] | {"team": "single"}, (), **pipeline)
    table: Any = {"kind": "philosophers", "prompt": "default"}
    for environment, name, why in (
        ("philosophers", "one_round_discussion", "without space for the texts of others"),
        (table, "naive_concatenation", "a meal needs several"),
        (table | {"mode": "sequential"}, "sequential_pipeline", "no texts of others to read"),
    ):
        with pytest.raises(SettingsError, match=f"evaluate.baselines: {name} does not suit this environment: .*{why}"):
            changes = {} if environment == "philosophers" else {"problems": {"kind": "scenarios"}, **qwen}
            load(environment, [name], **changes)


def test_settings_are_immutable():
    with pytest.raises(pydantic.ValidationError):
        Params().train.steps = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("train: {lerning_rate: 1}", ["train.lerning_rate", "unknown key", "did you mean 'learning_rate'"]),
        ("trian: {}", ["trian", "did you mean 'train'"]),
        ("policy: {kind: embeded}", ["policy.kind", "'embeded'", "embedded, pretrained"]),
        ("policy: {kind: embedded, adapter: {kind: lora, rnk: 3}}", ["policy.adapter.rnk", "did you mean 'rank'"]),
        ("train: {learning_rate: fast}", ["train.learning_rate", "'fast'"]),
        ("policy: {kind: pretrained, models: [a], adapter: {rank: 8}}", ["'kind' is missing", "accepted: none, lora"]),
        ("train: {group_size: 1}", ["train.group_size", "greater than or equal to 2"]),
        ("train: {curriculum: {kind: turns}}", ["train.curriculum: turns", "environment.turns is 1", "to 2 or more"]),
        (
            "environment: modules-orchestrated\ntrain: {turn_reward: gain, discount: 0.9}",
            ["train.turn_reward: gain", "those of environment modules are not", "set train.turn_reward to whole"],
        ),
        (
            "environment: documents\ntrain: {curriculum: {kind: turns}}",
            ["train.curriculum: turns", "environment documents are not", "set train.curriculum to {kind: epochs}"],
        ),
        ("environment: {kind: coding, feedback: plain}", ["environment.feedback", "'plain'", "a list: [a, b]"]),
        (
            "environment: {kind: philosophers, prompt: compact}\nproblems: {kind: generated}",
            ["problems.kind", "'generated'", "accepted: scenarios"],
        ),
        (
            "environment: {kind: phlosophers}",
            [
                "environment.kind",
                "no environment 'phlosophers'",
                "coding, documents, modules, pettingzoo, philosophers",
            ],
        ),
        (
            "environment: {kind: nowhere.to_be.found}",
            ["environment.kind", "cannot import", "No module named 'nowhere'"],
        ),
        (
            "environment: {kind: pipeline_lib.storage}",
            ["environment.kind", "is not an environment", "it contains: none"],
        ),
        ("{environment: writing, problems: {kind: tldr, sizes: {train: 8}}}", ["problems.sizes: unknown key", "most,"]),
        ("environment: {kind: coding, tem: single}", ["environment.tem", "unknown key", "did you mean 'team'"]),
        ("problems: {kind: generated, sizes: {tran: 8}}", ["problems.sizes.tran", "did you mean 'train'"]),
        (
            "evaluate: {metric: meals_share}",
            ["evaluate.metric", "not a metric of the environment coding", "tests_passed"],
        ),
        ("evaluate: {guards: [{metric: sintax, slack: 0.1}]}", ["evaluate.guards: 'sintax'", "accepted: tests_passed"]),
        ("environment: dpbench", ["environment.prompt is default", "policy reads only compact"]),
        ("environment: {kind: philosophers, with: {train: philosophers}}", ["environment.with", "unknown key"]),
        ("environment: {kind: philosophers, message_limit: 0}", ["environment.message_limit", "got 0", "greater than"]),
        ("train: {steps: 5}", ["checkpoint_every (10)", "5 steps"]),
        ("train: {loss: {epochs: 2}}", ["epochs (2)", "clip"]),
        ("problems: {kind: humaneval, validation: 0.5, test: 0.5}", ["leave no problem to train on"]),
        (
            "problems: {kind: generated, sizes: {train: 8, test: 0}}",
            ["problems.sizes.test", "greater than or equal to 1"],
        ),
        ("problems: {kind: generated, sizes: {train: 8}}", ["problems_per_step (32)", "sizes.train (8)"]),
        ("problems: {kind: generated, levels: [9]}", ["no level 9"]),
        ("rollouts: {kind: transformers, max_new_tokens: 1024}", ["no space for a prompt"]),
        ("rollouts: {kind: vllm, process: server, urls: [http://a], tensor_parallel: 2}", ["has its own option"]),
        ("rollouts: {kind: vllm, process: inside, replicas: 2}", ["replicas above 1 need process: own"]),
        ("rollouts: {kind: vllm, devices: [0, 0], replicas: 2}", ["a GPU is named twice"]),
        ("rollouts: {kind: vllm, devices: [0], replicas: 2}", ["1 devices are too few for 2 replicas with 1 each"]),
        ("seeds: {train: [1, 1]}", ["[1, 1]", "different"]),
        ("seeds: {train: []}", ["seeds.train: got []; the list needs 1 or more values"]),
        ("train: {steps: 1.5}", ["train.steps: got 1.5; give a whole number"]),
        ("evaluate: {baselines: [debate]}", ["'debate'", "'naive_concatenation', 'sequential_pipeline' or 'one_round"]),
        ("evaluate: {baselines: [single_model]}", ["'single_model'", "'sequential_pipeline'"]),
        ("evaluate: {baselines: [sequential_pipeline, sequential_pipeline]}", ["more than once"]),
        ("evaluate: {baselines: [naive_concatenation]}", ["environment.turns 1", "the same as the base", "remove it"]),
        (
            "environment: {kind: coding, team: single}",
            ["sequential_pipeline", "a single agent has no other agents to read"],
        ),
        ("verdict: {margin: 5}", ["verdict.margin: 5 is not less than the whole range of hidden tests passed, 0 to 1"]),
        ("verdict: {margin: 1}", ["any two teams would be equivalent; 0.05 is 5 points"]),
        ("policy: qwen2.5-coder-3b-lroa", ["no preset", "did you mean 'qwen2.5-coder-3b-lora'"]),
        ("train: {loss: {kl: .inf}}", ["train.loss.kl: got inf", "a finite number"]),
        ("train: [", ["not valid YAML"]),
        ("- a", ["expected sections"]),
    ],
)
def test_mistakes_are_answered_in_words(tmp_path: Path, text: str, parts: list[str]):
    message = refusal(tmp_path, text)
    assert "params.yaml" in message or "conf" in message
    for part in parts:
        assert part in message, message


def test_a_mistake_in_the_environment_does_not_blame_the_problems_that_its_preset_brings(tmp_path: Path) -> None:
    (path := tmp_path / "params.yaml").write_text("environment: {preset: reasoning-gym, note_words: 0}\n")
    with pytest.raises(SettingsError) as caught:
        load_params(path, ROOT / "conf")
    assert str(caught.value).splitlines() == [
        f"{path}: environment.note_words: got 0; input should be greater than or equal to 1"
    ]


@pytest.mark.parametrize(
    ("section", "line"),
    [
        ("rollouts: {rows: 0}", "rollouts.rows: got 0; input should be greater than or equal to 1, or 'auto'"),
        ("rollouts: {rows: all}", "rollouts.rows: got 'all'; give a whole number, or 'auto'"),
        (
            "policy: {kind: pretrained, models: [a], adapter: {kind: lora, targets: []}}",
            "policy.adapter.targets: got []; the list needs 1 or more values, or 'all-linear'",
        ),
    ],
)
def test_a_value_of_one_of_several_kinds_is_told_once(tmp_path: Path, section: str, line: str) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(f"{section}\n")
    with pytest.raises(SettingsError) as caught:
        load_params(path, tmp_path)
    assert str(caught.value) == f"{path}: {line}"


def keys_of(model: type[pydantic.BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        yield (*above, name)
        for inner in _models(field.annotation):
            yield from keys_of(inner, (*above, name))


def optional_sections(model: type[pydantic.BaseModel]) -> Iterator[dict[str, Any]]:
    """Yield a section's content with an empty section in it, once for each one that is null unless it is given."""
    kind = {"kind": kinds_of(model)[0]} if "kind" in model.model_fields else {}
    for name, field in model.model_fields.items():
        models = _models(field.annotation)
        if models and type(None) in get_args(field.annotation):
            yield {**kind, name: {}}
        for inner in (content for one in models for content in optional_sections(one)):
            # Of an agent, by name.
            yield {**kind, name: {"helper": inner} if get_origin(field.annotation) is Mapping else inner}


def test_an_empty_section_in_the_place_of_null_is_given(tmp_path: Path) -> None:
    models = {name: _models(field.annotation) for name, field in Params.model_fields.items()}
    models |= {"environment": [environment_model(name) for name in names()], "problems": list(problem_models(None))}
    contents = [{name: one} for name, each in models.items() for model in each for one in optional_sections(model)]
    paths = {".".join(nested(content)) for content in contents}
    assert {"evaluate.ray", "policy.warm_start", "policy.agents.helper.server", "environment.tools"} <= paths
    for content in contents:
        (*keys, last), given = nested(content), given_in(content, "params.yaml")
        for key in keys:
            given = given[key]
        assert given[last] == {}, content
    assert load_params(write(tmp_path, "evaluate: {ray: {}}")).evaluate.ray == RayNodes()
    assert "policy.agents.helper.server.url: missing" in refusal(tmp_path, "policy: {agents: {helper: {server: {}}}}")


def nested(content: Any) -> tuple[str, ...]:
    """Return the keys of the empty section in a content."""
    inner = next(((key, value) for key, value in content.items() if key != "kind"), None)
    return () if inner is None else (inner[0], *nested(inner[1]))


def test_no_value_of_another_kind_is_answered_in_the_words_of_pydantic() -> None:
    refused = 0
    for keys in set(keys_of(Params)):
        for wrong in ([], {}, "x", 3, 1.5, True, None, [[]], {"a": 1}):
            content: Any = wrong
            for key in reversed(keys):
                content = {key: content}
            try:
                Params.model_validate(content)
            except pydantic.ValidationError as error:
                message = explain(error, content, "params.yaml", {})
                refused += 1
                assert not re.search("instance of|after validation|valid [a-z]|unable to", message), message
    assert refused > 1000


def test_all_mistakes_are_listed_at_once(tmp_path: Path):
    message = refusal(tmp_path, "train: {lerning_rate: 1, group_size: 1}\nverdict: {alpha: 2}")
    assert len(message.splitlines()) == 3


def test_a_missing_file_says_how_to_restore_it(tmp_path: Path):
    with pytest.raises(SettingsError, match="git checkout"):
        load_params(tmp_path / "params.yaml")


def test_a_key_that_is_written_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text("verdict:\n  margin: 0.05\n  margin: 0.7\n")
    with pytest.raises(SettingsError, match=r"params.yaml: (.|\n)*'margin' is there twice(.|\n)*line 3"):
        load_params(path, tmp_path)
    path.write_text("verdict: &same\n  margin: 0.05\nsweep: {<<: *same, margin: 0.1}\n")
    with pytest.raises(SettingsError, match="sweep"):  # an unknown section, and no key twice
        load_params(path, tmp_path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("010", 10), ("0o10", 8), ("08", 8), ("0777", 777), ("0x10", 16), ("1e1", 10), ("5.", 5)),
        *((text, None) for text in "yes no on Yes true ~ 1:30 .5 1e-4 .inf 2001-01-01 y 0b2".split()),  # noqa: SIM905
    ],
)
def test_every_file_of_settings_is_read_as_dvc_reads_it(tmp_path: Path, text: str, value: int | None) -> None:
    """DVC plans stages from ``params.yaml``, shows its values and changes them; nobody reads other values there."""
    path = write(tmp_path, f"train:\n  group_size: {text}\n")
    expected = load_yaml(str(path))
    assert read_mapping(path) == expected
    assert (
        requested_changes({}, {}, [f"train.group_size={text}"])["train.group_size"] == expected["train"]["group_size"]
    )
    (tmp_path / "conf/train").mkdir(parents=True)
    (tmp_path / "conf/train/mine.yaml").write_text(f"group_size: {text}\n")
    for content in (path.read_text(), "train: mine"):
        try:
            assert load_params(write(tmp_path, content), tmp_path / "conf").train.group_size == value
        except SettingsError:
            assert value is None
    assert value is None or expected["train"]["group_size"] == value


@pytest.mark.parametrize("given", ["samples: 4", "seed: 2000", ""])
def test_a_part_of_the_tests_episodes_leaves_the_other_part_as_it_is(tmp_path: Path, given: str) -> None:
    text = f"evaluate: {{test: {{{given}}}, validation: {{{given}}}, pass_k: [1]}}"
    found = load_params(write(tmp_path, text), ROOT / "conf").evaluate
    assert found.test.seed == 2000 and found.test.samples == (4 if "samples" in given else 8)
    assert found.validation.samples == 4 and found.validation.seed == (2000 if "seed" in given else 1000)


def _defaults(model: type[pydantic.BaseModel], place: str = "") -> Any:
    """Yield every default that is a section, with the same section made of nothing."""
    for name, field in model.model_fields.items():
        if isinstance(field.default, pydantic.BaseModel):
            yield f"{place}.{name}", field.default
            yield from _defaults(type(field.default), f"{place}.{name}")


def test_no_section_has_other_defaults_than_its_parts():
    """Else a section of which one value is given would have other values than the documented ones."""
    for place, default in _defaults(Params):
        assert default == type(default)(), place


def test_pretrained_models_are_told_generated_problems_in_plain_english_unless_somebody_chose(tmp_path: Path):
    pretrained = {"kind": "pretrained", "models": ["m"]}
    assert Params().problems.prompt == "compact"
    assert Params(policy=pretrained).problems.prompt == "plain"
    assert Params(policy=pretrained, problems={"prompt": "compact"}).problems.prompt == "compact"
    assert Params.model_validate(Params(policy=pretrained).model_dump()).problems.prompt == "plain"
    dataset = Params(policy=pretrained, problems={"kind": "humaneval"}).problems
    assert not hasattr(dataset, "prompt"), "published problems are English already"


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"environment": {"kind": "modules"}, "problems": {"kind": "classeval"}}, "of kind classeval"),
        ({"problems": {"kind": "humaneval"}}, "of kind humaneval"),
        ({"environment": {"kind": "tests.environments.test_text_task:Silent"}}, "has no method `example`"),
    ],
)
def test_a_warm_start_without_demonstrations_is_refused(sections: dict[str, Any], said: str):
    policy = {"kind": "pretrained", "models": ["m"]}
    others = {**sections, "seeds": {"single_agent": []}, "evaluate": {"baselines": []}}
    with pytest.raises(SettingsError, match=f"policy.warm_start: there are no demonstrations here: .*{said}"):
        compose({**others, "policy": {**policy, "warm_start": {}}}, ROOT / "conf")
    compose({**others, "policy": policy}, ROOT / "conf")
