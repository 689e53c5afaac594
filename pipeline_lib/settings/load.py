"""``params.yaml``: values that a person gave, presets, and defaults that are written down but not given.

The file lists every setting, so that it can be read and ``dvc exp run -S`` can change it.  Text such as ``default 60``
stands for a value that nobody gave: it is 60 unless a preset says otherwise.  A value without this word is given, and
no preset changes it; ``-S``, a cell of a study or a form may (`changed_params`).  In a list whose elements DVC reads
(``seeds``), a default's elements are in quotes.
"""

import json
import operator
import re
from collections.abc import Callable, Mapping, MutableMapping
from itertools import accumulate
from pathlib import Path
from typing import Any

import yaml
from yaml import YAMLError

from pipeline_lib.settings.compose import PRESET, combine, compose
from pipeline_lib.settings.mistakes import SettingsError, nearest
from pipeline_lib.settings.params import Params
from pipeline_lib.settings.reading import read_mapping, read_yaml

__all__ = ["Params", "SettingsError", "given_in", "load_params"]

_DEFAULT = re.compile(r"default (.+)", re.DOTALL)
_UNKNOWN = object()


def load_params(path: Path | str = "params.yaml", conf: Path | str = "conf") -> Params:
    """Read and validate the settings.

    Args:
        path: the YAML file, one mapping or preset name per section.
        conf: folder of presets, ``<section>/<name>.yaml``.

    Raises:
        SettingsError: the file is missing, is not YAML, or a setting is invalid; all mistakes are listed at once.
    """
    return compose(given_in(read_mapping(Path(path)), path), Path(conf), path)


def given_in(content: Mapping[str, Any], source: Path | str) -> dict[str, Any]:
    """Return the sections of a settings file without the defaults that it writes down.

    Raises:
        SettingsError: what is written as a default is not the default.
    """
    given: dict[str, Any] = _given(content, Params().model_dump(mode="json"), source, ())
    return given


def _given(value: Any, default: Any, source: Path | str, keys: tuple[str, ...]) -> Any:
    """Return a value without the defaults in it."""
    if not isinstance(value, Mapping):
        return value
    given = {}
    for key, inner in value.items():
        below = default.get(key, _UNKNOWN) if isinstance(default, Mapping) else _UNKNOWN
        written, place = _written_default(inner), (*keys, str(key))
        if below is _UNKNOWN and not keys:
            given[key] = inner  # no such section, which is told later, with all other mistakes
        elif written is _UNKNOWN:
            left = _given(inner, below, source, place)
            if left or not isinstance(inner, Mapping) or (below != {} and not inner):
                given[key] = left
        elif written != below:
            if below is _UNKNOWN:
                close = nearest(str(key), list(default) if isinstance(default, Mapping) else [])
                raise SettingsError(f"{source}: {'.'.join(place)}: there is no such setting{close}")
            raise SettingsError(
                f"{source}: {'.'.join(place)}: got {inner!r}, but the default is {below!r}; write a value of your own "
                "without the word default and without quotes"
            )
    return given


def _written_default(value: Any) -> Any:
    """Return the default that a value writes down, `_UNKNOWN` if it is an ordinary value."""
    if isinstance(value, str) and (match := _DEFAULT.fullmatch(value)):
        return _read(match[1])
    if isinstance(value, list) and value and all(isinstance(item, str) and item.isdigit() for item in value):
        return [int(item) for item in value]
    return _UNKNOWN


def _read(text: str) -> Any:
    try:
        return read_yaml(text)
    except YAMLError:
        return None


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
    params = compose(given_in(content, source), conf, source)
    _check_inside_null(params, changes, file, conf, who)
    return params


def _check_inside_null(params: Params, changes: Mapping[str, Any], file: Path, conf: Path, who: str) -> None:
    """Make sure that no single value gives a section that is null: its other values were chosen by nobody.

    Raises:
        SettingsError: one does; the message gives the whole section as it would be.
    """
    defaults = Params().model_dump(mode="json")
    for key in changes:
        for section in accumulate(key.split(".")[:-1], "{}.{}".format):
            if _at(defaults, section) is not None:
                continue
            content = read_mapping(file)
            put(content, {one: value for one, value in changes.items() if not one.startswith(f"{section}.")}, who)
            without, _ = combine(given_in(content, file), conf, file)
            if not isinstance(_at(without, section), Mapping):
                whole = _at(params.model_dump(mode="json"), section)
                text = yaml.safe_dump(whole, default_flow_style=True, width=10_000, sort_keys=False).strip()
                raise SettingsError(
                    f"{who} changes {key}, but {section} is null: neither {file} nor a preset sets it; give {section} "
                    f"as a whole: '{text}'"
                )


def _at(content: Any, name: str) -> Any:
    """Return what has this dotted name, `_UNKNOWN` if nothing has."""
    for part in name.split("."):
        if not isinstance(content, Mapping) or part not in content:
            return _UNKNOWN
        content = content[part]
    return content


def put(
    content: MutableMapping[str, Any],
    changes: Mapping[str, Any],
    who: str,
    replace: Callable[[MutableMapping[str, Any], str, Any], None] = operator.setitem,
) -> None:
    """Put changes into the content of ``params.yaml``: whole sections first, so that their order does not matter.

    A preset replaces the values of a section; if none is given there, it is named beside the written defaults.
    ``replace`` sets the value of a key.

    Raises:
        SettingsError: a change is of a setting inside something that has no settings.
    """
    for key, value in changes.items():
        within = [other for other in changes if other.startswith(f"{key}.")]
        if within and "." in key and not isinstance(value, Mapping):
            raise SettingsError(
                f"{who} sets {key} to {json.dumps(value)} and also {within[0]}, which then does not exist; give one of "
                "the two"
            )
    for key, value in sorted(changes.items(), key=lambda item: "." in item[0]):
        inside: Any = content
        *parents, last = key.split(".")
        for depth, part in enumerate(parents):
            there = inside.get(part)
            if there is None or (depth == 0 and isinstance(there, str)):
                inside[part] = {} if there is None else {PRESET: there}
            elif _written_default(there) is None:
                # A preset may have a section in its place: the values that are given here go on top.
                for name in (last, *reversed(parents[depth + 1 :])):
                    value = {name: value}
                last = part
                break
            elif not isinstance(there, MutableMapping):
                raise SettingsError(
                    f"{who} changes {key}, but {'.'.join(parents[: depth + 1])} is {there!r}, without settings in it"
                )
            inside = inside[part]
        if inside is content and isinstance(value, str) and PRESET in (content.get(key) or {}):
            unset = given_in({key: content[key]}, who)[key].keys() == {PRESET}
            inside, last = (content[key], PRESET) if unset else (content, key)
        replace(inside, last, value)  # unknown settings are found when all settings are validated
