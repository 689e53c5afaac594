"""Forms: their choices and bounds are those of the settings, and a filled-in form changes what it says."""

import shutil
from pathlib import Path

import jsonschema
import pytest
from pydantic import TypeAdapter

from pipeline_lib.settings import Params, SettingsError, load_params
from pipeline_lib.settings.load import changed_params
from tasks.chain.form import (
    AS_IT_IS,
    OFTEN_CHANGED,
    OVERRIDE,
    choice,
    often_changed_schema,
    preset_choice,
    requested_changes,
)
from tasks.chain.params_file import write_changes

ROOT = Path(__file__).parents[2]


def form(presets: dict[str, str], settings: dict, overrides: list[str]) -> Params:
    return changed_params(
        requested_changes(presets, settings, overrides), ROOT / "params.yaml", ROOT / "conf", "the form"
    )


def test_an_empty_form_changes_nothing() -> None:
    nothing = dict(zip(OFTEN_CHANGED, [None, "", []] * len(OFTEN_CHANGED), strict=False))
    assert form({"environment": AS_IT_IS, "policy": AS_IT_IS}, nothing, []) == load_params(
        ROOT / "params.yaml", ROOT / "conf"
    )


def test_presets_come_first_then_settings_then_overrides() -> None:
    settings = {"train.steps": 20, "seeds.train": [5, 6]}
    found = form(
        {"environment": "coding-quick"},
        settings,
        ["train.learning_rate=5e-4", "problems.kind=mbpp", "problems.source=my.jsonl"],
    )
    preset = form({"environment": "coding-quick"}, {}, [])
    assert (found.train.steps, found.train.learning_rate, found.seeds.train) == (20, 5e-4, (5, 6))
    assert found.policy == preset.policy != Params().policy
    assert (found.problems.kind, found.problems.source) == ("mbpp", "my.jsonl")
    assert form({}, {"train.steps": 20}, ["train.steps=30"]).train.steps == 30


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["train.lerning_rate=1"], "train.lerning_rate: unknown key; .*did you mean 'learning_rate'"),
        (["policy=large"], "there is no preset 'large' for 'policy'; known presets: "),
        (["train.curiculum.kind=levels"], "train.curiculum: unknown key; .*did you mean 'curriculum'"),
        (["train.schedule=fast"], "train.schedule: got 'fast'; input should be 'constant', 'linear' or 'cosine'"),
        (["train.loss=[1"], "not valid YAML"),
        (["train.loss"], "expected section.key=value"),
    ],
)
def test_a_wrong_override_is_named_with_what_is_accepted(overrides: list[str], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        form({}, {}, overrides)


def test_fields_have_the_bounds_and_texts_of_the_settings() -> None:
    schema = often_changed_schema().json_schema
    assert schema is not None
    assert set(schema["properties"]) == set(OFTEN_CHANGED)
    steps = schema["properties"]["train.steps"]
    assert (steps["minimum"], steps["title"], steps["description"]) == (1, "train.steps, now 60", "updates per run")
    assert "default" not in steps, "an empty field leaves the setting as it is"
    jsonschema.validate({"train.learning_rate": 1e-4}, schema)
    for wrong in ({"train.steps": 0}, {"train.learning_rate": 2}, {"seeds.train": []}, {"train.speed": 1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


def test_fields_show_what_is_chosen_at_present(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "conf", "conf")
    text = (ROOT / "params.yaml").read_text()
    Path("params.yaml").write_text(text)
    write_changes(Path("params.yaml"), {"train": "coding-paper", "train.learning_rate": 5e-4}, "me")
    properties = (often_changed_schema().json_schema or {})["properties"]
    assert properties["train.learning_rate"]["title"] == "train.learning_rate, now 0.0005"
    assert properties["train.steps"]["title"] == f"train.steps, now {load_params().train.steps}"
    assert properties["audit.override"]["title"] == "audit.override, now empty"
    assert (preset_choice("train", "how").json_schema or {})["description"] == "how; now coding-paper"
    assert (preset_choice("policy", "who").json_schema or {})["description"] == "who; now no preset"
    Path("params.yaml").write_text("train: {stps: 1}\n")  # the run says what is wrong
    assert (often_changed_schema().json_schema or {})["properties"]["train.steps"]["title"] == "train.steps"


def test_a_list_offers_the_files_that_are_there() -> None:
    schema = choice(str(ROOT / "conf/policy"), AS_IT_IS).json_schema
    assert schema is not None
    assert schema["enum"] == [AS_IT_IS, *sorted(path.stem for path in (ROOT / "conf/policy").glob("*.yaml"))]


@pytest.mark.parametrize(
    ("text", "fine"), [("train.loss.kl=0.1", True), ("policy=x", True), ("steps=1", False), ("train", False)]
)
def test_an_override_names_a_section(text: str, fine: bool) -> None:
    assert OVERRIDE.json_schema is not None
    assert jsonschema.Draft202012Validator(OVERRIDE.json_schema).is_valid(text) == fine


def test_two_blocks_of_samples_say_which_is_which() -> None:
    schema = TypeAdapter(Params).json_schema()["$defs"]["EvaluateSettings"]["properties"]
    assert schema["validation"]["title"] == "validation" and "validation split" in schema["validation"]["description"]
    assert schema["test"]["title"] == "test" and "held-out split" in schema["test"]["description"]
