"""Changes to the settings of ``params.yaml``, made by ``-S``, by a cell of a study or by a form."""

from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

from pipeline_lib.settings.compose import PRESET, compose
from pipeline_lib.settings.load import given_in
from pipeline_lib.settings.mistakes import SettingsError
from pipeline_lib.settings.params import Params
from pipeline_lib.settings.reading import read_mapping

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
    content = read_mapping(file)
    put(content, changes, who)
    source = f"{file} with the changes of {who}"
    return compose(given_in(content, source), conf, source)


def put(content: MutableMapping[str, Any], changes: Mapping[str, Any], who: str) -> None:
    """Put changes into the content of ``params.yaml``: whole sections first, so that their order does not matter.

    A preset replaces the values of a section; if none is given there, it is named beside the written defaults.

    Raises:
        SettingsError: a change is of a setting inside something that has no settings.
    """
    for key, value in sorted(changes.items(), key=lambda item: "." in item[0]):
        inside: Any = content
        *parents, last = key.split(".")
        for depth, part in enumerate(parents):
            there = inside.get(part)
            if there is None or (depth == 0 and isinstance(there, str)):
                inside[part] = {} if there is None else {PRESET: there}
            elif not isinstance(there, MutableMapping):
                raise SettingsError(
                    f"{who} changes {key}, but {'.'.join(parents)} is {there!r}, without settings in it"
                )
            inside = inside[part]
        if inside is content and isinstance(value, str) and PRESET in (content.get(key) or {}):
            unset = given_in({key: content[key]}, who)[key].keys() == {PRESET}
            inside, last = (content[key], PRESET) if unset else (content, key)
        inside[last] = value  # unknown settings are found when all settings are validated
