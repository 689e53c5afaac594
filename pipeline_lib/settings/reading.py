"""YAML files of settings as plain data."""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any, ClassVar

import yaml
from yaml import YAMLError
from yaml.constructor import ConstructorError

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
        YAMLError: it is not YAML, repeats a key, or names a version of YAML, which DVC would follow.
    """
    if text.startswith("%YAML") or "\n%YAML" in text:
        raise YAMLError("take out the line with %YAML; settings are YAML 1.2")
    try:
        return yaml.load(text, _Yaml12)
    except ValueError as error:  # a number without digits, a thirteenth month
        raise YAMLError(str(error)) from None


_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"


# The parser in C is ten times as fast; a build of PyYAML without it reads the same.
_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Yaml12(_Loader):  # type: ignore[valid-type, misc]
    """PyYAML's safe loader with the core schema of YAML 1.2, as ruamel.yaml has it, by which DVC reads."""

    yaml_implicit_resolvers: ClassVar[dict[str, list[Any]]] = {
        first: [(tag, pattern) for tag, pattern in found if tag in (_MERGE, _TAG + "null", _TAG + "timestamp")]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that is there twice."""
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    raise ConstructorError(None, None, f"the key {key!r} is there twice", key_node.start_mark)
                seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_integer(self, node: yaml.ScalarNode) -> int:
        """Return the number; digits may be parted by underscores."""
        digits = node.value.replace("_", "")
        return int(digits, {"0b": 2, "0o": 8, "0x": 16}.get(digits.lstrip("+-")[:2], 10))


_NUMBER = "-+.0123456789"
for _name, _pattern, _first in (
    ("bool", "true|True|TRUE|false|False|FALSE", "tTfF"),
    (
        "float",
        r"[-+]?\d[\d_]*(\.[\d_]*([eE][-+]?\d+)?|[eE][-+]?\d+)|[-+]?\.[\d_]+([eE][-+]\d+)?"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        _NUMBER,
    ),
    ("int", r"[-+]?(0b[01_]+|0o[0-7_]+|0x[\da-fA-F_]+|[\d_]+)", _NUMBER),
):
    _Yaml12.add_implicit_resolver(_TAG + _name, re.compile(f"(?:{_pattern})\\Z", re.ASCII), list(_first))
_Yaml12.add_constructor(f"{_TAG}int", _Yaml12.construct_integer)
