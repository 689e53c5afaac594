"""Rewards as sums of named terms, and reward classes of your own.

A class of your own is named by ``package.module:ClassName``.  Its settings are the keyword arguments of its
constructor.  They are checked against its annotations like all settings (numbers in strings become numbers, unknown
names are refused), so a mistake is reported before any work, with the known names.
"""

from __future__ import annotations

import functools
import inspect
import traceback
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from pydantic import ConfigDict, ValidationError, create_model

from pipeline_lib.environment_api.environment import RewardError
from pipeline_lib.environment_api.registry import import_by_name

F = TypeVar("F")  # what the terms are computed from
V = TypeVar("V")  # a term: a number, or an array with a number per episode
R = TypeVar("R", bound="Reward[Any, Any]")


class Reward(ABC, Generic[F, V]):
    """Named, weighted terms.  A reward never sees texts and never runs anything."""

    bounds: tuple[float, float]  #: least and greatest sum of the terms that can occur; both are reached

    @abstractmethod
    def terms(self, facts: F) -> dict[str, V]:
        """Return every term by name, the ones that are 0 included; the reward is their sum."""


def total(terms: Mapping[str, float]) -> float:
    """Return the sum of the terms, which is the reward."""
    return float(sum(terms.values()))


def is_enough(reward: float, bounds: tuple[float, float], share: float) -> bool:
    """Return whether a turn's reward is this share of the greatest; rounding cannot keep an episode from ending.

    A greatest reward below 0 has no share that could be reached, so it has to be reached itself.
    """
    return reward >= min(share * bounds[1], bounds[1]) - 1e-9


def custom_reward(settings: Any, base: type[R], given: Mapping[str, Any] | None = None) -> R:
    """Create a reward of the user's own class.

    Args:
        settings: ``path`` (``package.module:ClassName``, importable from where the program was started) and
            ``options``, the settings of the class by name.
        base: the class it must be a subclass of.
        given: values that the environment passes to every constructor with a parameter of that name.

    Returns:
        The reward.  Its `terms` raises RewardError, with the name of the class, for whatever the class raises and for
        terms that are no numbers or have other names than before.

    Raises:
        ValueError: the module or class does not exist, is not a subclass of ``base``, rejects these settings, or has
            bounds that are no interval.
    """
    path, options = settings.path, settings.options
    expected = f"expected 'package.module:ClassName' of a subclass of {base.__module__}.{base.__qualname__}"
    module_name, _, class_name = path.partition(":")
    try:
        cls = getattr(import_by_name(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"environment.reward.path: cannot find {path!r}: {error}; {expected}") from error
    if not (isinstance(cls, type) and issubclass(cls, base)):
        what = cls.__name__ if isinstance(cls, type) else type(cls).__name__
        raise ValueError(f"environment.reward.path: {path} is {what}, which is not a reward; {expected}")
    parameters = _parameters(cls)
    passed = {name: value for name, value in (given or {}).items() if name in parameters}
    fields: dict[str, Any] = {name: field for name, field in parameters.items() if name not in passed}
    model = create_model(cls.__name__, __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=True), **fields)
    try:
        checked = model.model_validate(dict(options))
        made = cls(**{name: getattr(checked, name) for name in fields}, **passed)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg'].lower()}" for e in error.errors())
        raise ValueError(
            f"environment.reward.options: {path} does not take {dict(options)}: {problems}; its settings: "
            f"{', '.join(fields) or 'none'}"
        ) from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"environment.reward: cannot make {path} with options {dict(options)}: {error}") from error
    bounds = getattr(made, "bounds", (0.0, 0.0))
    if not (isinstance(bounds, tuple) and len(bounds) == 2 and bounds[0] < bounds[1]):
        raise ValueError(
            f"environment.reward.path: {path} must set its attribute 'bounds' to the least and the greatest "
            f"sum of its terms, got {bounds}"
        )
    object.__setattr__(made, "terms", _checked(made.terms, path))  # also if the class is a frozen dataclass
    return made


def _checked(terms: Callable[[F], dict[str, V]], path: str) -> Callable[[F], dict[str, V]]:
    """Return ``terms`` of a user's own class, with errors that name the class."""
    names: set[str] = set()  # of the first call

    @functools.wraps(terms)
    def checked(facts: F) -> dict[str, V]:
        try:
            found = terms(facts)
        except (Exception, SystemExit) as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            raise RewardError(
                f"environment.reward.path: {path} raised {type(error).__name__}: {error} "
                f"({Path(last.filename).name}, line {last.lineno})"
            ) from error
        if not isinstance(found, Mapping) or not found:
            raise RewardError(
                f"environment.reward.path: terms() of {path} returned {found!r}; it must return every term by name"
            )
        for name, value in found.items():
            if not np.issubdtype(np.asarray(value).dtype, np.number) and not isinstance(value, bool | np.bool_):
                raise RewardError(
                    f"environment.reward.path: {path} returned {value!r} for its term {name!r}; a term is a number, "
                    "0 where nothing is earned"
                )
        names.update(names or found)
        if names != set(found):
            raise RewardError(
                f"environment.reward.path: {path} returned the terms {', '.join(found)}, and before "
                f"{', '.join(sorted(names))}; return all of them every time, those that are 0 included"
            )
        return found

    return checked


def _parameters(cls: type) -> dict[str, tuple[Any, Any]]:
    """Return type and default (``...`` for none) of every keyword argument of a class's constructor."""
    if cls.__init__ is object.__init__:  # type: ignore[misc]
        return {}
    hints = typing.get_type_hints(cls.__init__)  # type: ignore[misc]
    return {
        name: (hints.get(name, Any), ... if parameter.default is parameter.empty else parameter.default)
        for name, parameter in inspect.signature(cls).parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
