"""Checks of a whole run before its first stage works: what would else fail in a later stage, or prove nothing.

Settings that contradict each other are refused when they are read (`pipeline_lib.settings`).  Here are the checks of
what only a run needs: its seeds, its policy, programs, keys and memory of this machine.

Of ``dvc exp run -S`` one override may undo another without a word (`refuse_lost_overrides`).  DVC applies them one
after the other: ``-S train.steps=9 -S train=coding-paper`` replaces the section ``train`` after it has changed a value
in it, and ``-S train=coding-paper -S +train.steps=9`` replaces the name of the preset.
"""

import argparse
import importlib.util
import os
import shutil
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import psutil
from pydantic import BaseModel

from pipeline_lib.assembly.memory_check import missing_files, refusal_here
from pipeline_lib.environment_api.registry import find
from pipeline_lib.settings import Params, SettingsError
from tasks.experiment.arms import BASE, PROBLEMS, check_seeds


def check_run(params: Params) -> None:
    """Check everything that is known before the first stage.

    Raises:
        SettingsError: the run cannot end well; all reasons are listed at once.
    """
    check_seeds(params)
    check_reasons(params)


def check_reasons(params: Params) -> None:
    """Check everything but the seeds, which DVC reads from the file; raises as `check_run`."""
    if reasons := list(_reasons(params)):
        raise SettingsError("\n".join(f"params.yaml: {reason}" for reason in reasons))


def _reasons(params: Params) -> Iterator[str]:
    policy, rollouts = params.policy, params.rollouts
    unreadable = "" if params.audit.override else find(params.environment.kind).unreadable(params)
    if policy.kind == "embedded" and unreadable:
        yield (
            f"policy.kind: the embedded model cannot play this environment: {unreadable}; choose a pretrained policy, "
            "for example policy=smollm2-135m, or give a reason in audit.override"
        )
    if rollouts.kind == "vllm" and rollouts.process == "own" and rollouts.python and not shutil.which(rollouts.python):
        yield (
            f"rollouts.python: there is no program {rollouts.python}; make it with "
            "benchmarks/make_vllm_environment.sh, or set rollouts.kind to transformers"
        )
    for name, wanted in (
        ("evaluate.ray", params.evaluate.ray is not None),
        ("sandbox.kind", params.sandbox.kind == "ray"),
    ):
        if wanted and importlib.util.find_spec("ray") is None:
            yield f"{name}: Ray is not installed: pip install 'symposium[ray]'"
    if text := refusal_here(params, PROBLEMS, BASE):
        yield text
    yield from missing_files(policy)
    yield from _of_own_reward(params)
    for section in ("environment", "policy"):
        for name, variable in _key_variables(getattr(params, section), section):
            if not os.environ.get(variable):
                yield f"{name}: the environment variable {variable} is not set; set it to the server's key"


def _of_own_reward(params: Params) -> Iterator[str]:
    """Yield why a reward of the user's own class cannot be made."""
    reward: Any = getattr(params.environment, "reward", None)
    if getattr(reward, "kind", None) != "custom":
        return
    try:
        made = find(params.environment.kind).make(params.environment, _no_programs)
        made.refuse_unusable_bounds()
        made.close()
    except (Exception, SystemExit) as error:  # whatever the import of a user's module raises
        named = str(error).startswith("environment.reward")
        yield str(error) if named else f"environment.reward.path: {reward.path}: {type(error).__name__}: {error}"


def _no_programs() -> NoReturn:
    raise RuntimeError("no program runs before the first stage")


def _key_variables(section: BaseModel, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the settings that name an environment variable with a key: dotted name and variable."""
    for key in type(section).model_fields:
        value = getattr(section, key)
        inner = value if isinstance(value, dict) else {"": value}
        if key == "key_variable" and value:
            yield f"{prefix}.{key}", value
        for name, item in inner.items():
            if isinstance(item, BaseModel):
                yield from _key_variables(item, ".".join(filter(None, (prefix, key, name))))


def refuse_lost_overrides() -> None:
    """Check the command line of the ``dvc exp run`` that started this process, if one did.

    Raises:
        SettingsError: it names a preset in place of a section, and gives values of the same section.
    """
    if "DVC_EXP_NAME" not in os.environ and "DVC_STAGE" not in os.environ:
        return
    for process in psutil.Process().parents():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if "exp" in words and "run" in words[words.index("exp") :]:
            refuse_lost(words[words.index("exp") :])


def refuse_lost(words: Sequence[str]) -> None:
    """Check the words of a command line; raises as `refuse_lost_overrides`."""
    reader = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    reader.add_argument("-S", "--set-param", action="append", default=[])
    overrides = [text.lstrip("+~").partition("=") for text in reader.parse_known_args(words)[0].set_param]
    for section, _, preset in overrides:
        values = [f"-S {name}={value}" for name, _, value in overrides if name.startswith(f"{section}.")]
        if section in Params.model_fields and values:
            raise SettingsError(
                f"-S {section}={preset} replaces the whole section in params.yaml, so DVC drops one of it and "
                f"{', '.join(values)}; write -S {section}.preset={preset} {' '.join(values)}"
            )
