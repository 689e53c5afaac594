"""Causal language models and tokenizers by hub id, folder, GGUF file or name, as transformers loads them.

Errors name the model, the setting and what to do.  Code from a model's repository is never run, and weights that are
not safetensors are never read.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.constants import HF_HUB_CACHE
from huggingface_hub.file_download import repo_folder_name
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.pytorch_utils import Conv1D
from transformers.utils import GENERATION_CONFIG_NAME, find_adapter_config_file

from pipeline_lib.identity.content import DigestCache
from pipeline_lib.policies.model_config import CONFIG, NAMED, adapter_refusal, needs_conversion
from pipeline_lib.policies.model_files import Progress, local_folder, source_digest
from pipeline_lib.policies.policy import PolicyError
from pipeline_lib.policies.weight_files import check_weight_files, converted_weights

if TYPE_CHECKING:
    from pipeline_lib.settings.policy import Policy, PretrainedPolicy

logger = logging.getLogger(__name__)

_FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja")
_NUMBER = re.compile(r"\d+")
#: Masks that older releases of transformers saved with the weights of GPT-2 and its relatives.
_OLD_MASK = re.compile(r"(^|\.)(attn|attention)\.(bias|masked_bias|causal_mask)$")
_contents = DigestCache()  # shared, because a process may load a model more than once


def load_model(path: str, revision: str, dtype: torch.dtype, attention: str) -> PreTrainedModel:
    """Return a causal language model on the CPU, in evaluation mode.

    Raises:
        PolicyError: it does not exist, is not a causal language model, or does not support this attention.
    """
    folder = local_folder(path)
    model: PreTrainedModel
    with _loading_errors(path):
        config = _config(path, folder, revision)
        asked: dict[str, Any] = {
            "dtype": dtype,
            "attn_implementation": _attention(path, config, attention),
            "output_loading_info": True,
        }
        known: Any = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
        check_weight_files(Path(folder))
        weights = converted_weights(Path(folder), dtype) if isinstance(known, type) else None
        if weights is None:
            whole: Any = AutoModelForCausalLM.from_pretrained(
                folder, revision=revision, use_safetensors=True, trust_remote_code=False, **asked
            )
            model, found = whole
        else:
            model, found = known.from_pretrained(None, config=config, state_dict=weights, **asked)
            model.config.name_or_path = model.name_or_path = folder
            if (Path(folder) / GENERATION_CONFIG_NAME).is_file():
                model.generation_config = GenerationConfig.from_pretrained(folder)
    _refuse_wrong_weights(path, model, found["missing_keys"], found["unexpected_keys"])
    return model


def _config(path: str, folder: str, revision: str) -> Any:
    """Return the configuration of a model; raises PolicyError if there is an adapter, alone or beside it."""
    adapter = find_adapter_config_file(folder, revision=revision)
    if adapter is not None:
        raise adapter_refusal(path, (Path(adapter).parent / CONFIG).is_file())
    return AutoConfig.from_pretrained(folder, revision=revision, trust_remote_code=False)


def limits_attention(config: Any) -> bool:
    """Return whether a model limits attention scores, as Gemma 2 does; sdpa of transformers leaves that out."""
    return bool(getattr(config.get_text_config(), "attn_logit_softcapping", None))


def _attention(path: str, config: Any, asked: str) -> str | None:
    """Return the implementation of attention; None leaves the choice to transformers."""
    if not limits_attention(config):
        return None if asked == "auto" else asked
    if asked == "sdpa":
        raise PolicyError(
            f"policy.attention: {path} limits attention scores (attn_logit_softcapping in its {CONFIG}), which sdpa "
            "leaves out; it would be another model. Set it to auto, eager or flash_attention_2"
        )
    return "eager" if asked == "auto" else asked


def _refuse_wrong_weights(path: str, model: PreTrainedModel, missing: Collection[str], unused: Collection[str]) -> None:
    """Raise PolicyError if the weights in the files are not those of the model, or are no numbers.

    For ``missing`` ones transformers draws others.  ``unused`` ones are of another task, or of modules that the model
    has too: of further layers, or biases and scales that its configuration leaves out.
    """
    if missing:
        raise PolicyError(
            f"policy.models: {path}: weights that {CONFIG} asks for are not in the files ({len(missing)}, such as "
            f"{min(missing)}); they would be random. Fetch the model again, or correct its {CONFIG}"
        )
    modules = {_NUMBER.sub("*", name) for name, _ in model.named_modules() if name}
    further = [name for name in unused if _NUMBER.sub("*", name.rpartition(".")[0]) in modules]
    if further := [name for name in further if not _OLD_MASK.search(name)]:
        raise PolicyError(
            f"policy.models: {path}: the files have layers, biases or scales that {CONFIG} does not describe "
            f"({len(further)}, such as {min(further)}); without them it is another model. Correct its {CONFIG}"
        )
    for name, values in model.named_parameters():
        if not torch.isfinite(values.detach().abs().max()):
            raise PolicyError(f"policy.models: {path}: {name} has values that are no finite numbers; fetch it again")


def without_weights(config: Mapping[str, Any]) -> Any:
    """Return the model that the content of a config.json describes, without memory for its weights.

    Raises:
        ValueError: transformers knows no such model.
    """
    with torch.device("meta"):
        plain = json.loads(json.dumps(dict(config)), object_hook=_infinity)
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(**plain))


def _infinity(found: dict[str, Any]) -> Any:
    """Return the number that transformers writes as an object, since JSON has no infinity (Mamba-2 has one)."""
    return float(found["__float__"]) if set(found) == {"__float__"} else found


def linear_layers(model: Any) -> dict[str, list[tuple[int, int]]]:
    """Return ``(in, out)`` of every linear layer below the head, by the last part of its name."""
    head = getattr(model.get_output_embeddings(), "weight", None)
    linear: dict[str, list[tuple[int, int]]] = {}
    for path, module in model.named_modules():
        if isinstance(module, torch.nn.Linear | Conv1D) and module.weight is not head:
            rows, columns = module.weight.shape  # of Conv1D, which GPT-2 has, (in, out); else (out, in)
            shape = (rows, columns) if isinstance(module, Conv1D) else (columns, rows)
            linear.setdefault(path.rpartition(".")[2], []).append(shape)
    return linear


def load_tokenizer(path: str, revision: str) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a model; raises PolicyError if it does not exist or is not readable."""
    with _loading_errors(path):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            local_folder(path), revision=revision, trust_remote_code=False
        )
        return tokenizer


def in_chat_template(settings: Policy, tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether observations are wrapped in the tokenizer's chat template."""
    return settings.kind == "pretrained" and settings.chat == "auto" and tokenizer.chat_template is not None


def check_fit(path: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Check that every token id has an embedding.

    Raises:
        PolicyError: the tokenizer has more entries than the model.
    """
    embeddings: Any = model.get_input_embeddings()
    rows: int = embeddings.weight.shape[0]
    if len(tokenizer) > rows:
        raise PolicyError(
            f"policy.models: {path}: the tokenizer has {len(tokenizer)} entries, the model embeds only {rows}; "
            "they do not fit together"
        )


def describe_models(settings: PretrainedPolicy, progress: Progress | None = None) -> list[dict[str, Any]]:
    """Fetch (and convert) every model of the team and return its identity: its commit, or digests of its files.

    Raises:
        PolicyError: a model cannot be fetched, or cannot be computed with this attention.
    """
    return [_describe(path, settings, progress) for path in dict.fromkeys(settings.models)]


def _describe(path: str, settings: PretrainedPolicy, progress: Progress | None) -> dict[str, Any]:
    folder, revision = local_folder(path, progress), settings.revision
    with _loading_errors(path):
        config = _config(path, folder, revision)
    _attention(path, config, settings.attention)
    tokenizer = load_tokenizer(path, revision)
    facts = {
        "model": path,
        "architecture": str((config.architectures or ["unknown"])[0]),
        "vocabulary": len(tokenizer),
        "chat_template": tokenizer.chat_template is not None,
    }
    if needs_conversion(path):
        return {**facts, "gguf": source_digest(path)}
    if Path(path).is_dir():
        files = _files(Path(path))
        if not any(name.endswith(".safetensors") for name in files):
            raise PolicyError(f"policy.models: {path}: the folder holds no .safetensors file")
        return {**facts, "files": files}
    with _loading_errors(path):
        folder = snapshot_download(path, revision=revision, allow_patterns=list(_FILES))
    return {**facts, "asked": revision, "revision": Path(folder).name}


def recorded_revision(path: str, facts: Mapping[str, Any]) -> str:
    """Return the revision of a model that was recorded when the base was made.

    A branch on the hub may move during a run.  If the local cache has a newer commit, a warning says so.

    Args:
        path: hub id or folder.
        facts: content of ``base.json``.

    Raises:
        PolicyError: the base was made of another model, or the files in the folder have changed since.
    """
    found = next((entry for entry in facts["models"] if entry["model"] == path), None)
    if found is None:
        raise PolicyError(f"policy.models: {path}: the base was made of other models; run `dvc repro` again")
    if "gguf" in found:
        if source_digest(path) != found["gguf"]:
            raise PolicyError(
                f"policy.models: {path}: the file is not the one that the base was made of; run `dvc repro` again, or "
                "put the old file back"
            )
        return "main"
    if "files" in found:
        if not Path(path).is_dir():
            return "main"  # loading raises the error
        now = _files(Path(path))
        if changed := sorted(name for name in {*now, *found["files"]} if now.get(name) != found["files"].get(name)):
            raise PolicyError(
                f"policy.models: {path}: the folder's content is not what the base was made of: {', '.join(changed)} "
                "changed; run `dvc repro` again, or put the old files back"
            )
        return "main"
    commit = str(found["revision"])
    if (latest := _cached_commit(path, str(found["asked"]))) not in ("", commit):
        logger.warning(
            "policy.models: %s: %r is commit %s by now; this run stays with %s, of which its base was made "
            "(`dvc repro -f warm_start` moves on)", path, found["asked"], latest[:12], commit[:12],
        )  # fmt: skip
    return commit


def _cached_commit(path: str, revision: str) -> str:
    """Return the commit of a branch or tag in the hub's local cache; empty if it is not there."""
    ref = Path(HF_HUB_CACHE, repo_folder_name(repo_id=path, repo_type="model"), "refs", revision)
    return ref.read_text(encoding="utf-8").strip() if ref.is_file() else ""


def _files(folder: Path) -> dict[str, str]:
    """Return the digests of a model's files by name."""
    return {
        name: found for name, found in _contents.files(folder).items() if any(fnmatch(name, form) for form in _FILES)
    }


@contextmanager
def _loading_errors(path: str) -> Iterator[None]:
    """Convert all errors of loading to PolicyError."""
    try:
        yield
    except PolicyError:
        raise
    except Exception as error:  # whatever transformers raises at files that nobody has checked
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        what = (
            "the folder cannot be loaded" if Path(path).exists() else "no such folder, and the hub did not provide it"
        )
        raise PolicyError(
            f"policy.models: {path}: {what} ({reason}); give a folder in the transformers layout, a GGUF file, one of "
            f"the names {', '.join(NAMED)}, or the id of a model on the hub and a connection to it (HF_HUB_OFFLINE, "
            "HF_ENDPOINT and HF_TOKEN are honoured)"
        ) from error
