"""Changes to the settings of ``params.yaml``, made by a cell of a study or by a form."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline_lib.settings.load import SettingsError, load_params, validate_params
from pipeline_lib.settings.params import Params

Changes = dict[str, Any]
"""Settings by dotted name (``train.group_size: 4``), or whole sections, also as presets (``policy: philosophers``)."""


def changed_params(changes: Mapping[str, Any], file: Path, conf: Path, who: str) -> Params:
    """Return the settings of ``file`` with changes: first whole sections, then single settings, in the given order.

    Args:
        changes: see `Changes`.
        file: ``params.yaml``.
        conf: folder of presets.
        who: origin of the changes, for messages.

    Raises:
        SettingsError: a change names an unknown setting or preset, or the settings contradict each other.
    """
    sections = {key: value for key, value in changes.items() if "." not in key}
    content = load_params(file, conf, sections).model_dump(mode="json")
    for key, value in changes.items():
        if "." in key:
            _put(content, key, value, who)
    return validate_params(content, Path(f"{file} with the changes of {who}"))


def _put(content: dict[str, Any], key: str, value: Any, who: str) -> None:
    inside: Any = content
    *parents, last = key.split(".")
    for part in parents:
        inside = inside.get(part) if isinstance(inside, dict) else None
    if not isinstance(inside, dict):
        raise SettingsError(f"{who} changes {key}, and there is no section {'.'.join(parents)}")
    inside[last] = value  # unknown settings are found when all settings are validated
