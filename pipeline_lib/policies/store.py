"""Write the weights of a team and read them back.

    <folder>/team.json               which agent uses which policy, and the content of each folder
    <folder>/<policy>/               an ordinary transformers folder (all weights), or an ordinary peft folder (adapter)

Of a frozen policy, and of one that a server plays, only the identity is recorded: training does not change it.

The bytes depend on the weights only: they contain no time, host or path.  Folders are not written atomically here; the
caller that writes a checkpoint does that.  Weights are safetensors; nothing is unpickled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from pipeline_lib.policies.lora import ADAPTER, base_fingerprint, is_adapted
from pipeline_lib.policies.policy import Policy, PolicyError, Team, is_remote
from pipeline_lib.storage import CorruptFileError, digest, read_json, write_json

RECORD = "team.json"
_FORMAT = 1


def save_team(team: Team, folder: Path) -> None:
    """Write every policy's trained weights (all, or the adapter) into ``folder``, which is made if need be."""
    policies = {}
    folder.mkdir(parents=True, exist_ok=True)
    for name, policy in team.policies.items():
        kind = _kind(policy)
        if kind in ("frozen", "server"):
            policies[name] = {"kind": kind, "weights": _policy_digest(policy)}
            continue
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        model: Any = policy.model
        weights = _weights(policy)
        if is_adapted(policy):
            save_file(_contiguous(_peft_names(weights)), place / "adapter_model.safetensors", {"format": "pt"})
            write_json(place / "adapter_config.json", _adapter_config(model))
        else:
            model.config.save_pretrained(place)
            model.generation_config.save_pretrained(place)
            policy.tokenizer.save_pretrained(place)
            save_file(_contiguous(weights), place / "model.safetensors", {"format": "pt"})
        policies[name] = {
            "kind": kind,
            "base": base_fingerprint(policy) if is_adapted(policy) else _shape_digest(weights),
            "weights": _digest(weights),
        }
    write_json(folder / RECORD, {"format": _FORMAT, "uses": dict(team.uses), "policies": policies})


def restore_team(team: Team, folder: Path, only: Collection[str] | None = None) -> None:
    """Load saved weights into a team that was loaded with the same policy settings, or ``only`` those of some policies.

    The version of each of these policies is incremented, so that engines with the old weights raise an error.

    Raises:
        PolicyError: there is no saved team, or it has other policies, another model or another base.
        CorruptFileError: a file is missing or unreadable, or its weights do not match their digest.
    """
    try:
        record = read_json(folder / RECORD)
    except FileNotFoundError:
        raise PolicyError(f"{folder / RECORD}: there is no saved team") from None
    saved: Mapping[str, Any] = record.get("policies", {})
    if record.get("format") != _FORMAT or set(saved) != set(team.policies):
        raise PolicyError(
            f"{folder / RECORD}: holds policies {sorted(saved)}, the team has {sorted(team.policies)}; "
            "load the team with the settings it was saved with (policy.parameters, environment.team)"
        )
    wanted = {name: policy for name, policy in team.policies.items() if only is None or name in only}
    loaded = {name: _read(policy, folder / name, saved[name]) for name, policy in wanted.items()}
    for name, policy in wanted.items():
        own = _weights(policy) if loaded[name] else {}
        with torch.no_grad():
            for key, value in loaded[name].items():
                own[key].copy_(value)
        policy.version += 1


def team_digest(team: Team) -> str:
    """Return the SHA-256 of all weights of a team, the same in memory and after `restore_team`.

    Of a frozen policy the digest is `base_fingerprint`, of one on a server that of its address and name.
    """
    return digest({name: _policy_digest(policy) for name, policy in sorted(team.policies.items())})


def _kind(policy: Policy) -> Literal["full", "adapter", "frozen", "server"]:
    """Return the kind of weights that are saved of a policy."""
    if is_remote(policy):
        return "server"
    if is_adapted(policy):
        return "adapter"
    return "full" if any(True for _ in policy.trainable()) else "frozen"


def _policy_digest(policy: Policy) -> str:
    kind = _kind(policy)
    if kind == "frozen":
        return base_fingerprint(policy)
    if kind == "server":
        model: Any = policy.model
        return digest([model.server.url if model.server else "", model.name])
    return _digest(_weights(policy))


def _read(policy: Policy, place: Path, saved: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the saved weights under the names of `_weights`, after comparing them with the policy and the record."""
    kind = _kind(policy)
    if saved["kind"] != kind:
        raise PolicyError(
            f"{place}: holds {saved['kind']} weights, those of policy {policy.name!r} are {kind}; "
            "load the team with the policy.adapter and policy.agents it was saved with"
        )
    if kind in ("frozen", "server"):
        if saved["weights"] != _policy_digest(policy):
            raise PolicyError(f"{place.parent / RECORD}: the team was saved with another {kind} policy {policy.name!r}")
        return {}
    own = _weights(policy)
    if kind == "adapter" and saved["base"] != base_fingerprint(policy):
        raise PolicyError(f"{place}: the adapter was trained on another base than policy {policy.name!r} has")
    path = place / ("adapter_model.safetensors" if kind == "adapter" else "model.safetensors")
    try:
        found = load_file(path)
    except FileNotFoundError:
        raise CorruptFileError(f"{path}: missing, although {RECORD} lists it") from None
    except SafetensorError as error:
        raise CorruptFileError(f"{path}: not readable as safetensors ({error})") from error
    names = dict(zip(_peft_names(own), own, strict=True)) if kind == "adapter" else {key: key for key in own}
    shapes = {key: tuple(own[name].shape) for key, name in names.items()}
    if {key: tuple(value.shape) for key, value in found.items()} != shapes:
        differing = sorted(
            key
            for key in shapes.keys() | found.keys()
            if key not in found or key not in shapes or tuple(found[key].shape) != shapes[key]
        )
        raise PolicyError(
            f"{path}: weights of another model than policy {policy.name!r} (for example {differing[0]}); "
            "vocabulary, width, layers or adapter rank differ"
        )
    weights = {names[key]: value for key, value in found.items()}
    if _digest(weights) != saved["weights"]:
        raise CorruptFileError(f"{path}: the weights are not the ones that {RECORD} records")
    return weights


def _weights(policy: Policy) -> dict[str, Tensor]:
    """Return the trained weights by name, tied ones once, sorted by name."""
    if is_adapted(policy):
        found = {name: parameter.detach() for name, parameter in policy.trainable()}
    else:
        found = {}
        seen: set[int] = set()
        for name, value in policy.model.state_dict().items():
            if value.data_ptr() not in seen or value.numel() == 0:
                found[name] = value
            seen.add(value.data_ptr())
    return dict(sorted(found.items()))


def _peft_names(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return adapter weights under the names that peft gives them on disk, in the same order."""
    return {name.replace(f".{ADAPTER}.", "."): value for name, value in weights.items()}


def _contiguous(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().contiguous().cpu() for name, value in weights.items()}


def _adapter_config(model: Any) -> dict[str, Any]:
    """Return peft's configuration without the base's path, which differs between machines."""
    config = model.peft_config[ADAPTER].to_dict()
    plain = {key: sorted(value) if isinstance(value, set) else value for key, value in config.items()}
    return {**plain, "base_model_name_or_path": None, "inference_mode": True}


def _shape_digest(weights: Mapping[str, Tensor]) -> str:
    return digest([[name, list(value.shape)] for name, value in weights.items()])


def _digest(weights: Mapping[str, Tensor]) -> str:
    sha = hashlib.sha256()
    for name, value in sorted(weights.items()):
        sha.update(f"{name} {value.dtype} {list(value.shape)}".encode())
        sha.update(value.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()
