"""What was audited: a description of the reward, and a digest that changes whenever the reward changes.

Training compares the digest in the audit's result with that of its own reward, because a result about another reward
does not apply.
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
    told = ", ".join(f"{name}: {value}" for name, value in settings.items() if value is not None)
    return f"'{section.kind} / {kind}'" + (f" ({told})" if told else "")


def reward_digest(section: Any) -> str:
    """Return the digest (64 hexadecimal digits) of an environment's reward: its settings, and the source it runs.

    The source is that of the module which holds the reward's class and of all that it imports from this project and
    from beside it; comments and docstrings do not count.  It is the same for all arms of an experiment.
    """
    path = find(section.kind).reward_code(section)
    return digest({"settings": _reward(section).model_dump(mode="json"), "source": named_code(path).files})


def _reward(section: Any) -> Any:
    """Return the settings of the reward: the part ``reward`` where there is one, else the whole section."""
    return getattr(section, "reward", section)
