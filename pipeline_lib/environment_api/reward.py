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
import numpy.typing as npt
from pydantic import ConfigDict, ValidationError, create_model

from pipeline_lib.environment_api.environment import RewardError, why_unusable
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


def custom_reward(
    settings: Any,
    base: type[R],
    given: Mapping[str, Any] | None = None,
    shape: Callable[[Any], tuple[int, ...]] = lambda facts: (),
) -> R:
    """Create a reward of the user's own class.

    Args:
        settings: ``path`` (``package.module:ClassName``, importable from where the program was started) and
            ``options``, the settings of the class by name.
        base: the class it must be a subclass of.
        given: values that the environment passes to every constructor with a parameter of that name.
        shape: returns the shape of each term of some facts; by default that of a number.

    Returns:
        The reward.  Its `terms` raises RewardError, with the name of the class and a place in its source, for whatever
        the class raises, for terms that are no finite numbers, and for names that are no texts or not those of before.

    Raises:
        ValueError: the module or class does not exist, is not a subclass of ``base``, rejects these settings, or has
            bounds that are no interval, or cannot be learned with (`why_unusable`).
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
    bounds: Any = getattr(made, "bounds", None)
    pair = isinstance(bounds, tuple) and len(bounds) == 2
    if not (
        pair
        and all(isinstance(end, int | float | np.integer | np.floating) for end in bounds)
        and bounds[0] < bounds[1]
    ):
        raise ValueError(
            f"environment.reward.path: {path} must set its attribute 'bounds' to a tuple of the least and the greatest "
            f"sum of its terms, got {bounds}"
        )
    if why := why_unusable(*bounds):
        raise ValueError(
            f"environment.reward.path: {path} has the bounds {bounds[0]:g} to {bounds[1]:g}; training {why}. Scale the "
            "reward, and correct its bounds"
        )
    object.__setattr__(made, "terms", _checked(made.terms, path, shape))  # also if the class is a frozen dataclass
    return made


def _checked(
    terms: Callable[[F], dict[str, V]], path: str, shape: Callable[[F], tuple[int, ...]]
) -> Callable[[F], dict[str, V]]:
    """Return ``terms`` of a user's own class, with errors that name the class."""
    names: set[str] = set()  # of the first call
    code = getattr(inspect.unwrap(terms), "__code__", None)  # a class may have made it of something else
    place = f" ({Path(code.co_filename).name}, line {code.co_firstlineno})" if code else ""

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
                f"environment.reward.path: terms() of {path} returned {found!r}{place}; it must return every term by "
                "name"
            )
        wanted = shape(facts)
        for name, value in found.items():
            if not isinstance(name, str):
                raise RewardError(
                    f"environment.reward.path: {path} returned a term with the name {name!r}, value {value!r}{place}; "
                    f"the name of a term is a text, such as {str(name)!r}"
                )
            if _counts(value, wanted):
                continue
            what = f"an array of {wanted[0]} finite numbers, one for each episode" if wanted else "one finite number"
            raise RewardError(
                f"environment.reward.path: {path} returned {_shown(value, wanted)} for its term {name!r}{place}; a "
                f"term is {what}, 0 where nothing is earned"
            )
        names.update(names or found)
        if names != set(found):
            raise RewardError(
                f"environment.reward.path: {path} returned the terms {', '.join(found)}, and before "
                f"{', '.join(sorted(names))}{place}; return all of them every time, those that are 0 included"
            )
        return found

    return checked


def _counts(value: Any, shape: tuple[int, ...]) -> bool:
    """Return whether a term is a finite number or, if its shape is not that of a number, an array of such."""
    if not shape and isinstance(value, bool | np.bool_):
        return True
    return _numbers(value, shape) is not None and bool(np.isfinite(value).all())


def _numbers(value: Any, shape: tuple[int, ...]) -> npt.NDArray[Any] | None:
    """Return a term of real numbers as an array; None if it is something else, or has another shape."""
    try:
        numbers = np.asarray(value)
    except Exception:  # whatever a class of somebody else raises if it is asked for its numbers
        return None
    real = numbers.dtype.kind in "iuf" and numbers.shape == shape
    return numbers if real and (not shape or isinstance(value, np.ndarray)) else None


def _shown(value: Any, shape: tuple[int, ...]) -> str:
    """Return what is wrong with a term in a line: the first number that is not finite, or the value."""
    if (numbers := _numbers(value, shape)) is not None:
        return f"{numbers[~np.isfinite(numbers)][0]}"
    with np.printoptions(threshold=8, edgeitems=3):
        return " ".join(repr(value).split())[:200]


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
