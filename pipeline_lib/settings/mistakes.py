"""Mistakes in settings, in words."""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from pipeline_lib.environment_api.registry import UnknownEnvironmentError, names
from pipeline_lib.settings.environment import DEFAULT, environment_model, kinds_of, problem_models
from pipeline_lib.settings.params import Params

EnvironmentModels = dict[str, list[type[BaseModel]]]

_A_SECTION = "this is a section: keys with values"
_REASONS = {
    "too_short": "the list needs {min_length} or more values",
    "too_long": "the list may have {max_length} values",
    "tuple_type": "this is a list: [a, b]",
    "list_type": "this is a list: [a, b]",
    "int_from_float": "give a whole number",
    "int_parsing": "give a whole number",
    "int_type": "give a whole number",
    "float_parsing": "give a number",
    "float_type": "give a number",
    "bool_parsing": "give true or false",
    "bool_type": "give true or false",
    "string_type": "give a text",
    "model_type": _A_SECTION,
    "model_attributes_type": _A_SECTION,
    "dict_type": _A_SECTION,
}
"""What is accepted, by pydantic's name of the mistake; the words of others are good enough."""


class SettingsError(ValueError):
    """A setting is invalid; the message names file, key, given value, accepted values and the nearest valid key."""


def explain(
    error: ValidationError,
    content: Mapping[str, Any],
    source: Path | str,
    origin: Mapping[str, Path],
    root: type[BaseModel] = Params,
) -> str:
    """Return a line for each mistake; ``origin`` names the file of a section that does not come from ``source``."""
    own = _environment_models(content) if root is Params else {}
    # Pydantic counts the values of a list without those that are wrong; they have lines of their own.
    found = [
        item for item in error.errors() if item["type"] != "too_short" or len(item["input"]) < item["ctx"]["min_length"]
    ]
    lines = list[str]()
    for item in found:
        line = _explain(dict(item), origin.get(str((*item["loc"], "")[0]), source), root, own)
        value, _, reason = line.partition("; ")
        if item["type"] == "literal_error" and lines and lines[-1].startswith(f"{value}; "):
            lines[-1] += f", or {reason.removeprefix('input should be ')}"  # it may be one of several kinds
        else:
            lines.append(line)
    return "\n".join(lines)


def _environment_models(content: Mapping[str, Any]) -> EnvironmentModels:
    """Return the models that the environment defines for its sections, if the environment is known."""
    environment = content.get("environment", {"kind": DEFAULT})
    try:
        kind = str(environment["kind"])
        problems = list(problem_models(kind))
    except (KeyError, TypeError, UnknownEnvironmentError):
        return {}
    given = content.get("problems")
    wanted = given.get("kind", kinds_of(problems[0])[0]) if isinstance(given, Mapping) else None
    named = [model for model in problems if wanted in kinds_of(model)]
    return {"environment": [environment_model(kind)], "problems": named or problems}


def _explain(item: dict[str, Any], path: Path | str, root: type[BaseModel], own: EnvironmentModels) -> str:
    keys = [str(part) for part in _walk(item["loc"], root, own)[0]]
    name = ".".join(keys)
    given = item.get("input")
    context = item.get("ctx", {})
    if item["type"] == "extra_forbidden":
        models = _walk(item["loc"][:-1], root, own)[1]
        known = sorted({name for model in models for name in model.model_fields})
        return f"{path}: {name}: unknown key; known keys: {', '.join(known)}{nearest(keys[-1], known)}"
    if item["type"] == "union_tag_invalid":
        kinds = [k.strip().strip("'") for k in str(context.get("expected_tags", "")).split(",")]
        tag = str(context.get("tag"))
        return f"{path}: {name}.kind: got {tag!r}; accepted: {', '.join(kinds)}{nearest(tag, kinds)}"
    if item["type"] == "kind":
        return f"{path}: {name}.kind: {context['reason']}"
    if item["type"] == "union_tag_not_found":
        models = _walk(item["loc"], root, own)[1]
        accepted = ", ".join([kind for model in models for kind in kinds_of(model)] or names())
        return f"{path}: {name}: 'kind' is missing; it selects the variant of the section; accepted: {accepted}"
    if item["type"] == "missing":
        return f"{path}: {name}: missing; it has no default"
    reason = _REASONS[item["type"]].format_map(context) if item["type"] in _REASONS else str(item["msg"])
    reason = reason.removeprefix("Value error, ")
    if item["type"] == "value_error":
        return f"{path}: {name}: {reason}" if name else f"{path}: {reason}"
    return f"{path}: {name}: got {given!r}; {reason[:1].lower()}{reason[1:]}"


def _walk(
    location: Sequence[Any], root: type[BaseModel], own: EnvironmentModels
) -> tuple[list[Any], list[type[BaseModel]]]:
    """Return the keys of a location, without the variant names that pydantic inserts, and the models they lead to."""
    keys: list[Any] = []
    models: list[type[BaseModel]] = [root]
    may_be_several = False
    for part in location:
        fields = {name: model.model_fields[name] for model in models for name in model.model_fields}
        if part in fields:
            keys.append(part)
            may_be_several = _may_be_several(fields[part].annotation)
            models = own[part] if models == [root] and part in own else _models(fields[part].annotation)
        elif variants := _variants(models, part):
            models = variants
        elif may_be_several:
            may_be_several = False  # pydantic's name of one of them
        else:
            keys.append(part)
    return keys, models


def _may_be_several(annotation: Any) -> bool:
    """Return whether a value may be one of several kinds that are not models."""
    if get_origin(annotation) not in (Union, UnionType):
        return False
    return sum(part is not NoneType and not _models(part) for part in get_args(annotation)) > 1


def _variants(models: list[type[BaseModel]], part: Any) -> list[type[BaseModel]]:
    """Return the variants that a part of a location names."""
    return [model for model in models if "kind" in model.model_fields and part in kinds_of(model)]


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Return the settings models inside an annotation (the model, or the members of a union)."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def nearest(word: str, known: Sequence[str]) -> str:
    """Return a suggestion for a misspelt word, empty if no known word is near."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else ""
