"""Overrides of ``dvc exp run -S`` of which one would undo another without a word.

DVC applies overrides one after the other: ``-S train.steps=9 -S train=coding-paper`` replaces the section ``train``
after it has changed a value in it, and ``-S train=coding-paper -S +train.steps=9`` replaces the name of the preset.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

import psutil

from pipeline_lib.settings import Params, SettingsError


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
