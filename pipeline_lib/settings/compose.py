"""One composition of the settings: the defaults, then presets, then the values that a person gave.

A given value always wins, also if it equals the default.  The settings file, ``-S``, forms, studies and Python calls
all come here, with sections by name.  A section is one of these:

- the name of a preset, ``policy: embedded-lora``: the content of ``conf/policy/embedded-lora.yaml``;
- values by key, and ``preset`` among the keys for a preset below these values: ``policy: {preset: embedded-lora,
  layers: 3}``.

A preset of ``environment`` may name presets of other sections, since another task needs other problems and another
kind of training (key ``with``: ``with: {problems: philosophers, train: philosophers}``).  A preset that a section names
itself replaces such a preset; values of the section override it.

``kind`` selects the variant of a section.  Values of another kind than the preset's replace the preset, because they
have other keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pipeline_lib.settings.environment import DEFAULT
from pipeline_lib.settings.mistakes import SettingsError, explain, nearest
from pipeline_lib.settings.params import Params
from pipeline_lib.settings.reading import read_mapping

PRESET = "preset"
"""The key of a section with the name of a preset."""

_OWN_SECTIONS = {"environment", "problems"}
"""Sections whose defaults depend on the environment."""


def compose(sections: Mapping[str, Any], conf: Path, source: Path | str = "settings") -> Params:
    """Return the settings that these sections describe.

    Args:
        sections: by name, a preset's name or values by key; what is not given has its default.
        conf: folder of presets, ``<section>/<name>.yaml``.
        source: where the sections come from, in messages.

    Raises:
        SettingsError: a preset does not exist, or a setting is invalid; all mistakes are listed at once.
    """
    given, names = _split(sections, source)
    presets = {name: read_preset(conf / name, name, preset) for name, preset in names.items()}
    if isinstance(environment := presets.get("environment"), dict):
        for name, preset in _named_by(environment, conf, names["environment"]).items():
            if name not in presets:
                names[name], presets[name] = preset, read_preset(conf / name, name, preset)
    result = {**presets, **given}
    for name in presets.keys() & given.keys():
        result[name] = _override(presets[name], given[name])
    environment = result.setdefault("environment", {})
    if isinstance(environment, dict):
        kind = environment.setdefault("kind", DEFAULT)
        defaults = Params().model_dump(mode="json")
        for name in result.keys() & (defaults.keys() if kind == DEFAULT else defaults.keys() - _OWN_SECTIONS):
            result[name] = _with_default_kind(result[name], defaults[name])
    origin = {
        name: conf / name / f"{preset}.yaml" for name, preset in names.items() if presets[name] and name not in given
    }
    return validate_params(result, source, origin)


def _split(sections: Mapping[str, Any], source: Path | str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the given values, and the names of presets, by section."""
    given: dict[str, Any] = {}
    names: dict[str, str] = {}
    for section, value in sections.items():
        if isinstance(value, Mapping):
            value = dict(value)
            preset = value.pop(PRESET, None)
            if not isinstance(preset, str | None):
                raise SettingsError(f"{source}: {section}.{PRESET}: got {preset!r}; expected the name of a preset")
            if value or preset is None:
                given[section] = value
        elif isinstance(value, str) and section in Params.model_fields:
            preset = value
        else:
            given[section], preset = value, None
        if preset is not None:
            names[section] = preset
    return given, names


def _named_by(environment: dict[str, Any], conf: Path, preset: str) -> dict[str, str]:
    """Return the presets that the preset of an environment names, by section; removes them from it."""
    named = environment.pop("with", {})
    if not isinstance(named, dict) or not set(named) <= set(Params.model_fields) - {"environment"}:
        raise SettingsError(
            f"{conf / 'environment' / preset}.yaml: with: must contain other sections and their presets, got {named!r}"
        )
    return {name: str(value) for name, value in named.items()}


def _override(below: Any, above: Any) -> Any:
    """Return ``below`` with the values of ``above``; only ``above`` if the two have different kinds."""
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return above
    if "kind" in below and above.get("kind", below["kind"]) != below["kind"]:
        return dict(above)
    return {**below, **{key: _override(below.get(key), value) for key, value in above.items()}}


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


def read_preset(folder: Path, section: str, name: str) -> dict[str, Any]:
    """Return the content of the preset ``<folder>/<name>.yaml`` of a section.

    Raises:
        SettingsError: it does not exist; the message lists the known presets.
    """
    path = folder / f"{name}.yaml"
    known = sorted(file.stem for file in folder.glob("*.yaml"))
    if name not in known:
        raise SettingsError(
            f"{path}: there is no preset '{name}' for '{section}'; known presets: {', '.join(known) or 'none'}"
            f"{nearest(name, known)}"
        )
    return read_mapping(path)
