"""Settings that are given in code, as Python values: presets by name, and every value that is given counts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline_lib.settings.load import read_preset, validate_params
from pipeline_lib.settings.params import Params

#: How messages call the place where the settings stand.
_HERE = Path("settings")


def given_params(sections: Mapping[str, Any], conf: Path) -> Params:
    """Return settings of which some sections are given.

    Args:
        sections: by name, a preset's name or a mapping.  What a preset of ``environment`` brings along for another
            section (its key ``with``) stands below the values that are given for that section; where there is no
            ``kind``, it is the default one.
        conf: folder of presets, ``<section>/<name>.yaml``.

    Raises:
        SettingsError: a preset is not there, or a setting is wrong; all mistakes are listed at once.
    """
    found = {name: _read(conf, name, value) for name, value in sections.items()}
    if isinstance(sections.get("environment"), str):
        for name, preset in found["environment"].pop("with", {}).items():
            if not isinstance(sections.get(name), str):
                found[name] = _on_top(read_preset(conf / name, name, str(preset)), found.get(name, {}))
    for name, value in found.items():
        default = getattr(Params.model_fields[name].default, "kind", None) if name in Params.model_fields else None
        if default is not None and isinstance(value, Mapping):
            found[name] = {"kind": default, **value}
    return validate_params(found, _HERE)


def _read(conf: Path, section: str, value: Any) -> Any:
    if isinstance(value, str) and section in Params.model_fields:
        return read_preset(conf / section, section, value)
    return value


def _on_top(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return both with the values of ``above`` on top; another ``kind`` takes nothing from below."""
    if above.get("kind", below.get("kind")) != below.get("kind"):
        return dict(above)
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _on_top(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged
