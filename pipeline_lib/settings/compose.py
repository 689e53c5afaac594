"""One composition of the settings: the defaults, then presets, then the values that a person gave.

A given value always wins, also if it equals the default.  The settings file, ``-S``, forms, studies and Python calls
all come here, with sections by name.  A section is one of these:

- the name of a preset, ``policy: embedded-lora``: the content of ``conf/policy/embedded-lora.yaml``;
- values by key, and ``preset`` among the keys for a preset below these values: ``policy: {preset: embedded-lora,
  layers: 3}``.  A preset's own file may have this key too, and then holds what differs from that other preset.

A preset of ``environment`` may bring values of other sections, since another task needs other problems and another kind
of training (key ``with``: ``with: {rollouts: {max_new_tokens: 1}, train: {steps: 80}}``).  A preset that a section
names itself replaces them; values of the section override them.

``kind`` selects the variant of a section.  Values of another kind than the preset's replace the preset, because they
have other keys; with the preset of an environment goes what it brings for other sections.  A section without ``kind``,
such as ``environment: {kind: planning, reward: {token: 0.01}}``, has the one of its default.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pipeline_lib.environment_api.registry import UnknownEnvironmentError
from pipeline_lib.settings.environment import sections_by_default
from pipeline_lib.settings.mistakes import SettingsError, explain, nearest
from pipeline_lib.settings.params import Params
from pipeline_lib.settings.reading import read_mapping

PRESET = "preset"
"""The key of a section with the name of a preset."""


def compose(sections: Mapping[str, Any], conf: Path, source: Path | str = "settings") -> Params:
    """Return the settings that these sections describe.

    Args:
        sections: by name, a preset's name or values by key; what is not given has its default.
        conf: folder of presets, ``<section>/<name>.yaml``.
        source: where the sections come from, in messages.

    Raises:
        SettingsError: a preset does not exist, or a setting is invalid; all mistakes are listed at once.
    """
    result, origin = combine(sections, conf, source)
    return validate_params(result, source, origin)


def combine(
    sections: Mapping[str, Any], conf: Path, source: Path | str = "settings"
) -> tuple[dict[str, Any], dict[str, Path]]:
    """Return the sections with their presets, not yet validated, and the files of those that are presets alone.

    Args:
        sections, conf, source: as for `compose`.

    Raises:
        SettingsError: a preset does not exist, or is not readable.
    """
    given, names = _split(sections, source)
    origin = {name: conf / name / f"{preset}.yaml" for name, preset in names.items()}
    presets = {name: _read_preset(conf / name, preset) for name, preset in names.items()}
    if "environment" in presets:
        brought = _brought_along(presets["environment"], origin["environment"])
        if _of_another_kind(presets["environment"], given.get("environment")):
            brought = {}
        origin = {**dict.fromkeys(brought, origin["environment"]), **origin}
        presets = {**brought, **presets}
    result = {**presets, **given}
    for name in presets.keys() & given.keys():
        result[name] = _override(presets[name], given[name])
    defaults = Params().model_dump(mode="json")
    if isinstance(environment := result.get("environment"), Mapping) and "kind" in environment:
        with suppress(UnknownEnvironmentError):  # the section itself gives the reason
            defaults["environment"] = sections_by_default(str(environment["kind"]))
    for name in result.keys() & defaults.keys() - {"problems"}:  # whose default kind depends on the environment
        result[name] = _with_default_kind(result[name], defaults[name])
    return result, {name: path for name, path in origin.items() if name not in given}


def _split(sections: Mapping[str, Any], source: Path | str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the given values, and the names of presets, by section."""
    given: dict[str, Any] = {}
    names: dict[str, str] = {}
    for section, value in sections.items():
        if isinstance(value, Mapping):
            value = dict(value)
            preset = _pop_name(value, f"{source}: {section}.{PRESET}")
            if value or preset is None:
                given[section] = value
        elif isinstance(value, str) and section in Params.model_fields:
            preset = value
        else:
            given[section], preset = value, None
        if preset is not None:
            names[section] = preset
    return given, names


def _pop_name(values: dict[str, Any], where: str) -> str | None:
    """Remove the name of a preset from the values of a section, and return it."""
    preset = values.pop(PRESET, None)
    if not isinstance(preset, str | None):
        raise SettingsError(f"{where}: got {preset!r}; expected the name of a preset")
    return preset


def _brought_along(environment: dict[str, Any], path: Path) -> dict[str, dict[str, Any]]:
    """Remove the values of other sections from the preset of an environment, and return them by section."""
    brought = environment.pop("with", {})
    others = Params.model_fields.keys() - {"environment"}
    if not isinstance(brought, dict) or not all(
        section in others and isinstance(values, dict) for section, values in brought.items()
    ):
        raise SettingsError(f"{path}: with: must contain other sections and their values by key, got {brought!r}")
    return brought


def _override(below: Any, above: Any) -> Any:
    """Return ``below`` with the values of ``above``; only ``above`` if the two have different kinds."""
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return above
    if _of_another_kind(below, above):
        return dict(above)
    return {**below, **{key: _override(below.get(key), value) for key, value in above.items()}}


def _of_another_kind(below: Mapping[str, Any], above: Any) -> bool:
    """Return whether ``above`` names another kind than ``below``, and therefore replaces it."""
    return isinstance(above, Mapping) and "kind" in below and above.get("kind", below["kind"]) != below["kind"]


def _with_default_kind(value: Any, default: Any) -> Any:
    """Return values in which sections without ``kind`` have the default one."""
    if not isinstance(value, Mapping) or not isinstance(default, Mapping):
        return value
    kind = {"kind": default["kind"]} if "kind" in default else {}
    value = {**kind, **value}
    if value.get("kind") != default.get("kind"):
        return value
    return {key: _with_default_kind(inner, default.get(key)) for key, inner in value.items()}


def validate_params(content: Mapping[str, Any], source: Path | str, origin: Mapping[str, Path] | None = None) -> Params:
    """Return the settings with this content, without presets.

    Args:
        content: the sections, by key.
        source: where they come from, in messages.
        origin: by section, another file that it comes from.

    Raises:
        SettingsError: as `compose`.
    """
    try:
        return Params.model_validate(content)
    except ValidationError as error:
        raise SettingsError(explain(error, content, source, origin or {})) from None


def _read_preset(folder: Path, name: str, above: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the content of the preset ``<folder>/<name>.yaml``, with the preset that it names below it.

    Raises:
        SettingsError: a preset does not exist (the message lists the known ones), or would be below itself.
    """
    path = folder / f"{name}.yaml"
    presets = sorted(file.stem for file in folder.glob("*.yaml"))
    if name not in presets:
        brings = (folder.parent / "environment" / f"{name}.yaml").exists()
        raise SettingsError(
            f"{path}: there is no preset '{name}' for '{folder.name}'; known presets: {', '.join(presets) or 'none'}"
            f"{f'; environment={name} brings values of other sections' if brings else nearest(name, presets)}"
        )
    content = read_mapping(path)
    below = _pop_name(content, f"{path}: {PRESET}")
    if below is None:
        return content
    if below in (*above, name):
        raise SettingsError(f"{path}: {PRESET}: '{below}' would be below itself")
    whole: dict[str, Any] = _override(_read_preset(folder, below, (*above, name)), content)
    return whole
