"""Common base of all settings models, and the settings that a result depends on.

There are two kinds of settings, distinguished by their type.  A *result setting* changes results and is part of the
identity of the stages that read it.  A *machine setting* (``Machine[int]``) only says how this machine does the work:
it changes results at most by the order of additions, makes no stage stale, and may differ between a killed run and its
continuation.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo


class _Mark:
    """An annotation of a setting: machine setting, name of code, or name of files."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __repr__(self) -> str:
        return self.what


_MACHINE, _CODE, _FILES = _Mark("machine"), _Mark("code"), _Mark("files")
_Value = TypeVar("_Value")

Machine = Annotated[_Value, _MACHINE]
"""A setting of the machine, not of the result."""

CodeName = Annotated[str, _CODE]
"""A name of code, ``package.module:Class``, whose source a result depends on."""

FileName = Annotated[str, _FILES]
"""A path of a file or folder whose content a result depends on; if the path does not exist, a name on the hub."""


def _title(model: type[BaseModel]) -> str:
    """Return a model's title in a form: its ``kind`` if it is a variant, else its name in words."""
    if field := model.model_fields.get("kind"):
        return ", ".join(map(str, get_args(field.annotation)))
    return re.sub(r"\B(?=[A-Z])", " ", model.__name__.removesuffix("Settings")).lower()


class Section(BaseModel):
    """An immutable group of settings; unknown keys are refused, defaults are checked like given values.

    In forms, settings have the names that they have in ``params.yaml``.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        allow_inf_nan=False,
        model_title_generator=_title,
        field_title_generator=lambda name, field: name,
    )


def is_machine_setting(field: FieldInfo) -> bool:
    """Return whether a setting is a machine setting."""
    return _is(field, _MACHINE)


def result_settings(section: BaseModel) -> dict[str, Any]:
    """Return the result settings of a section as JSON-like data, defaults included, machine settings left out."""
    plain = section.model_dump(mode="json")
    values = {}
    for name, field in type(section).model_fields.items():
        if is_machine_setting(field):
            continue
        value = getattr(section, name)
        values[name] = result_settings(value) if isinstance(value, BaseModel) else plain[name]
    return values


def machine_settings(section: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the machine settings of a section: dotted name and value, as JSON-like data."""
    plain = section.model_dump(mode="json")
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if is_machine_setting(field):
            yield f"{prefix}{name}", plain[name]
        elif isinstance(value, BaseModel):
            yield from machine_settings(value, f"{prefix}{name}.")


def referenced_names(section: BaseModel) -> tuple[set[str], set[str]]:
    """Return the names of code, and of files, in the result settings of a section."""
    code: set[str] = set()
    files: set[str] = set()
    for name, field in type(section).model_fields.items():
        if is_machine_setting(field):
            continue
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            further = referenced_names(value)
            code |= further[0]
            files |= further[1]
        elif value:
            if _is(field, _CODE):
                code.add(value)
            if _is(field, _FILES):
                files |= {value} if isinstance(value, str) else set(value)
    return code, files


def _is(field: FieldInfo, mark: _Mark) -> bool:
    items = getattr(field.annotation, "__args__", ())  # of a tuple: ``tuple[FileName, ...]``
    return mark in field.metadata or any(mark in getattr(item, "__metadata__", ()) for item in items)
