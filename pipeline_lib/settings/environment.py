"""``environment`` and ``problems``: sections whose settings models are defined by the environment."""

import functools
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Union, get_args

from pydantic import BaseModel, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter, create_model
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError, core_schema

from pipeline_lib.environment_api.registry import UnknownEnvironmentError, find, names
from pipeline_lib.settings.base import CodeName, Section

DEFAULT = "coding"
"""The environment if the settings name none."""


class EnvironmentSection(Section):
    """Common settings of all environments."""

    kind: str = Field(description="name of an environment, such as coding, or import path: package.module")


#: The setting ``stop_at`` of environments whose turns are attempts at the same thing (`reward.is_enough`).
STOP_AT: Any = Field(
    1.0,
    gt=0,
    le=1,
    description="an episode ends early if a turn's reward reaches this share of the greatest possible reward",
)


class Tools(Section):
    """Limits of the tools that an agent may call within its turn, before it answers."""

    calls: int = Field(
        1, ge=1, le=8, description="calls of an agent in a turn; a further one is no call but its answer"
    )
    tokens: int = Field(128, ge=8, description="tokens that an agent reads of a result; longer ones are cut")


class CustomReward(Section):
    """A reward class of your own, with its own terms, bounds and settings (docs/rewards.md)."""

    kind: Literal["custom"] = "custom"
    path: CodeName = Field(pattern=r"^[\w.]+:\w+$", description="'package.module:ClassName' of a subclass of Reward")
    options: dict[str, Any] = Field(
        {}, description="settings of the class: keyword arguments, checked against its annotations"
    )


@functools.cache
def environment_model(kind: str) -> type[BaseModel]:
    """Return the settings model of an environment, with its ``kind`` as the one accepted value.

    Raises:
        UnknownEnvironmentError: there is no such environment.
    """
    model = find(kind).settings
    if "kind" in model.model_fields and kind in kinds_of(model):
        return model
    fields: Any = {"kind": (Literal[kind], kind)}
    made = create_model(model.__name__, __base__=model, __module__=model.__module__, **fields)
    made.__doc__ = model.__doc__
    return made


def sections_by_default(kind: str) -> dict[str, Any]:
    """Return the kind of an environment, and its settings that are sections by default, such as its reward.

    Raises:
        UnknownEnvironmentError: there is no such environment.
    """
    defaults = {name: field.default for name, field in environment_model(kind).model_fields.items()}
    sections = {name: one.model_dump(mode="json") for name, one in defaults.items() if isinstance(one, BaseModel)}
    return {"kind": kind, **sections}


def kinds_of(model: type[BaseModel]) -> tuple[str, ...]:
    """Return the values of a variant's key ``kind``."""
    return get_args(model.model_fields["kind"].annotation)


def problem_models(kind: str | None) -> tuple[type[BaseModel], ...]:
    """Return the models of an environment's problems, the default first; for None, those of all environments."""
    tasks = [find(name) for name in (names() if kind is None else (kind,))]
    return tuple(dict.fromkeys(model for task in tasks for model in task.problems))


def _read_environment(value: Any, info: core_schema.ValidationInfo) -> Any:
    if isinstance(value, BaseModel):
        return value
    if not isinstance(value, dict):
        raise PydanticCustomError("section", "a section with the key 'kind', or the name of a preset")
    if "kind" not in value:
        raise PydanticCustomError("union_tag_not_found", "'kind' is missing")
    kind = str(value["kind"])
    try:
        return environment_model(kind).model_validate(value)
    except UnknownEnvironmentError as error:
        raise PydanticCustomError("kind", "{reason}", {"reason": str(error)}) from None


def _read_problems(value: Any, info: core_schema.ValidationInfo) -> Any:
    environment = info.data.get("environment")
    if environment is None and isinstance(value, dict) and "kind" not in value:
        return value  # the environment has a mistake, which is told; whose problems these are is not known
    models = problem_models(environment.kind if environment is not None else None)
    accepted = {kind: model for model in models for kind in kinds_of(model)}
    if isinstance(value, BaseModel):
        value = value if type(value) in models else value.model_dump()
    if not isinstance(value, dict):
        return value if isinstance(value, BaseModel) else models[0].model_validate(value)
    kind = str(value.get("kind", kinds_of(models[0])[0]))
    if kind not in accepted:
        known = ", ".join(accepted)
        raise PydanticCustomError("union_tag_invalid", "no such kind", {"tag": kind, "expected_tags": known})
    return accepted[kind].model_validate({**value, "kind": kind})


class _FromEnvironment:
    """A section validated by the environment's own model; forms show the models of all known environments."""

    def __init__(self, read: Callable[[Any, Any], Any], models: Callable[[], Sequence[type[BaseModel]]]) -> None:
        self._read, self._models = read, models

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.with_info_plain_validator_function(self._read)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        models: Any = Union[tuple(self._models())]  # noqa: UP007
        union: Any = Annotated[models, Field(discriminator="kind")]
        return handler(TypeAdapter(union).core_schema)


Environment = Annotated[Any, _FromEnvironment(_read_environment, lambda: [environment_model(name) for name in names()])]
Problems = Annotated[Any, _FromEnvironment(_read_problems, lambda: problem_models(None))]
