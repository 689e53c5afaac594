"""A page of the site with every setting, its default, bounds and meaning, made from the typed settings.

python -m scripts.settings_reference            # prints it, as Markdown
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from pipeline_lib.environment_api.registry import BUILT_IN, find, names
from pipeline_lib.settings.base import is_machine_setting
from pipeline_lib.settings.environment import environment_model, kinds_of
from pipeline_lib.settings.params import Params

_HEAD = """# Every setting

Made from the typed settings (`python -m scripts.settings_reference` prints it). A section of
`params.yaml` is written out, or is the name of a preset in `conf/<section>/`. Where a section has a key `kind`, the
kind decides which other keys there are. *machine*: a setting of how the machine does the work; it changes no result and
makes nothing stale. All others are part of what a result depends on.
"""
_BOUNDS = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤", "min_length": "length ≥", "max_length": "length ≤"}


def page() -> str:
    """Return the page."""
    parts = [_HEAD]
    for section, field in Params.model_fields.items():
        parts.append(f"## {section}\n\n{_sentence(field.description)}\n")
        for model in _models(section, field):
            title = _kind(model)
            if title:
                parts.append(f"### {section}: {title}\n\n{_sentence((model.__doc__ or '').splitlines()[0])}\n")
            parts.append("| key | default | accepted | what it is |\n|---|---|---|---|")
            parts.append("\n".join(_row(*cells) for cells in _keys(model)) + "\n")
    return "\n".join(parts)


def _models(section: str, field: FieldInfo) -> list[type[BaseModel]]:
    """Return the models that a section may have: one, or one for each kind."""
    own = [kind for kind in names() if _is_built_in(kind)]
    if section == "environment":
        return [environment_model(kind) for kind in own]
    if section == "problems":
        return list(dict.fromkeys(model for kind in own for model in find(kind).problems))
    return _variants(field.annotation)


def _is_built_in(kind: str) -> bool:
    return type(find(kind)).__module__.startswith(f"{BUILT_IN}.")


def _variants(annotation: Any) -> list[type[BaseModel]]:
    """Return the models among the members of a type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (tuple, list, dict):
        return []
    return [model for member in get_args(annotation) for model in _variants(member)]


def _kind(model: type[BaseModel]) -> str:
    if "kind" not in model.model_fields:
        return ""
    return " or ".join(f"`{value}`" for value in kinds_of(model))


def _keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Yield key, default, accepted values and meaning of every setting of a model and of those inside of it."""
    for name, field in model.model_fields.items():
        if name == "kind" and not prefix:
            continue
        inner = _variants(field.annotation)
        default = field.get_default(call_default_factory=True)
        if isinstance(default, BaseModel):
            shown = _kind(type(default)) or "see below"
        else:
            shown = "required" if default is PydanticUndefined else f"`{json.dumps(default, default=_plain)}`"
        meaning = _sentence(field.description) if field.description else ""
        if is_machine_setting(field):
            meaning = f"*machine* {meaning}"
        accepted = "; ".join(filter(None, (_type(field.annotation), *_bounds(field))))
        yield f"{prefix}{name}", shown, accepted, meaning
        for variant in inner:
            kind = _kind(variant) if len(inner) > 1 else ""
            for key, value, bounds, text in _keys(variant, f"{prefix}{name}."):
                if not key.endswith(".kind"):
                    yield key, value, bounds, f"{text} (kind {kind})" if kind else text


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else str(value)


def _type(annotation: Any) -> str:
    if annotation is type(None):
        return "null"
    origin = get_origin(annotation)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in get_args(annotation))
    if origin is Annotated:
        return _type(get_args(annotation)[0])
    if origin in (tuple, list):
        members = [member for member in get_args(annotation) if member is not Ellipsis]
        return f"list of {', '.join(dict.fromkeys(map(_type, members)))}"
    if origin is dict or annotation is dict:
        return "mapping"
    if origin is not None:
        return " or ".join(dict.fromkeys(filter(None, map(_type, get_args(annotation)))))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _kind(annotation) or "section"
    return {int: "integer", float: "number", bool: "true or false", str: "text"}.get(annotation, "")


def _bounds(field: FieldInfo) -> Iterator[str]:
    for mark in field.metadata:
        for name, sign in _BOUNDS.items():
            if (value := getattr(mark, name, None)) is not None:
                yield f"{sign} {value:g}"


def _sentence(text: str | None) -> str:
    text = (text or "").strip()
    return text if not text or text.endswith((".", "!")) else f"{text}."


def _row(key: str, *cells: str) -> str:
    return "| " + " | ".join([f"`{key}`", *(" ".join(cell.split()).replace("|", "\\|") for cell in cells)]) + " |"


def main() -> None:
    """Print the page."""
    sys.stdout.write(page())


if __name__ == "__main__":
    main()
