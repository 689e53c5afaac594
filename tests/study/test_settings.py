"""The file of a study: its cells, their settings, and what it may not say."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline_lib.settings import SettingsError, load_params
from pipeline_lib.settings.study import cell_params, cells_of, load_study, reference_of

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf"
GOOD: dict[str, Any] = {
    "question": "Which?",
    "changes": {"train.steps": 40, "seeds.single_agent": [3]},
    "factors": {
        "group": {2: {"train.group_size": 2}, 4: {"train.group_size": 4, "train.steps": 20}},
        "model": {"own": {}, "lora": {"policy": "embedded-lora", "policy.layers": 3}},
    },
    "against": {"group": 4, "model": "own"},
    "seeds": [0, 1, 2],
}


def written(folder: Path, **changes: Any) -> Path:
    path = folder / "asked.yaml"
    content = {key: value for key, value in {**GOOD, **changes}.items() if value is not None}
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def test_every_cell_is_the_projects_settings_with_its_own_on_top(tmp_path: Path) -> None:
    study = load_study(written(tmp_path))
    assert list(cells_of(study)) == ["2, own", "2, lora", "4, own", "4, lora"] and reference_of(study) == "4, own"
    params = {cell: cell_params(study, cell, ROOT / "params.yaml", CONF) for cell in cells_of(study)}
    found = [(p.train.group_size, p.train.steps, p.policy.adapter.kind, p.policy.layers) for p in params.values()]
    assert found == [(2, 40, "none", 2), (2, 40, "lora", 3), (4, 20, "none", 2), (4, 20, "lora", 3)]
    assert all((p.seeds.train, p.seeds.single_agent) == ((0, 1, 2), (3,)) for p in params.values())
    plain = load_params(ROOT / "params.yaml", CONF)
    assert params["2, own"].evaluate == plain.evaluate and params["2, own"].environment == plain.environment


def test_a_preset_brings_its_others_along(tmp_path: Path) -> None:
    study = load_study(written(tmp_path, changes={"environment": "philosophers"}))
    params = cell_params(study, "2, own", ROOT / "params.yaml", CONF)
    assert (params.environment.kind, params.problems.kind) == ("philosophers", "scenarios")
    assert params.seeds.single_agent == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"question": None}, "question: missing; it has no default"),
        ({"against": {"group": 3, "model": "own"}}, "'group' must be one of 2, 4, got '3'"),
        ({"against": {"group": 2}}, "'model' must be one of own, lora"),
        ({"against": {"group": 2, "model": "own", "x": 1}}, "there is no factor x"),
        ({"against": {"group": 2, "modle": "own"}}, "there is no factor modle; factors: group, model"),
        ({"factors": {"group": {2: {}}}, "against": {"group": 2}}, "needs at least two levels"),
        ({"factors": {}}, "factors"),
        ({"factors": {"group": {"": {}, 4: {}}}, "against": {"group": 4}}, "a level of the factor 'group' has no name"),
        ({"seeds": [0, 1]}, "seeds: got [0, 1]; the list needs 3 or more values"),
        ({"seeds": "all"}, "seeds: got 'all'; this is a list: [a, b]"),
        ({"seeds": [0, 1, 1]}, "must be different"),
        ({"seeds": [0, 1, 2**64]}, "and from 0 to 4294967295"),
        ({"colour": "red"}, "colour: unknown key; known keys: against, changes, factors, question, seeds"),
        ({"changes": {"seeds.train": [5, 6, 7]}}, "the training seeds of the key seeds"),
        ({"changes": {"seeds": {"train": [5, 6, 7]}}}, "the training seeds of the key seeds"),
        (
            {
                "factors": {"a": {"x, y": {}, "x": {"train.steps": 1}}, "b": {"z": {}, "y, z": {"train.steps": 2}}},
                "against": {"a": "x", "b": "z"},
            },
            "two cells have the same name",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_file_and_key(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    path = written(tmp_path, **changes)
    with pytest.raises(SettingsError, match=r"asked\.yaml") as error:
        load_study(path)
    assert words in str(error.value)


def test_each_seed_that_is_no_whole_number_is_named_and_nothing_else(tmp_path: Path) -> None:
    path = written(tmp_path, seeds=[0, True, 2.0])
    with pytest.raises(SettingsError) as error:
        load_study(path)
    assert str(error.value).splitlines() == [
        f"{path}: seeds.{place}: got {given}; give a whole number" for place, given in ((1, True), (2, 2.0))
    ]


def test_a_level_written_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "asked.yaml"
    path.write_text("factors: {rate: {8: {train.steps: 1}, '8': {train.steps: 2}}}\n")
    with pytest.raises(SettingsError, match="'8' is written twice"):
        load_study(path)


@pytest.mark.parametrize("key", ["train.group", "trian.group_size", "policy.warm_start.step", "train.curiculum.kind"])
def test_a_change_of_a_setting_that_does_not_exist_is_refused(tmp_path: Path, key: str) -> None:
    study = load_study(written(tmp_path, changes={key: 4}))
    with pytest.raises(SettingsError, match=r"unknown key; .*did you mean"):
        cell_params(study, "2, own", ROOT / "params.yaml", CONF)


def test_a_study_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    written(tmp_path)
    with pytest.raises(SettingsError, match=r"no such study.*asked\.yaml"):
        load_study(tmp_path / "other.yaml")


@pytest.mark.parametrize("path", sorted((CONF / "studies").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_shipped_studies_can_be_run(path: Path) -> None:
    study = load_study(path)
    assert len(study.seeds) >= 5
    cells = [cell_params(study, cell, ROOT / "params.yaml", CONF) for cell in cells_of(study)]
    assert len({cell.model_dump_json() for cell in cells}) == len(cells)


@pytest.mark.parametrize(
    "file", sorted((ROOT / "docs/examples").glob("own-rewards-*.yaml")), ids=lambda file: file.stem
)
def test_studies_of_own_rewards_differ_in_nothing_else(file: Path) -> None:
    study = load_study(file)
    params = [cell_params(study, cell, ROOT / "params.yaml", CONF) for cell in cells_of(study)]
    assert [each.train.individual_reward for each in params] == [0.0, 0.5, 1.0]
    others = [each.model_copy(update={"train": None}) for each in params]
    train = [each.train.model_copy(update={"individual_reward": 0.0}) for each in params]
    assert others == others[:1] * 3 and train == train[:1] * 3
