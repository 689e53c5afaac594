"""The record of a base policy: the settings from which it was made, and the check that they have not changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pipeline_lib.policies.policy import PolicyError, section_of
from pipeline_lib.settings.base import result_settings
from pipeline_lib.storage import digest, read_json

if TYPE_CHECKING:
    from pipeline_lib.settings.policy import EmbeddedPolicy
    from pipeline_lib.settings.policy import Policy as PolicySettings

BASE_FILE = "base.json"


def base_digest(settings: PolicySettings) -> str:
    """Return the digest of the settings that the base depends on: without sharing, and without untrained adapters."""
    kept = result_settings(settings)
    own = {name: base_digest(section) for name, section in own_bases(settings).items()}
    trained = settings.kind == "pretrained" and settings.warm_start is not None
    unused = ("parameters", "agents") if trained else ("adapter", "parameters", "agents")
    kept = {key: value for key, value in kept.items() if key not in unused}
    return digest(kept | ({"agents": own} if own else {}))


def own_bases(settings: PolicySettings) -> dict[str, EmbeddedPolicy]:
    """Return the settings of the agents whose embedded base is not that of the team, by agent."""
    if settings.kind != "embedded":
        return {}
    alone = settings.model_copy(update={"agents": {}})
    sections = {name: cast("EmbeddedPolicy", section_of(settings, name)) for name in settings.agents}
    return {name: section for name, section in sections.items() if base_digest(section) != base_digest(alone)}


def base_folder(settings: PolicySettings, base: Path, agent: str) -> Path:
    """Return the folder of an agent's base, which is its own if the base differs from the team's."""
    return base / "agents" / agent if agent in own_bases(settings) else base


def check_base(settings: PolicySettings, base: Path) -> dict[str, Any]:
    """Return the content of ``base.json`` after checking that the base was made from these settings.

    Raises:
        PolicyError: there is no base in the folder, or it was made from other settings.
    """
    path = base / BASE_FILE
    try:
        facts: dict[str, Any] = read_json(path)
    except FileNotFoundError:
        raise PolicyError(
            f"{path}: there is no base policy; make it first (`dvc repro` does), or `dvc pull` it"
        ) from None
    if facts.get("kind") != settings.kind:
        raise PolicyError(
            f"{path}: the base is of kind {facts.get('kind')!r}, policy.kind is {settings.kind!r}; make it again"
        )
    if facts.get("settings") != base_digest(settings):
        raise PolicyError(f"{path}: the base was made from other policy settings than the present ones; make it again")
    return facts
