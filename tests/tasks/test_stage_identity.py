"""A stage's identity changes with whatever can change its result, and with nothing else."""

import ast
import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from grimp import ImportGraph, build_graph
from pydantic import BaseModel

from pipeline_lib.environment_api.registry import names
from pipeline_lib.environments.coding.settings import CodingSettings
from pipeline_lib.identity import code
from pipeline_lib.settings import Params, SettingsError, load_params
from pipeline_lib.settings.base import machine_settings, result_settings
from pipeline_lib.settings.compose import validate_params
from tasks.experiment.arms import TEAM
from tasks.identity import stages as stage_identity
from tasks.identity.dvc_record import made_from, write_made
from tasks.identity.files import check, differences, write_identities
from tasks.identity.stages import (
    RUNTIME,
    STAGES,
    IdentityError,
    Reads,
    environment_code,
    identity_of,
    inputs_of,
    planned,
    settings_of,
    work_digest,
)
from tests.flows.project import ROOT

PHILOSOPHERS = {
    "environment": {"kind": "philosophers", "prompt": "compact"},
    "problems": {"kind": "scenarios"},
    "train": {"groups": "episodes"},
}


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the settings of the project; the code is the project's own."""
    shutil.copy(ROOT / "params.yaml", tmp_path / "params.yaml")
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SYMPOSIUM_HOME", str(tmp_path / ".symposium"))
    monkeypatch.delenv("DVC_STAGE", raising=False)
    stage_identity.contents.cache_clear()
    return tmp_path


def params_of(**sections: Any) -> Params:
    return validate_params({name: value for name, value in sections.items() if value is not None}, Path("params.yaml"))


def identities(params: Params) -> dict[str, dict[str, Any]]:
    return {stage: identity_of(stage, params) for stage in STAGES}


def leaves(section: BaseModel, place: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield where every single setting is."""
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from leaves(value, (*place, name))
        else:
            yield (*place, name)


def changed(section: BaseModel, place: tuple[str, ...]) -> Any:
    """Return a copy in which one setting has another value, valid or not."""
    name, *rest = place
    value = getattr(section, name)
    if place == ("kind",) and value in names():
        new = next(name for name in names() if name != value)  # an environment has code
    else:
        new = changed(value, tuple(rest)) if rest else another(value)
    return section.model_copy(update={name: new})


def another(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return f"{value}x"
        case tuple():
            return (*value, *(value[-1:] or (1,)))
        case dict():
            return {**value, "further": 1}
        case None:
            return 1
    raise TypeError(value)


@pytest.mark.parametrize("stage", STAGES)
def test_another_reader_of_imports_finds_no_module_that_a_stage_does_not_count(stage: str, imports: ImportGraph):
    """Grimp, which reads imports independently; what `RUNTIME` leaves out is not followed any further."""
    followed = {STAGES[stage].flow, "pipeline_lib.environments.coding.task"}
    waiting = list(followed)
    while waiting:
        new = {name for name in imports.find_modules_directly_imported_by(waiting.pop()) if not runtime(name)}
        waiting += new - followed
        followed |= new
    found = identity_of(stage)
    assert len(followed) > 50
    assert followed <= set(found["code"]) | set(found["named"]["environment"])


def runtime(name: str) -> bool:
    return any(name == other or name.startswith(f"{other}.") for other in RUNTIME)


@pytest.fixture(scope="module")
def imports() -> ImportGraph:
    return build_graph("pipeline_lib", "tasks", "flows", exclude_type_checking_imports=True, cache_dir=None)


VARIANTS: dict[str, Callable[[], Params]] = {
    "coding": Params,
    "philosophers": lambda: params_of(**PHILOSOPHERS, seeds={"single_agent": []}, evaluate={"baselines": []}),
    "pretrained": lambda: params_of(policy={"kind": "pretrained", "models": ["someone/model"]}),
    "vllm": lambda: params_of(rollouts={"kind": "vllm"}, sandbox={"kind": "ray"}),
    "remote": lambda: params_of(sandbox={"kind": "remote"}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_setting_is_one_of_the_result_or_one_of_the_machine(variant: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stage_identity, "planned_seeds", lambda arm: (0, 1, 2))
    for name in ("_code", "environment_code"):
        monkeypatch.setattr(stage_identity, name, functools.cache(getattr(stage_identity, name)))
    params = VARIANTS[variant]()
    machine = {name for name, _ in machine_settings(params)}
    before, usual = identities(params), Params()
    for place in leaves(params):
        if variant != "coding" and type(getattr(params, place[0])) is type(getattr(usual, place[0])):
            continue  # the first variant has it
        after = identities(changed(params, place))
        stale = [stage for stage in STAGES if after[stage] != before[stage]]
        name = ".".join(place)
        if name in machine:
            assert not stale, f"{name} is a setting of the machine and makes {stale} stale"
        elif name not in ("audit.override",):
            assert set(stale) - {"report"}, f"{name} is a setting of the result and makes nothing stale"


def test_the_code_of_an_environment_is_the_librarys_alone():
    """A word of the library, such as the name of a package, reaches nothing above it."""
    for kind in names():
        assert not {name.partition(".")[0] for name in environment_code(kind).files} & {"tasks", "flows", "symposium"}


def test_machine_settings_are_no_more_than_these():
    """Said again, independently of the types: a setting that moves here needs a test that results stay the same."""
    found = {name for make in VARIANTS.values() for name, _ in machine_settings(make())}
    rollouts = (
        "rows cuda_graphs process python urls eager memory cpu_cache_gib sleep tensor_parallel replicas devices "
        "exchange concurrency timeout"
    )
    sandbox = "slots infra_error_share min_isolation address token_file patience_s batch"
    train = "micro_batch_tokens overlap processes weights"
    expected = {f"rollouts.{name}" for name in rollouts.split()} | {f"sandbox.{name}" for name in sandbox.split()}
    expected |= {f"train.{name}" for name in train.split()} | {"policy.gradient_checkpointing", "evaluate.ray"}
    assert found == expected


def test_machine_settings_are_told_as_plain_values():
    values = dict(machine_settings(params_of(evaluate={"ray": {"gpus": 1}})))
    assert values["evaluate.ray"] == {"address": "auto", "cpus": 1, "gpus": 1} and json.dumps(values)


def test_settings_count_by_what_they_resolve_to(project: Path):
    before = identities(load_params())
    text = (project / "params.yaml").read_text()
    (project / "params.yaml").write_text(text.replace("  weight_decay: default 0.0\n", ""))  # the default, left out
    assert identities(load_params()) == before
    (project / "params.yaml").write_text(text.replace("learning_rate: default 1.0e-3", "learning_rate: 0.001"))
    assert identities(load_params()) == before
    content = (project / "conf/policy/embedded-lora.yaml").read_text()
    (project / "params.yaml").write_text(_with_policy(text, "embedded-lora"))
    preset = identities(load_params())
    assert preset["train"] != before["train"] and preset["prepare"] == before["prepare"]
    (project / "conf/policy/embedded-lora.yaml").write_text(content.replace("rank: 16", "rank: 8"))
    stale = [stage for stage, found in identities(load_params()).items() if found != preset[stage]]
    assert "train" in stale and "warm_start" not in stale, "the base does not depend on the adapter"


def test_the_warm_start_of_a_pretrained_model_depends_on_its_adapter():
    def found(**policy: Any) -> dict[str, Any]:
        return identity_of("warm_start", params_of(policy={"kind": "pretrained", "models": ["m"], **policy}))

    small = {"kind": "lora", "rank": 4}
    assert found(adapter=small) == found(), "nothing is trained"
    assert found(adapter=small, warm_start={}) != found(warm_start={})
    assert found(parameters="shared", warm_start={}) == found(warm_start={})
    assert found(warm_start={"steps": 7}) != found(warm_start={})


def _with_policy(text: str, preset: str) -> str:
    start, end = text.index("policy:"), text.index("rollouts:")
    return f"{text[:start]}policy: {preset}\n\n{text[end:]}"


def test_code_and_files_that_settings_name_count_by_content(project: Path, monkeypatch: pytest.MonkeyPatch):
    (project / "mine").mkdir()
    (project / "mine/__init__.py").write_text("")
    (project / "mine/reward.py").write_text("from mine import scale\nclass Mine:\n    factor = scale.FACTOR\n")
    (project / "mine/scale.py").write_text("FACTOR = 1\n")
    monkeypatch.syspath_prepend(str(project))
    custom = {"kind": "philosophers", "prompt": "compact", "reward": {"kind": "custom", "path": "mine.reward:Mine"}}
    without: dict[str, Any] = {"seeds": {"single_agent": []}, "evaluate": {"baselines": []}}
    params = params_of(**{**PHILOSOPHERS, **without, "environment": custom})
    before = identity_of("train", params), identity_of("audit", params), identity_of("prepare", params)
    (project / "mine/scale.py").write_text("FACTOR = 2\n")
    after = identity_of("train", params), identity_of("audit", params), identity_of("prepare", params)
    assert before[0] != after[0] and before[1] != after[1] and before[2] == after[2]
    assert differences(before[0], after[0]) == ["named: mine.reward:Mine.mine.scale: changed"]
    gone = custom | {"reward": {"kind": "custom", "path": "mine.nothing:Mine"}}
    with pytest.raises(SettingsError, match=r"mine\.nothing"):
        identity_of("train", params_of(**{**PHILOSOPHERS, **without, "environment": gone}))

    data = project / "rows.jsonl"
    data.write_text('{"task_id": 1}\n')
    problems = params_of(problems={"kind": "humaneval", "source": str(data)})
    before_file = identity_of("prepare", problems)
    data.write_text('{"task_id": 2}\n')
    assert identity_of("prepare", problems) != before_file

    model = project / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"\0" * (1 << 21))
    pretrained = params_of(policy={"kind": "pretrained", "models": [str(model)]})
    before_model = identity_of("train", pretrained)
    assert identity_of("train", pretrained) == before_model
    times = (model / "model.safetensors").stat()
    (model / "model.safetensors").write_bytes(b"\1" + b"\0" * ((1 << 21) - 1))
    os.utime(model / "model.safetensors", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert differences(before_model, identity_of("train", pretrained)) == [
        f"content: {model}.model.safetensors: changed"
    ]


def test_the_base_depends_on_feedback_only_where_later_turns_are_demonstrated():
    def base(**environment: Any) -> dict[str, Any]:
        return identity_of("warm_start", params_of(environment={"kind": "coding", **environment}))

    plain: dict[str, Any] = {"feedback": []}
    one, two = base(), base(turns=2)
    assert one == base(**plain) and set(one["settings"]["environment"]) == {"kind"}
    assert two != base(turns=2, **plain) and "sandbox" in two["settings"]
    Path("writing.yaml").write_text("environment: writing\n")
    writers = load_params(Path("writing.yaml"))
    section = writers.environment.model_copy(update={"turns": 2})
    writing = identity_of("warm_start", writers.model_copy(update={"environment": section}))
    assert set(writing["settings"]["environment"]) == {"kind"}, "it demonstrates no later turn"


def test_packages_that_programs_may_use_count_by_their_version(monkeypatch: pytest.MonkeyPatch):
    def versions(number: str) -> dict[str, Any]:
        code.version.cache_clear()
        monkeypatch.setattr(code.importlib.metadata, "version", lambda name: number if name == "pandas" else "1")
        params = params_of(sandbox={"kind": "process", "packages": ["numpy", "pandas"]})
        return {stage: identity_of(stage, params)["versions"].get("pandas") for stage in ("train", "test", "verdict")}

    try:
        assert versions("2.1") == {"train": "2.1", "test": "2.1", "verdict": None}
        assert versions("2.2") == {"train": "2.2", "test": "2.2", "verdict": None}
    finally:
        code.version.cache_clear()


def test_the_version_of_vllm_in_its_own_environment_counts(project: Path):
    """A virtual environment with the metadata of a vLLM: what counts is what its interpreter says."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "other"], check=True)
    metadata = next((project / "other").glob("lib/python*/site-packages")) / "vllm-1.0.dist-info/METADATA"
    metadata.parent.mkdir()
    found = []
    for number in ("1.0", "1.1"):
        metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {number}\n")
        code.versions_of.cache_clear()
        params = params_of(rollouts={"kind": "vllm", "python": str(project / "other/bin/python")})
        found.append([identity_of(stage, params)["versions"].get("vllm, elsewhere") for stage in ("train", "verdict")])
    assert found == [["1.0", None], ["1.1", None]]


def test_a_stage_cannot_read_what_it_does_not_depend_on():
    params = settings_of("sweep")
    assert params.evaluate.validation.samples == 4
    assert isinstance(params.environment, CodingSettings)
    with pytest.raises(IdentityError, match=r"stage sweep reads the setting evaluate\.metric"):
        _ = params.evaluate.metric
    with pytest.raises(IdentityError, match="stage sweep reads the setting verdict"):
        _ = params.verdict
    assert Reads("report", load_params()).verdict.alpha == 0.05


def test_what_the_steps_and_the_interval_are_does_not_part_checkpoints():
    def digest_of(**train: Any) -> str:
        without = ("train.checkpoint_every", "train.steps")
        return work_digest("train", params_of(train=train), {"seed": 0}, without)

    assert digest_of() == digest_of(steps=70, checkpoint_every=5)
    assert len({digest_of(), digest_of(learning_rate=5e-4), digest_of(group_size=4), digest_of(loss={"kl": 0.1})}) == 4
    critics = [{"trace": 1.0}, {"trace": 0.9}, {"learning_rate": 2e-3}, {"passes": 4}, {"width": 64}]
    judged = [digest_of(advantage={"baseline": "critic", "critic": critic}) for critic in critics]
    assert len({digest_of(), digest_of(advantage={"baseline": "counterfactual"}), *judged}) == 7


def test_a_stage_does_not_run_as_something_else_than_what_dvc_remembers(project: Path, monkeypatch: pytest.MonkeyPatch):
    check()  # without DVC there is nothing to compare with
    monkeypatch.setenv("DVC_STAGE", "train@0")
    with pytest.raises(IdentityError, match=r"there is no results/identity/train@0\.json"):
        check()
    write_identities()
    check()
    text = (project / "params.yaml").read_text()
    (project / "params.yaml").write_text(text.replace("rows: default 256", "rows: 16"))
    check()  # a setting of the machine
    (project / "params.yaml").write_text(text.replace("  learning_rate: default 1.0e-3", "  learning_rate: 2.0e-3"))
    with pytest.raises(IdentityError, match=r"train\.learning_rate: 0\.001 -> 0\.002"):
        check()
    monkeypatch.setenv("DVC_STAGE", "sweep@0")
    check()
    began = made_from("sweep@0")
    (project / "results/identity/sweep@0.json").write_text("{}")
    with pytest.raises(IdentityError, match="rewritten while the stage ran"):
        write_made("sweep@0", began)


def test_identities_that_are_right_stay_untouched(project: Path):
    write_identities()
    before = {path: path.stat().st_mtime_ns for path in (project / "results/identity").iterdir()}
    assert {path.stem for path in before} == {name for stage in STAGES for name in planned(stage)}
    write_identities()
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert all(json.loads(path.read_text())["stage"] == path.stem.partition("@")[0] for path in before)


def test_every_seed_that_the_settings_want_is_planned(project: Path):
    text = (project / "params.yaml").read_text()
    (project / "params.yaml").write_text(text.replace('train: ["0", "1", "2"]', "train: philosophers"))
    with pytest.raises(SettingsError, match=r"seeds"):
        write_identities()
    preset = project / "conf/environment/philosophers.yaml"
    content = preset.read_text()
    assert "seeds: {train: [0, 1, 2]," in content
    preset.write_text(content.replace("seeds: {train: [0, 1, 2],", "seeds: {train: [0, 1, 2, 3],"))
    start, end = text.index("environment:"), text.index("policy:")
    (project / "params.yaml").write_text(f"{text[:start]}environment: philosophers\n\n{text[end:]}")
    with pytest.raises(SettingsError, match=r"write \[3\] into seeds\.train too"):
        write_identities()
    preset.write_text(content)
    assert identity_of("train_single@0")["left_out"] is True
    assert identity_of("train@0")["left_out"] is False


def test_a_seed_that_comes_or_goes_changes_no_other_seed(project: Path):
    """A preset wants the seed 0 alone, of three that DVC plans; its identity is the same whatever else is wanted."""
    text = (project / "params.yaml").read_text()
    start, end = text.index("environment:"), text.index("policy:")
    text = f"{text[:start]}environment: coding-quick\n\n{text[end:]}"
    found = []
    for seeds in ('["0", "1", "2"]', "[0, 1]", "[0]", "[0, 1, 2]"):
        (project / "params.yaml").write_text(text.replace('train: ["0", "1", "2"]', f"train: {seeds}"))
        write_identities()
        files = (project / "results/identity").glob("*@*.json")
        found.append({path.stem: path.read_text() for path in files if "single" not in path.stem})
    preset, two, one, three = found
    assert set(preset) == {f"{stage}@{seed}" for stage in ("train", "sweep") for seed in (0, 1, 2)} == set(three)
    assert [name for name, text in preset.items() if json.loads(text)["left_out"] == name.endswith("@0")] == []
    assert set(one) == {"train@0", "sweep@0"} and one.items() <= preset.items()
    assert set(two) == {*one, "train@1", "sweep@1"} and one.items() <= two.items() <= three.items()
    assert not two.items() - one.items() & preset.items(), "a seed that was left out is trained now"


@pytest.mark.parametrize("seeds", ["[1:10]", "['010']", "[yes]", "[1.0]", "[1e0]", "7", "{0: 1}"])
def test_seeds_that_are_no_whole_numbers_are_refused(project: Path, seeds: str):
    text = (project / "params.yaml").read_text()
    (project / "params.yaml").write_text(text.replace('train: ["0", "1", "2"]', f"train: {seeds}"))
    with pytest.raises(SettingsError, match=r"seeds\.train"):
        write_identities()


def _imports(module: str) -> set[str]:
    path = ROOT / (module.replace(".", "/") + ".py")
    path = path if path.exists() else ROOT / module.replace(".", "/") / "__init__.py"
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("module", [name for name in RUNTIME if name.startswith("tasks.")])
def test_what_is_said_to_change_no_result_uses_nothing_that_could(module: str):
    """The runtime of a stage may use settings, files, tracking and places; nothing that samples or computes."""
    harmless = ("pipeline_lib.settings", "pipeline_lib.storage", "pipeline_lib.tracking", "pipeline_lib.locks")
    harmless += ("pipeline_lib.identity", "pipeline_lib.environment_api.registry", "pipeline_lib.sandbox.image")
    harmless += ("tasks.experiment.arms", *RUNTIME)
    for name in _imports(module):
        if name.startswith(("pipeline_lib", "tasks")):
            assert any(name == other or name.startswith(f"{other}.") for other in harmless), f"{module} uses {name}"


SETTINGS = sorted(
    [*(ROOT / "pipeline_lib/settings").glob("*.py"), *(ROOT / "pipeline_lib/environments").glob("*/settings.py")]
)


@pytest.mark.parametrize("path", SETTINGS, ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_settings_compute_nothing(path: Path):
    """They count by their values alone, so their classes must have no methods but validators."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            for item in node.body:
                if isinstance(item, ast.FunctionDef):
                    decorators = " ".join(ast.unparse(decorator) for decorator in item.decorator_list)
                    plain = path.stem in ("base", "environment", "reading") or "validator" in decorators
                    assert plain, f"{path.name}: {node.name}.{item.name} computes something"


def test_result_settings_leave_nothing_else_out():
    params = load_params()
    whole = set(leaves(params))
    kept = {place for place in whole if _has(result_settings(params), place)}
    assert {".".join(place) for place in whole - kept} == {name for name, _ in machine_settings(params)}


def _has(values: Any, place: tuple[str, ...]) -> bool:
    for name in place:
        if name not in values:
            return False
        values = values[name]
    return True


def test_arms_have_identities_of_their_own():
    assert STAGES["train"].arm == TEAM
    told = differences(identity_of("train"), identity_of("train_single"))
    assert len(told) == 2 and "single_agent_budget" in told[0] + told[1] and "seeds" in told[0] + told[1], told


def test_machines_that_judge_the_same_episodes_in_other_times_share_a_run_in_mlflow(project: Path) -> None:
    shutil.copy(ROOT / "dvc.yaml", project)
    (tested := project / "results/test").mkdir(parents=True)
    (trained := project / "results/train").mkdir()
    for stage in ("verdict", "report"):

        def read(stage: str = stage) -> dict[str, str]:
            stage_identity.contents.cache_clear()
            return inputs_of(settings_of(stage), None)

        (tested / "base.jsonl").write_text("first")
        for file in (tested / "cost.json", trained / "team-0.jsonl", project / "results/verdict.json"):
            file.write_text('{"seconds": 1}')
        first = read()
        assert "results/test/base.jsonl" in first
        for file in (tested / "cost.json", trained / "team-0.jsonl", project / "results/verdict.json"):
            file.write_text('{"seconds": 2}')
        assert read() == first
        (tested / "base.jsonl").write_text("other episodes")
        assert read() != first
