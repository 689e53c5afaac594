"""The fields of the forms in the Prefect UI as JSON schemas: names, present values, bounds and texts of the settings.

A form's choices and present values are read from the project's files when the form is served.  An empty field leaves a
setting as it is in ``params.yaml``, or in the chosen preset.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import WithJsonSchema
from yaml import YAMLError

from pipeline_lib.settings import Params, SettingsError, load_params
from pipeline_lib.settings.compose import PRESET
from pipeline_lib.settings.load import Changes
from pipeline_lib.settings.reading import read_mapping, read_yaml
from pipeline_lib.tracking.tracker import flat

AS_IT_IS = "as in params.yaml"
"""The choice of a form that changes nothing."""

OFTEN_CHANGED = (
    "train.steps",
    "train.checkpoint_every",
    "train.problems_per_step",
    "train.group_size",
    "train.learning_rate",
    "rollouts.temperature",
    "rollouts.max_new_tokens",
    "seeds.train",
    "evaluate.test.samples",
    "audit.override",
)
"""The settings in the short form."""


def choice(folder: str, *first: str) -> WithJsonSchema:
    """Return the schema of a drop-down list: ``first``, then the names of the YAML files in ``folder``."""
    names = [*first, *sorted(path.stem for path in Path(folder).glob("*.yaml"))]
    return WithJsonSchema({"type": "string", "enum": names})


def preset_choice(section: str, about: str) -> WithJsonSchema:
    """Return the schema of the choice of a section's preset, described by ``about`` and by the present choice."""
    schema = choice(f"conf/{section}", AS_IT_IS).json_schema or {}
    return WithJsonSchema({**schema, "title": section, "description": f"{about}; now {_chosen(section)}"})


def often_changed_schema() -> WithJsonSchema:
    """Return the schema of an object with one property for each setting in `OFTEN_CHANGED`, by its dotted name."""
    whole, present = Params.model_json_schema(), _present()
    properties = {}
    for name in OFTEN_CHANGED:
        now = f", now {present[name] or 'empty'}" if name in present else ""
        properties[name] = {**_schema(whole, name), "title": f"{name}{now}"}
    return WithJsonSchema({"type": "object", "properties": properties, "additionalProperties": False})


def _present() -> dict[str, Any]:
    """Return the present values of settings by dotted name; none if a setting is wrong, which a run explains."""
    try:
        return flat(load_params().model_dump(mode="json"))
    except SettingsError:
        return {}


def _chosen(section: str) -> str:
    """Return the preset that ``params.yaml`` names for a section, in words if it names none."""
    try:
        content = read_mapping(Path("params.yaml")).get(section)
    except SettingsError:
        return "unreadable"
    named = content if isinstance(content, str) else (content or {}).get(PRESET)
    return str(named) if named else "no preset"


def _schema(whole: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the schema of one setting, without its default; of a variant section, as the first variant has it."""
    schema: Any = whole
    for part in name.split("."):
        schema = schema["properties"][part]
        schema = schema["oneOf"][0] if "oneOf" in schema else schema
        if "$ref" in schema:
            schema = whole["$defs"][schema["$ref"].rpartition("/")[2]]
    return {key: value for key, value in schema.items() if key != "default"}


OVERRIDE = WithJsonSchema(
    {
        "type": "string",
        "pattern": rf"^({'|'.join(Params.model_fields)})(\.\w+)*=.+$",
        "title": "override",
        "description": "section.key=value",
    }
)
"""The schema of one override, such as ``train.learning_rate=5e-4``."""


def requested_changes(presets: Mapping[str, str], settings: Mapping[str, Any], overrides: Sequence[str]) -> Changes:
    """Return the changes of a submitted form: presets, then single settings, then overrides.

    Empty settings (None, empty text, empty list) and the preset `AS_IT_IS` are left out.  An override is
    ``section.key=value`` or ``section=preset``, whose value is read as YAML; any other form raises SettingsError.
    """
    changes: Changes = {section: name for section, name in presets.items() if name != AS_IT_IS}
    changes |= {name: value for name, value in settings.items() if value not in (None, "", [])}
    for text in overrides:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise SettingsError(f"override {text!r}: expected section.key=value, such as train.learning_rate=5e-4")
        try:
            changes[name.strip()] = read_yaml(value)
        except YAMLError as error:
            raise SettingsError(f"override {text!r}: the value is not valid YAML: {error}") from None
    return changes
