"""YAML files of settings as plain data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML, YAMLError
from ruamel.yaml.error import MarkedYAMLError

from pipeline_lib.settings.mistakes import SettingsError


def read_mapping(path: Path) -> dict[str, Any]:
    """Return the content of a YAML file; empty if the file is.

    Raises:
        SettingsError: the file is missing, is not YAML, repeats a key, or holds no sections.
    """
    try:
        content = read_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(
            f"{path}: there is no such file; run from the project's folder, or restore it with `git checkout {path}`"
        ) from None
    except (YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: not valid YAML: {error}") from None
    if content is None:
        content = {}
    if not isinstance(content, dict):
        raise SettingsError(f"{path}: expected sections such as 'train:', got {type(content).__name__}")
    return content


def read_yaml(text: str) -> Any:
    """Return the content of YAML 1.2 as DVC reads it, which plans stages and changes settings in the same files.

    YAML 1.1 has other values for the same text: 8 for ``010``, true for ``yes``, 90 for ``1:30``, text for ``1e3``.

    Raises:
        YAMLError: it is not YAML, or repeats a key.
    """
    try:
        return YAML(typ="safe").load(text)
    except MarkedYAMLError:
        pass  # the fast reader does not know `[http://a]`
    try:
        return YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        error.note = None  # how to allow repeated keys
        raise
