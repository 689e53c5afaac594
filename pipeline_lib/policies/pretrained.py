"""Causal language models and tokenizers by hub id or path, as transformers loads them.

Errors say which model, which setting and what to do.  Code from a model's repository is never run, weights that are
not safetensors are never read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from pipeline_lib.policies.policy import PolicyError
from pipeline_lib.storage import digest, file_digest

if TYPE_CHECKING:
    from pipeline_lib.settings.policy import PretrainedPolicy

_FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja")


def load_model(path: str, revision: str, dtype: torch.dtype, attention: str) -> PreTrainedModel:
    """Return a causal language model on the CPU, in evaluation mode.

    Raises:
        PolicyError: it is not there, not a causal language model, or cannot use this kind of attention.
    """
    with _explained(path):
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            path, revision=revision, dtype=dtype, attn_implementation=attention, use_safetensors=True
        )
        return model


def load_tokenizer(path: str, revision: str) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a model.

    Raises:
        PolicyError: it is not there or not readable.
    """
    with _explained(path):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(path, revision=revision)
        return tokenizer


def check_fit(path: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Make sure that every token id has an embedding.

    Raises:
        PolicyError: the tokenizer has more entries than the model.
    """
    embeddings: Any = model.get_input_embeddings()
    rows: int = embeddings.weight.shape[0]
    if len(tokenizer) > rows:
        raise PolicyError(
            f"{path}: the tokenizer has {len(tokenizer)} entries, the model embeds only {rows}; "
            "they do not belong together"
        )


def describe_models(settings: PretrainedPolicy) -> list[dict[str, Any]]:
    """Fetch every model of the team and return what identifies it: commit or digest of its weights, vocabulary.

    Raises:
        PolicyError: a model is not to be had.
    """
    return [_describe(path, settings.revision) for path in dict.fromkeys(settings.models)]


def _describe(path: str, revision: str) -> dict[str, Any]:
    with _explained(path):
        config = AutoConfig.from_pretrained(path, revision=revision)
    tokenizer = load_tokenizer(path, revision)
    facts = {
        "model": path,
        "architecture": str((config.architectures or ["unknown"])[0]),
        "vocabulary": len(tokenizer),
        "chat_template": tokenizer.chat_template is not None,
    }
    if Path(path).is_dir():
        weights = sorted(Path(path).glob("*.safetensors"))
        if not weights:
            raise PolicyError(f"{path}: the folder holds no .safetensors file")
        return {**facts, "weights": digest([[file.name, file_digest(file)] for file in weights])}
    from huggingface_hub import snapshot_download

    with _explained(path):
        folder = snapshot_download(path, revision=revision, allow_patterns=list(_FILES))
    return {**facts, "revision": Path(folder).name}


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Turn the many errors of loading into one that says what to do."""
    try:
        yield
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        what = "the folder cannot be loaded" if Path(path).exists() else "no such folder, and the hub did not give it"
        raise PolicyError(
            f"policy.models: {path}: {what} ({reason}); give a folder in the transformers layout, or the id of a model "
            "on the hub and a connection to it (HF_HUB_OFFLINE, HF_ENDPOINT and HF_TOKEN are honoured)"
        ) from error
