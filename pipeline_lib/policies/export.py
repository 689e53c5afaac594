"""Write the agents of a team as folders that transformers and peft load without this project.

    <folder>/<agent>/    weights (all of them, or a LoRA adapter), tokenizer, configuration
    <folder>/base/       the model below the adapters, if it is not published elsewhere (the embedded one)

Agents that a server plays have no folder.

Weights are safetensors.  An adapter's configuration names its base, so that ``PeftModel`` finds it.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from peft import PeftModel

from pipeline_lib.policies.lora import is_adapted, merged_state
from pipeline_lib.policies.policy import Policy, PolicyError, Team
from pipeline_lib.policies.remote import is_remote
from pipeline_lib.storage import read_json, write_json

Form = Literal["trained", "merged"]
FULL, ADAPTER = "full weights", "adapter"


def export_team(
    team: Team, agents: Sequence[str], folder: Path, form: Form = "trained", base: Path | None = None
) -> dict[str, str]:
    """Write one folder per agent; agents that share a policy get the same weights.

    Args:
        team: the team with its weights.
        agents: their names.
        folder: must not exist yet.
        form: ``trained``: what training changed, all weights or the adapter; ``merged``: adapters become part of the
            weights.
        base: folder of the adapters' base, which is copied; None if the base is on a hub.

    Returns:
        By agent with a folder, its content: ``full weights`` or ``adapter``.

    Raises:
        PolicyError: the folder exists.
    """
    if folder.exists():
        raise PolicyError(f"{folder} exists already; give another folder, or remove it")
    holds = {}
    for agent in agents:
        policy = team.policy_of(agent)
        if is_remote(policy):
            continue
        holds[agent] = _write(policy, folder / agent, form)
        if holds[agent] == ADAPTER and base is not None:
            if not (folder / "base").exists():
                shutil.copytree(base, folder / "base", ignore=shutil.ignore_patterns("base.json"))
            config = folder / agent / "adapter_config.json"
            own = f"base/agents/{agent}" if (base / "agents" / agent).is_dir() else "base"
            write_json(config, {**read_json(config), "base_model_name_or_path": own})
    return holds


def _write(policy: Policy, place: Path, form: Form) -> str:
    model: Any = policy.model
    if is_adapted(policy) and form == "merged":
        model.get_base_model().save_pretrained(place, state_dict=merged_state(policy))
        held = FULL
    elif is_adapted(policy):
        assert isinstance(model, PeftModel)
        model.save_pretrained(str(place))
        (place / "README.md").unlink(missing_ok=True)  # peft's template
        held = ADAPTER
    else:
        model.save_pretrained(place)
        held = FULL
    policy.tokenizer.save_pretrained(place)
    return held
