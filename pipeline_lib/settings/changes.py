"""Settings with changes on top of ``params.yaml``: what a cell of a study or a form asks for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline_lib.settings.load import SettingsError, load_params, validate_params
from pipeline_lib.settings.params import Params

Changes = dict[str, Any]
"""Settings by dotted name (``train.group_size: 4``), or whole sections, also as presets (``policy: philosophers``)."""


def changed_params(changes: Mapping[str, Any], file: Path, conf: Path, who: str) -> Params:
    """Return the settings of ``file`` with changes: first whole sections, then single settings, in their order.

    Args:
        changes: see `Changes`.
        file: ``params.yaml``.
        conf: folder of presets.
        who: what asks for the changes, for messages.

    Raises:
        SettingsError: a change names no setting or no preset, or the settings do not go together.
    """
    sections = {key: value for key, value in changes.items() if "." not in key}
    content = load_params(file, conf, sections).model_dump(mode="json")
    for key, value in changes.items():
        if "." in key:
            _put(content, key, value, who)
    return validate_params(content, Path(f"{file} with the changes of {who}"))


def _put(content: dict[str, Any], key: str, value: Any, who: str) -> None:
    inside: Any = content
    *way, last = key.split(".")
    for part in way:
        inside = inside.get(part) if isinstance(inside, dict) else None
    if not isinstance(inside, dict):
        raise SettingsError(f"{who} changes {key}, and there is no section {'.'.join(way)}")
    inside[last] = value  # whether there is such a setting is checked with all others
