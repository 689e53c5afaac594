"""YAML files of settings as plain data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from pipeline_lib.settings.mistakes import SettingsError


def read_mapping(path: Path) -> dict[str, Any]:
    """Return the content of a YAML file; empty if the file is.

    Raises:
        SettingsError: the file is missing, is not YAML, repeats a key, or holds no sections.
    """
    try:
        text = path.read_text(encoding="utf-8")
        refuse_repeated_keys(text)
        content = yaml.safe_load(text)
    except FileNotFoundError:
        raise SettingsError(
            f"{path}: there is no such file; run from the project's folder, or restore it with `git checkout {path}`"
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: not valid YAML: {error}") from None
    if content is None:
        content = {}
    if not isinstance(content, dict):
        raise SettingsError(f"{path}: expected sections such as 'train:', got {type(content).__name__}")
    return content


def refuse_repeated_keys(text: str) -> None:
    """Raise ConstructorError if a key is written twice in a section; YAML would silently use the last one."""
    waiting = [yaml.compose(text, Loader=yaml.SafeLoader)]
    known: list[object] = []
    while waiting:
        node = waiting.pop()
        if any(node is other for other in known):  # an alias
            continue
        known.append(node)
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            seen = set()
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value in seen:
                    problem = f"the key {key.value!r} is written twice in the same section"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen.update([key.value] if isinstance(key, yaml.ScalarNode) else [])
                waiting.append(value)
