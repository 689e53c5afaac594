"""Whether a stage fits into memory and to its models, and what to set if it does not."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline_lib.assembly.memory import GIB, STAGES, Need, longest_prompt, need, policy_names
from pipeline_lib.environment_api.registry import find
from pipeline_lib.memory import all_memory, free_memory, held_memory
from pipeline_lib.policies.base import check_base
from pipeline_lib.policies.model_config import CONFIG
from pipeline_lib.policies.policy import PolicyError, section_of
from pipeline_lib.policies.sizes import Sizes, known_sizes
from pipeline_lib.problems.splits import load_manifest, load_split
from pipeline_lib.settings import Params, SettingsError
from pipeline_lib.settings.policy import Policy as PolicySettings
from pipeline_lib.settings.problems import SplitSizes
from pipeline_lib.storage import CorruptFileError

#: Heads, which are not among a model's linear layers: with its weights it is seen whether one of its own is there.
HEADS = ("lm_head", "embed_out")
#: Problems by split of which the prompts are seen where none are prepared.
_SAMPLE = {"train": 48, "validation": 4, "test": 4}


#: Bytes of the command, Prefect's server and DVC beside the stages of a run; of a pretrained model the command measures
#: the pace, for which it loads torch.
COMMAND_AND_SERVERS = {"embedded": 520 * 2**20, "pretrained": 820 * 2**20}

BESIDE_THEM = " beside the command and its servers"


def room(policy: PolicySettings, now: bool) -> tuple[float, bool]:
    """Return the bytes for a stage, and whether they are a GPU's: what is free ``now``, or all that there is."""
    if policy.kind == "pretrained":
        if not any(Path(place).exists() for place in ("/proc/driver/nvidia", "/dev/kfd")):
            return float(free_memory() + held_memory() if now else all_memory()), False
        # It loads for seconds, and the settings of the embedded model are checked without it.
        import torch

        if torch.cuda.is_available():
            free, whole = torch.cuda.mem_get_info()
            return float(free if now else whole), True
    return float(free_memory() + held_memory() if now else all_memory()), False


def room_of_run(policy: PolicySettings) -> tuple[float, bool]:
    """Return the bytes for a stage of a run that has not begun, and whether they are a GPU's."""
    whole, on_gpu = room(policy, now=False)
    return (whole if on_gpu else max(0.0, whole - COMMAND_AND_SERVERS[policy.kind])), on_gpu


def model_refusal(params: Params, sizes: Mapping[str, Sizes]) -> str:
    """Return what the settings ask of models that they do not have; empty if they have it.

    That is room for actions of full length in the context, and layers that get adapters.
    """
    written = params.rollouts.max_new_tokens
    for name, one in sizes.items():
        if written >= one.context:
            return (
                f"rollouts.max_new_tokens ({written:,}) leaves no space for a prompt in the context of policy {name!r} "
                f"({one.context:,} tokens); set it to less"
            )
        adapter = section_of(params.policy, name).adapter
        targets = adapter.targets if adapter.kind == "lora" and adapter.targets != "all-linear" else ()
        if unknown := [target for target in targets if target not in one.linear and target not in HEADS]:
            return (
                f"policy.adapter.targets: the model of policy {name!r} has no linear layer {unknown[0]!r}; it has "
                f"{', '.join(sorted(one.linear))}"
            )
    return ""


def missing_files(policy: PolicySettings) -> Iterator[str]:
    """Yield which files the folders in ``policy.models`` lack that every model has."""
    for model in dict.fromkeys(policy.models if policy.kind == "pretrained" else ()):
        if model and Path(model).is_dir():
            for pattern in (CONFIG, "*.safetensors"):
                if not any(Path(model).glob(pattern)):
                    yield f"policy.models: {model}: the folder has no {pattern} file; give the folder of a model"


def refusal(
    params: Params,
    stages: Sequence[str],
    sizes: Mapping[str, Sizes],
    prompt: int,
    limit: float,
    on_gpu: bool,
    counts: Mapping[str, int] | None = None,
    beside: str = "",
) -> str:
    """Return why stages do not fit into ``limit`` bytes, with numbers and what to set; empty if they fit.

    ``beside`` says in words what else takes memory and is not part of the limit.
    """
    if text := model_refusal(params, sizes):
        return text

    def most(settings: Params) -> tuple[str, Need]:
        needs = [(stage, need(settings, stage, sizes, prompt, limit, on_gpu, counts)) for stage in stages]
        return max(needs, key=lambda pair: pair[1].total)

    stage, wanted = most(params)
    if wanted.total <= limit:
        return ""
    parts = sorted(wanted.parts.items(), key=lambda part: -part[1])
    shown = ", ".join(f"{name} {value / GIB:.1f}" for name, value in parts if value >= 0.05 * GIB)
    of = f"{wanted.rows} rows of {wanted.tokens} tokens in the cache; " if "cache" in wanted.parts else ""
    return (
        f"{stage} needs {_amount(wanted.total, limit)} GiB of memory and there are {_amount(limit, wanted.total)}"
        f"{beside} ({of}{shown}); "
        f"{_remedy(params, lambda settings: most(settings)[1].total, limit)}"
    )


def _amount(size: float, beside: float) -> str:
    """Return bytes as GiB, with so many digits that a close number ``beside`` them differs."""
    digits = next(number for number in (1, 2, 3, 9) if f"{size / GIB:.{number}f}" != f"{beside / GIB:.{number}f}")
    return f"{size / GIB:.{digits}f}"


def with_type(params: Params, base: Path, measured: bool = False) -> Params:
    """Return the settings with the type that ``policy.dtype: auto`` stands for, where it is known.

    Args:
        params: the settings.
        base: folder of the base policy, which records the type; it may not be there yet.
        measured: choose it now as the base would, in some seconds, where nothing is recorded.
    """
    policy = params.policy
    if policy.kind != "pretrained" or policy.dtype != "auto":
        return params
    chosen = None
    with contextlib.suppress(PolicyError, CorruptFileError):
        chosen = check_base(policy, base).get("dtype")
    if chosen is None and measured and (sizes := known_sizes(policy, policy_names(params))):
        # It loads torch, see `room`.
        from pipeline_lib.policies.computing import faster_type

        chosen = faster_type(max(sizes.values(), key=lambda one: one.parameters))
    return params if chosen is None else _with(params, "policy.dtype", chosen)


def _refused(params: Params, base: Path, judge: Callable[[Params], str]) -> str:
    """Return what ``judge`` says of the settings; where it depends on an unknown type, that is measured."""
    known = with_type(params, base)
    return judge(known) and judge(with_type(known, base, measured=True))


def refusal_here(params: Params, problems: Path, base: Path) -> str:
    """Return why this machine has not the memory for a run; empty if it has, or if a model's sizes are not known.

    Args:
        params: the settings.
        problems: folder of the prepared problems, which may not be there yet.
        base: folder of the base policy, likewise.
    """
    try:
        sizes = known_sizes(params.policy, policy_names(params))
    except PolicyError as error:
        return str(error)
    if sizes is None:
        return ""
    found, counts = expected_problems(params, problems)
    prompt, limit = longest_prompt(params, found, sizes), room_of_run(params.policy)
    beside = "" if limit[1] else BESIDE_THEM
    return _refused(params, base, lambda known: refusal(known, STAGES, sizes, prompt, *limit, counts, beside))


def expected_problems(params: Params, folder: Path | None) -> tuple[Sequence[Any], dict[str, int]]:
    """Return training problems, and the number of problems by split where it is known.

    They are those in a folder, if there are some of this environment; else a few of a source that makes them, or those
    of a file; none where the source is on the hub.
    """
    if folder is not None:
        with contextlib.suppress(OSError, ValueError, CorruptFileError):
            manifest = load_manifest(folder)
            if manifest["environment"] == params.environment.kind:
                counts = {split: len(entry["hashes"]) for split, entry in manifest["splits"].items()}
                return load_split(folder, "train"), counts
    problems, made = params.problems, isinstance(getattr(params.problems, "sizes", None), SplitSizes)
    if made:
        few = {split: min(count, getattr(problems.sizes, split)) for split, count in _SAMPLE.items()}
        problems = problems.model_copy(update={"sizes": SplitSizes(**few)})
    elif not Path(getattr(problems, "source", "")).is_file():
        return (), {}
    with contextlib.suppress(ValueError, ImportError):
        splits = find(params.environment.kind).make_problems(problems)
        return splits["train"], {} if made else {split: len(found) for split, found in splits.items()}
    return (), {}


def computed_need(params: Params, stage: str, problems: Path, base: Path, limit: float, on_gpu: bool) -> float:
    """Return the bytes that a stage will need with so many to go by; 0 if the sizes of a model are not known.

    Args:
        params: the settings.
        stage: as `need`.
        problems, base: as `refusal_here`.
        limit, on_gpu: as `need`.
    """
    try:
        sizes = known_sizes(params.policy, policy_names(params))
    except PolicyError:  # the stage tells it
        sizes = None
    if sizes is None:
        return 0.0
    found, counts = expected_problems(params, problems)
    known, prompt = with_type(params, base), longest_prompt(params, found, sizes)
    return need(known, stage, sizes, prompt, limit, on_gpu, counts).total


def check_memory(
    params: Params, stage: str, problems: Sequence[Any], base: Path, counts: Mapping[str, int] | None = None
) -> None:
    """Check that a stage fits into the memory that is free, before anything is loaded.

    Args:
        params: the settings.
        stage: as `need`.
        problems: that the team acts on; none if they are not known.
        base: folder of the base policy, which may not be there yet.
        counts: as `need`.

    Raises:
        SettingsError: it does not fit; the message says what needs how much, and what to set.
    """
    sizes = known_sizes(params.policy, policy_names(params))
    if sizes is None:
        return
    prompt = longest_prompt(params, problems, sizes)
    limit = room(params.policy, now=True)
    if text := _refused(params, base, lambda known: refusal(known, [stage], sizes, prompt, *limit, counts)):
        raise SettingsError(text)


#: Settings that save memory, with values from the mildest; those of the first two lines change no result.
_SAVINGS: tuple[tuple[str, Sequence[Any]], ...] = (
    ("rollouts.rows", (256, 128, 64, 32, 16, 8, 4, 2, 1)),
    ("sandbox.slots", (4, 2, 1)),
    ("policy.gradient_checkpointing", (True,)),
    ("train.micro_batch_tokens", (1024, 512, 256, 128)),
    ("policy.dtype", ("bfloat16",)),
    ("policy.adapter", ({"kind": "lora"},)),
    ("rollouts.max_new_tokens", (512, 256, 128, 64)),
    ("policy.parameters", ("shared",)),
)


def _remedy(params: Params, total: Callable[[Params], int], limit: float) -> str:
    """Return what to set: one setting if one is enough, else as few and as mild ones as possible."""
    smaller = {name: [value for value in values if _smaller(params, name, value)] for name, values in _SAVINGS}
    for name, values in smaller.items():
        for value in values:
            if total(_with(params, name, value)) <= limit:
                return f"set {name} to {_shown(value)}"
    changed, taken = params, dict[str, Any]()
    for name, values in smaller.items():
        if values and total(tried := _with(changed, name, values[-1])) < 0.98 * total(changed):
            changed, taken[name] = tried, values[-1]
    if total(changed) > limit:
        return (
            f"no setting makes it fit: it takes {_amount(total(changed), limit)} GiB at the least; use a smaller model"
        )
    present = params.model_dump(mode="json")
    # From the least mild on: each as it was if that is enough, else as mild as the others allow.
    for name in reversed(taken):
        section, _, key = name.partition(".")
        for value in (present[section][key], *smaller[name]):
            if total(tried := _with(changed, name, value)) <= limit:
                changed, taken[name] = tried, value
                break
    told = [f"{name} to {_shown(value)}" for name, value in taken.items() if value in smaller[name]]
    return f"set {' and '.join(told)}"


def _smaller(params: Params, name: str, value: Any) -> bool:
    """Return whether a setting exists here, and the value saves memory."""
    section, _, key = name.partition(".")
    present = getattr(getattr(params, section), key, None)
    if present is None or (name == "rollouts.rows" and params.rollouts.kind != "transformers"):
        return False
    if isinstance(value, dict):
        return bool(present.kind != value["kind"])
    if isinstance(value, (bool, str)):
        return bool(present != value)
    if name == "sandbox.slots":
        return bool(not present or value < present)  # 0: some for each core
    return bool(present == "auto" or value < present)


def _with(params: Params, name: str, value: Any) -> Params:
    section, _, key = name.partition(".")
    changed = params.model_dump(mode="json")
    changed[section][key] = value
    return Params.model_validate(changed)


def _shown(value: Any) -> str:
    return "{kind: lora}" if isinstance(value, dict) else str(value).lower()
