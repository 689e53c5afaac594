"""Read ``params.yaml``, resolve presets, and explain errors.

A section of ``params.yaml`` is a mapping or the name of a preset: ``policy: qwen2.5-coder-3b-lora`` means
``conf/policy/qwen2.5-coder-3b-lora.yaml``.  So one override (``dvc exp run -S policy=...``) replaces a whole section.

A preset of ``environment`` may name presets of other sections, since another task needs other problems and another kind
of training (key ``with``: ``with: {problems: philosophers, train: philosophers}``).  These parts of the file take
precedence over such a preset: a preset named in the file, a section with another ``kind`` than the default one, and
each value that differs from its default.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from pipeline_lib.environment_api.registry import UnknownEnvironmentError
from pipeline_lib.settings.environment import DEFAULT, environment_model, kinds_of, problem_models
from pipeline_lib.settings.params import Params

EnvironmentModels = dict[str, list[type[BaseModel]]]


class SettingsError(ValueError):
    """A setting is invalid; the message names file, key, given value, accepted values and the nearest valid key."""


def load_params(
    path: Path | str = "params.yaml", conf: Path | str = "conf", sections: Mapping[str, Any] | None = None
) -> Params:
    """Read and validate the settings.

    Args:
        path: the YAML file, one mapping or preset name per section.
        conf: folder of presets, ``<section>/<name>.yaml``.
        sections: sections to read in place of those of the file.

    Raises:
        SettingsError: the file is missing, is not YAML, or a setting is invalid; all mistakes are listed at once.
    """
    path, conf = Path(path), Path(conf)
    content = {**_read_mapping(path), **(sections or {})}
    resolved: dict[str, Any] = {}
    origin: dict[str, Path] = {}
    for section, value in content.items():
        origin[section] = path
        if isinstance(value, str) and section in Params.model_fields:
            origin[section] = conf / section / f"{value}.yaml"
            value = read_preset(conf / section, section, value)
        resolved[str(section)] = value
    if isinstance(content.get("environment"), str):
        _merge_named_presets(resolved, origin, content, conf)
    return validate_params(resolved, path, origin)


def _merge_named_presets(
    resolved: dict[str, Any], origin: dict[str, Path], content: Mapping[str, Any], conf: Path
) -> None:
    """Merge the presets that the environment's preset names under ``with``; values of the file take precedence."""
    named = resolved["environment"].pop("with", {})
    if not isinstance(named, dict) or not set(named) <= set(Params.model_fields) - {"environment"}:
        raise SettingsError(
            f"{origin['environment']}: with: must contain other sections and their presets, got {named!r}"
        )
    defaults = Params().model_dump(mode="json")
    for section, name in named.items():
        own = content.get(section) or {}
        if not isinstance(own, dict) or own.get("kind") not in (None, defaults[section].get("kind")):
            continue
        preset = read_preset(conf / section, section, str(name))
        resolved[section] = _merge_preset(preset, own, defaults[section])
        origin[section] = conf / section / f"{name}.yaml"
    for section in {"problems", "evaluate"} - set(named):
        if isinstance(own := content.get(section), dict):  # defaults of another environment do not apply here
            resolved[section] = _merge_preset({}, own, defaults[section])


def _merge_preset(preset: Any, own: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the preset, overridden by the values of ``own`` that differ from their defaults."""
    result = dict(preset)
    for key, value in own.items():
        default = defaults.get(key)
        if isinstance(value, dict) and isinstance(default, dict):
            if inner := _merge_preset(result.get(key, {}), value, default):
                result[key] = inner
        elif key not in defaults or value != default:
            result[key] = value
    return result


def validate_params(content: Mapping[str, Any], path: Path, origin: Mapping[str, Path] | None = None) -> Params:
    """Validate settings that were already read; see `load_params`."""
    try:
        return Params.model_validate(content)
    except ValidationError as error:
        lines = []
        for item in error.errors():
            section = str(item["loc"][0]) if item["loc"] else ""
            lines.append(_explain(dict(item), (origin or {}).get(section, path), _environment_models(content)))
        raise SettingsError("\n".join(lines)) from None


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


def _read_mapping(path: Path) -> dict[str, Any]:
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


def read_preset(folder: Path, section: str, name: str) -> Any:
    """Return the content of the preset ``<folder>/<name>.yaml`` of a section.

    Raises:
        SettingsError: it does not exist; the message lists the known presets.
    """
    path = folder / f"{name}.yaml"
    known = sorted(file.stem for file in folder.glob("*.yaml"))
    if name not in known:
        raise SettingsError(
            f"{path}: there is no preset '{name}' for '{section}'; known presets: {', '.join(known) or 'none'}"
            f"{_nearest(name, known)}"
        )
    return _read_mapping(path)


def _environment_models(content: Mapping[str, Any]) -> EnvironmentModels:
    """Return the models that the environment defines for its sections, if the environment is known."""
    environment = content.get("environment", {"kind": DEFAULT})
    try:
        kind = str(environment["kind"])
        return {"environment": [environment_model(kind)], "problems": list(problem_models(kind))}
    except (KeyError, TypeError, UnknownEnvironmentError):
        return {}


def _explain(item: dict[str, Any], path: Path, own_models: EnvironmentModels) -> str:
    keys = [str(part) for part in _walk(item["loc"], own_models)[0]]
    name = ".".join(keys)
    given = item.get("input")
    context = item.get("ctx", {})
    if item["type"] == "extra_forbidden":
        models = _walk(item["loc"][:-1], own_models)[1]
        known = sorted({name for model in models for name in model.model_fields})
        return f"{path}: {name}: unknown key; known keys: {', '.join(known)}{_nearest(keys[-1], known)}"
    if item["type"] == "union_tag_invalid":
        kinds = [k.strip().strip("'") for k in str(context.get("expected_tags", "")).split(",")]
        tag = str(context.get("tag"))
        return f"{path}: {name}.kind: got {tag!r}; accepted: {', '.join(kinds)}{_nearest(tag, kinds)}"
    if item["type"] == "kind":
        return f"{path}: {name}.kind: {context['reason']}"
    if item["type"] == "union_tag_not_found":
        return f"{path}: {name}: 'kind' is missing; it selects the variant of the section"
    if item["type"] == "missing":
        return f"{path}: {name}: missing; it has no default"
    reason = str(item["msg"]).removeprefix("Value error, ").replace("a valid tuple", "a list: [a, b]")
    if item["type"] == "value_error":
        return f"{path}: {name or 'settings'}: {reason}"
    return f"{path}: {name}: got {given!r}; {reason[:1].lower()}{reason[1:]}"


def _walk(location: Sequence[Any], own_models: EnvironmentModels) -> tuple[list[Any], list[type[BaseModel]]]:
    """Return the keys of a location, without the variant names that pydantic inserts, and the models they lead to."""
    keys: list[Any] = []
    models: list[type[BaseModel]] = [Params]
    for part in location:
        fields = {name: model.model_fields[name] for model in models for name in model.model_fields}
        if part in fields:
            keys.append(part)
            models = own_models[part] if models == [Params] and part in own_models else _models(fields[part].annotation)
        elif variants := _variants(models, part):
            models = variants
        else:
            keys.append(part)
    return keys, models


def _variants(models: list[type[BaseModel]], part: Any) -> list[type[BaseModel]]:
    """Return the variants that a part of a location names."""
    return [model for model in models if "kind" in model.model_fields and part in kinds_of(model)]


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Return the settings models inside an annotation (the model, or the members of a union)."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def _nearest(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else ""
