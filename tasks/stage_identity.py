"""What each stage depends on: the one place that knows.

`STAGES` says which flow a stage runs and which settings it reads; everything else follows.  The code is what the flow
imports (`pipeline_lib.identity.code`); the settings are the resolved values of the named sections, with defaults and
presets, without those of the machine; what they name by a string counts by its content.  ``python -m flows.identity``
writes an identity per stage to ``results/identity/``, and every other stage of ``dvc.yaml`` depends on its own file
there and on outputs of other stages.  A stage refuses to run under an identity that is not its own (`check`).
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pipeline_lib.identity.code import Code, code_of, named_code
from pipeline_lib.identity.content import Contents
from pipeline_lib.settings import Params, SettingsError, load_params
from pipeline_lib.settings.base import named_in, result_settings
from pipeline_lib.storage import CorruptFileError, canonical_json, digest, read_json, write_json
from tasks.arms import IDENTITIES, SINGLE, TEAM, seeds_of
from tasks.environment import places

RUNTIME = (
    # Settings count by their resolved values.
    "pipeline_lib.settings",
    # What only remembers, names, starts, shows and records.  A test holds that none of it computes.
    "pipeline_lib.identity",
    "pipeline_lib.locks",
    "pipeline_lib.tracking",
    *(
        f"tasks.{name}"
        for name in (
            "arguments", "caching", "companions", "conducting", "endings", "environment", "hand_over", "identity",
            "prefect_database", "processes", "progress", "servers", "stage", "stage_identity", "tagging", "tether",
        )
    ),
)  # fmt: skip
"""Modules that change no result, whatever they do."""


@dataclass(frozen=True, slots=True)
class Spec:
    """One stage.

    Attributes:
        flow: module of its flow.
        reads: settings it may read: sections, or single values of one (``evaluate.test``).
        ignores: settings inside those sections that it does not read.
        arm: whose training it belongs to, if that is one arm's only.
    """

    flow: str
    reads: tuple[str, ...]
    ignores: tuple[str, ...] = ()
    arm: str = ""


_PLAYING = ("environment", "policy", "rollouts", "sandbox")
_PLANNING = (
    "environment", "policy.kind", "evaluate", "seeds", "train.steps", "train.checkpoint_every", "verdict",
    "rollouts.temperature", "rollouts.top_p", "rollouts.top_k", "rollouts.max_new_tokens", "sandbox.limits",
)  # fmt: skip

STAGES: dict[str, Spec] = {
    "prepare": Spec("flows.prepare", ("problems",)),
    "warm_start": Spec("flows.warm_start", ("policy",), ("policy.adapter", "policy.parameters")),
    "audit": Spec("flows.audit", (*_PLAYING, "audit"), ("audit.override",)),
    "train": Spec("flows.train", (*_PLAYING, "train", "audit.override"), arm=TEAM),
    "train_single": Spec("flows.train", (*_PLAYING, "train", "audit.override"), arm=SINGLE),
    "preregister": Spec("flows.preregister", _PLANNING),
    "sweep": Spec("flows.sweep", (*_PLAYING, "evaluate.pass_k", "evaluate.validation"), arm=TEAM),
    "sweep_single": Spec("flows.sweep", (*_PLAYING, "evaluate.pass_k", "evaluate.validation"), arm=SINGLE),
    "select": Spec("flows.select", _PLANNING),
    "test": Spec("flows.test", (*_PLAYING, "evaluate.baselines", "evaluate.test", "seeds")),
    "verdict": Spec("flows.verdict", _PLANNING),
    "report": Spec("flows.report", tuple(Params.model_fields)),
}


class IdentityError(RuntimeError):
    """A stage would run as something else than what it will be remembered as; the message says what to do."""


class Reads:
    """The settings as one stage may read them: what it does not depend on cannot be read by mistake.

    Attributes:
        stage: name in `STAGES`.
        whole: all settings, for who names and records a run.
    """

    def __init__(self, stage: str, whole: Params, section: Any = None, prefix: str = "") -> None:
        self.stage = stage
        self.whole = whole
        self._section = whole if section is None else section
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        dotted = self._prefix + name
        reads = STAGES[self.stage].reads
        if dotted in reads:
            return getattr(self._section, name)
        if any(other.startswith(f"{dotted}.") for other in reads):
            return Reads(self.stage, self.whole, getattr(self._section, name), f"{dotted}.")
        raise IdentityError(
            f"stage {self.stage} reads the setting {dotted}, which its results are not known to depend on; "
            f"add it to `reads` of {self.stage} in tasks/stage_identity.py"
        )


def settings_of(stage: str, arm: str = TEAM) -> Params:
    """Return the settings that a stage may read, from ``params.yaml`` and its presets.

    Raises:
        SettingsError: as `load_params`.
    """
    name = f"{stage}_single" if arm == SINGLE else stage
    return cast(Params, Reads(name, load_params()))


def whole(params: Params) -> Params:
    """Return all settings, also where ``params`` are those of one stage."""
    return params.whole if isinstance(params, Reads) else params


def identity_of(stage: str, params: Params | None = None) -> dict[str, Any]:
    """Return what a stage depends on, apart from the outputs of other stages, as plain JSON.

    Args:
        stage: name in `STAGES`, for all training seeds.
        params: all settings; by default those of ``params.yaml``.

    Returns:
        ``settings`` (resolved values by section), ``code`` (digests by module), ``versions`` of libraries, ``named``
        (code that settings name), ``content`` (digests of files that settings name), ``left_out`` (seeds that DVC
        plans and the settings do not want), ``image`` of the sandbox, if it has one.

    Raises:
        SettingsError: a setting names code that is not there.
    """
    spec = STAGES[stage]
    params = load_params() if params is None else params
    found: dict[str, Any] = {"stage": stage, "settings": _settings(spec, params)}
    code = _code(spec.flow)
    found["code"], found["versions"] = code.files, dict(code.versions)
    found["named"], found["content"] = {}, {}
    for section in [name for name in spec.reads if "." not in name]:
        code_names, file_names = named_in(getattr(params, section))
        for name in sorted(code_names):
            try:
                own = named_code(name)
            except ValueError as error:
                raise SettingsError(f"{section}: {error}") from None
            found["named"][name] = own.files
            found["versions"] |= own.versions
        for name in sorted(file_names):
            path = Path(name).expanduser()
            if path.exists():
                found["content"][name] = contents().files(path) if path.is_dir() else contents().of(path)
    if spec.arm:
        found["left_out"] = sorted(set(planned_seeds(spec.arm)) - set(seeds_of(params, spec.arm)))
    if "sandbox" in spec.reads and (image := _image(params)):
        found["image"] = image
    return found


def work_digest(stage: str, params: Params, inputs: Mapping[str, Any], without: tuple[str, ...] = ()) -> str:
    """Return the digest of a stage's identity together with its inputs (64 hexadecimal digits).

    Args:
        stage: name in `STAGES`.
        params: the settings, whole or those of the stage.
        inputs: digests of what it reads from other stages, and anything else that tells two works apart.
        without: settings that may differ all the same, such as ``train.steps``.
    """
    identity = identity_of(stage, whole(params))
    for dotted in without:
        section, name = dotted.split(".")
        identity["settings"][section].pop(name, None)
    return digest({"identity": identity, "inputs": dict(inputs)})


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Say what differs between two identities, a line each: ``train.learning_rate: 0.001 -> 0.0005``."""
    lines = []
    for part in ("settings", "code", "versions", "named", "content", "left_out", "image"):
        prefix = "" if part == "settings" else f"{part}: "
        lines += [f"{prefix}{line}" for line in _differences(old.get(part), new.get(part))]
    return lines


def write_identities(folder: Path = IDENTITIES) -> None:
    """Write the identity of every stage to ``<folder>/<stage>.json``; files that are right already stay untouched.

    Raises:
        SettingsError: a setting is wrong.
    """
    params = load_params()
    check_seeds(params)
    for stage in STAGES:
        path, identity = folder / f"{stage}.json", identity_of(stage, params)
        if read_identity(path) != identity:
            write_json(path, identity)


def changed_identities(folder: Path = IDENTITIES) -> list[str]:
    """Return the stages whose identity is another than the one written last."""
    params = load_params()
    check_seeds(params)
    return [name for name in STAGES if read_identity(folder / f"{name}.json") != identity_of(name, params)]


def read_identity(path: Path) -> dict[str, Any] | None:
    """Return a written identity, or None where there is none that can be read."""
    try:
        return dict(read_json(path))
    except (FileNotFoundError, CorruptFileError, TypeError, ValueError):
        return None


def check(folder: Path = IDENTITIES) -> None:
    """Make sure that the stage that DVC runs here is what DVC will remember it as; without DVC, do nothing.

    DVC depends on the identity that was written last.  Code or settings may have changed since: in the middle of a
    run, or before ``dvc repro --single-item``, which leaves the stage ``identity`` out.

    Raises:
        IdentityError: they have; the message names them.
    """
    stage = os.environ.get("DVC_STAGE", "").partition("@")[0]
    if stage not in STAGES:
        return
    written = read_identity(folder / f"{stage}.json")
    now = identity_of(stage)
    if written == now:
        return
    lines = differences(written, now) if written else [f"there is no {folder / stage}.json"]
    shown = "\n  ".join([*lines[:12], *(["..."] if len(lines) > 12 else [])])
    raise IdentityError(
        f"stage {stage} would not be what DVC remembers it as: since the stage `identity` ran, this has changed:\n"
        f"  {shown}\nrun `dvc repro` (or `python -m flows.experiment`) again, which looks at it first"
    )


@contextlib.contextmanager
def unchanged(folder: Path = IDENTITIES) -> Iterator[None]:
    """Make sure that nobody writes another identity while DVC runs a stage: DVC reads it when the stage has ended.

    Raises:
        IdentityError: somebody did; what the stage made is not credited to it.
    """
    path = folder / f"{os.environ.get('DVC_STAGE', '').partition('@')[0]}.json"
    before = path.read_bytes() if path.is_file() else b""
    yield
    if path.is_file() and path.read_bytes() != before:
        raise IdentityError(f"{path} was written anew while the stage ran; run the same command again")


def dvc_has_taken(stage: str, seed: int) -> bool:
    """Return whether ``dvc.lock`` credits a training run to the identity at hand, so that its outputs are DVC's.

    A run that was finished and killed before DVC took note of it is not.
    """
    import hashlib

    import yaml

    own = IDENTITIES / f"{stage}.json"
    try:
        lock = yaml.safe_load(Path("dvc.lock").read_text(encoding="utf-8"))["stages"][f"{stage}@{seed}"]
        known = {item["path"]: item["md5"] for item in lock["deps"]}
        return known[own.as_posix()] == hashlib.md5(own.read_bytes(), usedforsecurity=False).hexdigest()
    except (OSError, KeyError, TypeError, yaml.YAMLError):
        return False


def playing(params: Params) -> dict[str, Any]:
    """Return what an episode depends on beside the code, the team's weights and the problems, as plain JSON."""
    identity = identity_of(params.stage if isinstance(params, Reads) else "test", whole(params))
    found = {part: identity[part] for part in ("named", "content", "versions")}
    found["settings"] = {section: identity["settings"][section] for section in _PLAYING}
    return found | {"image": identity.get("image", "")}


def check_seeds(params: Params) -> None:
    """Make sure that DVC, which reads the seeds from the file alone, plans every run that the settings want.

    Raises:
        SettingsError: it does not; the message names the seeds.
    """
    for arm, key in ((TEAM, "train"), (SINGLE, "single_agent")):
        planned = planned_seeds(arm)
        if missing := sorted(set(seeds_of(params, arm)) - set(planned)):
            raise SettingsError(
                f"params.yaml: seeds.{key}: a preset wants the seeds {list(seeds_of(params, arm))}, and DVC plans "
                f"{list(planned)}; write {missing} into seeds.{key} too"
            )


def inputs_of(params: Params, seed: int | None) -> dict[str, str]:
    """Return digests of the outputs of other stages that a stage depends on, by path, as ``dvc.yaml`` lists them."""
    import yaml

    stage = params.stage if isinstance(params, Reads) else ""
    try:
        entry = yaml.safe_load(Path("dvc.yaml").read_text(encoding="utf-8"))["stages"][stage]
    except (OSError, KeyError, TypeError):
        return {}
    paths = [Path(str(item).replace("${item.seed}", str(seed))) for item in entry.get("deps", ())]
    return {path.as_posix(): contents().of(path) for path in paths if path.exists() and path.parent != IDENTITIES}


@functools.lru_cache(maxsize=1)
def contents() -> Contents:
    """Return what remembers the digests of large files of this project."""
    return Contents(places().home / "digests.json")


def _code(flow: str) -> Code:
    return code_of(flow, without=RUNTIME)


def _settings(spec: Spec, params: Params) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for dotted in spec.reads:
        section, _, name = dotted.partition(".")
        values = result_settings(getattr(params, section))
        if name:
            found.setdefault(section, {})[name] = values[name]
        else:
            found[section] = values
    for dotted in spec.ignores:
        section, name = dotted.split(".")
        found[section].pop(name, None)
    return found


def planned_seeds(arm: str) -> tuple[int, ...]:
    """Return the seeds of an arm that DVC reads from ``params.yaml``.

    Raises:
        SettingsError: they are not written out there.
    """
    import yaml

    key = "train" if arm == TEAM else "single_agent"
    content = yaml.safe_load(Path("params.yaml").read_text(encoding="utf-8"))
    try:
        return tuple(int(seed) for seed in content["seeds"][key])
    except (KeyError, TypeError, ValueError):
        raise SettingsError(
            f"params.yaml: seeds.{key}: DVC plans a stage per seed, so the seeds must be written out there, as a list"
        ) from None


def _image(params: Params) -> str:
    """Return the id of the sandbox's image, empty where it has none."""
    sandbox = params.sandbox
    name = getattr(sandbox, "image", None)
    if sandbox.kind == "docker" and name:
        from pipeline_lib.sandbox.image import image_id

        return image_id(name)
    return ""


def _differences(old: Any, new: Any, prefix: str = "") -> Iterator[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            name = f"{prefix}{key}"
            if key not in old:
                yield f"{name}: new"
            elif key not in new:
                yield f"{name}: gone"
            elif old[key] != new[key]:
                if isinstance(old[key], Mapping) and isinstance(new[key], Mapping):
                    yield from _differences(old[key], new[key], f"{name}.")
                else:
                    yield f"{name}: {_shown(old[key], new[key])}"
    elif old != new:
        yield f"{prefix}{_shown(old, new)}"


def _shown(old: Any, new: Any) -> str:
    if all(isinstance(value, str) and len(value) == 64 for value in (old, new)):
        return "changed"
    return f"{canonical_json(old)} -> {canonical_json(new)}"
