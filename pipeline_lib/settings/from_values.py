"""Settings given as Python values or names of presets; a given value always overrides a preset."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline_lib.settings.load import SettingsError, read_preset, validate_params
from pipeline_lib.settings.params import Params

#: The name of the settings in messages.
_HERE = Path("settings")


def params_from_values(sections: Mapping[str, Any], conf: Path) -> Params:
    """Return settings with the given sections, and defaults for all others.

    Args:
        sections: by name, a preset's name or a mapping.  Values given for a section override the preset that the
            ``environment`` preset names for it (its key ``with``).  Without ``kind``, the default kind is used.
        conf: folder of presets, ``<section>/<name>.yaml``.

    Raises:
        SettingsError: a preset does not exist, or a setting is invalid; all mistakes are listed at once.
    """
    found = {name: _read(conf, name, value) for name, value in sections.items()}
    if isinstance(sections.get("environment"), str):
        for name, preset in found["environment"].pop("with", {}).items():
            if not isinstance(sections.get(name), str):
                found[name] = _override(read_preset(conf / name, name, str(preset)), found.get(name, {}))
    for name, value in found.items():
        default = getattr(Params.model_fields[name].default, "kind", None) if name in Params.model_fields else None
        if default is not None and isinstance(value, Mapping):
            found[name] = {"kind": default, **value}
    return validate_params(found, _HERE)


def _read(conf: Path, section: str, value: Any) -> Any:
    if isinstance(value, str) and section in Params.model_fields:
        return read_preset(conf / section, section, value)
    if not isinstance(value, Mapping):
        raise SettingsError(f"{_HERE}: {section}: got {value!r}; expected the name of a preset, or values by key")
    return value


def _override(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``below`` with the values of ``above``; only ``above`` if the two have different kinds."""
    if above.get("kind", below.get("kind")) != below.get("kind"):
        return dict(above)
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _override(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged
