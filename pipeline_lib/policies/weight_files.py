"""Read the weights of a folder in the type in which a model computes, a part of a file at a time.

transformers maps whole files into memory until the last weight is converted: a process that takes a model of float32
weights in bfloat16 then holds it three times over.  Weights of the right type stay mapped, which costs nothing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

#: Bytes of a file that are mapped at once.
_PART = 256 * 2**20


def check_weight_files(folder: Path) -> None:
    """Open every file of weights, which tells one that is cut off from its size; raises ValueError with its name."""
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with _opened(path):
                pass
        except SafetensorError as error:
            raise ValueError(f"{path.name}: {error}") from None


def converted_weights(folder: Path, dtype: torch.dtype) -> dict[str, torch.Tensor] | None:
    """Return all weights in ``dtype`` by name; None if transformers reads them as well: they have it, or are elsewhere.

    Raises:
        OSError, SafetensorError, ValueError: a file is missing or damaged.
    """
    if (folder / SAFE_WEIGHTS_NAME).is_file():
        names = [SAFE_WEIGHTS_NAME]
    elif (folder / SAFE_WEIGHTS_INDEX_NAME).is_file():
        names = sorted(set(json.loads((folder / SAFE_WEIGHTS_INDEX_NAME).read_text())["weight_map"].values()))
    else:
        return None
    found: dict[str, torch.Tensor] = {}
    for name in names:
        with _opened(folder / name) as file:
            keys = list(file.keys())
            if keys and file.get_tensor(keys[0]).dtype == dtype:
                return None
        while keys:
            mapped = 0
            with _opened(folder / name) as file:
                while keys and mapped < _PART:
                    key = keys.pop()
                    tensor = file.get_tensor(key)
                    mapped += tensor.nbytes
                    found[key] = tensor.to(dtype if tensor.is_floating_point() else tensor.dtype, copy=True)
                    del tensor  # else its part of the file stays mapped
    return found


def _opened(path: Path) -> Any:
    return safe_open(path, framework="pt")
