"""The identity of a reward: a description, and a digest that changes whenever the reward changes.

Training compares the digest in the audit's result with that of its own reward, because an audit of another reward does
not apply.
"""

from __future__ import annotations

from typing import Any

from pipeline_lib.environment_api.registry import find
from pipeline_lib.identity.code import named_code
from pipeline_lib.storage import digest


def describe_reward(section: Any) -> str:
    """Return an environment's reward in words, for example ``philosophers / terms (weights: {'meals': 1.0})``."""
    settings = _reward(section).model_dump(mode="json")
    kind = settings.pop("kind")
    options = ", ".join(f"{name}: {value}" for name, value in settings.items() if value is not None)
    return f"'{section.kind} / {kind}'" + (f" ({options})" if options else "")


def reward_digest(section: Any) -> str:
    """Return the digest (64 hexadecimal digits) of an environment's reward: its settings, and the source it runs.

    The source is the module of the reward's class with all project code that it imports; comments and docstrings do not
    count.  The digest is the same for all arms of an experiment.
    """
    path = find(section.kind).reward_code(section)
    return digest({"settings": _reward(section).model_dump(mode="json"), "source": named_code(path).files})


def _reward(section: Any) -> Any:
    """Return the settings of the reward: the part ``reward`` if there is one, else the whole section."""
    return getattr(section, "reward", section)
