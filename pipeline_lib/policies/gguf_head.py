"""What the head of a GGUF file says and transformers does not read: rope scaling, ends of texts and of turns.

transformers also skips tensors that it does not know, and draws weights that it does not find.  Where it would make
another model of the file, the model is corrected here, or the file refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor, get_gguf_hf_weights_map

from pipeline_lib.policies.policy import PolicyError

_ROPE_FREQS = "rope_freqs.weight"  # factors of rope, computed from the settings of Llama 3
_ROPE_FACTORS = ("rope_factors_long.weight", "rope_factors_short.weight")
#: For these values of ``tokenizer.ggml.pre`` llama.cpp begins texts with the BOS token if the file does not say.
_BEGUN = {
    "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano", "tekken",
}  # fmt: skip
_YARN = {"yarn_attn_factor": "attention_factor", "yarn_beta_fast": "beta_fast", "yarn_beta_slow": "beta_slow"}
#: Keys of rope scaling that are read, or that change nothing.
_SCALING = {"type", "factor", "original_context_length", "finetuned", "attn_factor", "yarn_ext_factor", *_YARN}
_LOW, _HIGH, _USUAL_CONTEXT = 1.0, 4.0, 8192  # of Llama 3
_TOLERANCE = 1e-3


class GGUFHead:
    """Metadata and tensors of one file; errors name ``model``, its entry in ``policy.models``."""

    def __init__(self, model: str, reader: Any) -> None:
        self.model, self._reader = model, reader
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        self._architecture = str(self._said("general.architecture") or "")

    def check_weights(self, loaded: Any, found: Mapping[str, Any]) -> None:
        """Check that the file's tensors are the model's weights.

        Args:
            loaded: the model that transformers made of the file.
            found: what it says of the loading.

        Raises:
            PolicyError: the file lacks some, or has others.
        """
        processor = TENSOR_PROCESSORS.get(self._architecture, TensorProcessor)(config=loaded.config.to_dict())
        missing, further = set(found["missing_keys"]), set(found["unexpected_keys"])
        try:
            places = get_gguf_hf_weights_map(loaded, processor)
        except NotImplementedError:  # an architecture of transformers' newer reader, which says all of it
            places = {}
        if places:
            # Experts of a layer are one weight, whose name has no ending.
            held = {name if name in places else name.removesuffix(".weight"): name for name in self._tensors}
            further = {name for place, name in held.items() if place not in places} - {_ROPE_FREQS, *_ROPE_FACTORS}
            # Two tensors may make one weight; transformers leaves zeros in place of the second.
            missing |= {places[name] for name in places if name not in held} & {
                places[name] for name in held if name in places
            }
        if missing:
            raise self._refused(
                f"the file lacks weights of its model ({len(missing)}, such as {min(missing)}); they would be random. "
                "Fetch it again, or take another file"
            )
        if further:
            raise self._refused(
                f"the file has tensors for which the {self._architecture} model of transformers has no place "
                f"({len(further)}, such as {min(further)}); without them it is another model. Give a folder in the "
                "transformers layout"
            )

    def complete(self, loaded: Any) -> None:
        """Give a model that transformers made of the file the rope scaling and the further end tokens.

        Raises:
            PolicyError: transformers does not know this rope scaling.
        """
        scaling = self._scaling(loaded.config)
        if scaling is not None:
            rope = getattr(loaded.config, "rope_parameters", None)
            if not isinstance(rope, Mapping):
                raise self._refused("the file scales rope, which this architecture of transformers does not have")
            if "full_attention" in rope:  # of Gemma 3, whose other layers are not scaled
                loaded.config.rope_parameters = {**rope, "full_attention": {**rope["full_attention"], **scaling}}
            else:
                loaded.config.rope_parameters = {**rope, **scaling}
        read: Any = loaded.generation_config.eos_token_id
        ends = list(read) if isinstance(read, list | tuple) else [read]
        ends += [self._said(f"tokenizer.ggml.{name}_token_id") for name in ("eot", "eom")]
        known = list(dict.fromkeys(end for end in ends if end is not None and 0 <= end < loaded.config.vocab_size))
        if len(known) > 1:
            loaded.generation_config.eos_token_id = known

    def set_ends(self, tokenizer: Any) -> None:
        """Let a tokenizer begin and end texts as the file says, or as llama.cpp does if it does not say.

        Raises:
            PolicyError: the file asks for a token that it does not name.
        """
        sentencepiece = self._said("tokenizer.ggml.model") == "llama"
        begun = sentencepiece or self._said("tokenizer.ggml.pre") in _BEGUN
        wanted = {}
        for name, default, usual in (("bos", begun, 1), ("eos", False, 2)):
            said = self._said(f"tokenizer.ggml.add_{name}_token")
            wanted[name] = default if said is None else bool(said)
            if wanted[name] and getattr(tokenizer, f"{name}_token") is None:
                if sentencepiece:
                    setattr(tokenizer, f"{name}_token", tokenizer.convert_ids_to_tokens(usual))
                elif said is None:
                    wanted[name] = False
                else:
                    raise self._refused(
                        f"tokenizer.ggml.add_{name}_token is true, but there is no tokenizer.ggml.{name}_token_id; "
                        "give a folder in the transformers layout"
                    )
        ids = tokenizer("a")["input_ids"]
        added = {"bos": ids[:1] == [tokenizer.bos_token_id], "eos": ids[-1:] == [tokenizer.eos_token_id]}
        if added != wanted:
            tokenizer.add_bos_token, tokenizer.add_eos_token = wanted["bos"], wanted["eos"]

    def _said(self, key: str) -> Any:
        """Return the value of a key of the metadata; None if there is none."""
        field = self._reader.fields.get(key)
        return None if field is None else field.contents()

    def _refused(self, why: str) -> PolicyError:
        return PolicyError(f"policy.models: {self.model}: {why}")

    def _scaling(self, config: Any) -> dict[str, Any] | None:
        """Return what a configuration says of the file's rope scaling; None if it has none."""
        prefix = f"{self._architecture}.rope.scaling."
        said = {key.removeprefix(prefix): self._said(key) for key in self._reader.fields if key.startswith(prefix)}
        factor = said.get("factor") or self._said(f"{self._architecture}.rope.scale_linear") or 1.0
        kind = said.get("type") or "linear"  # as llama.cpp takes it
        if kind == "linear" and factor == 1.0:
            kind = "none"
        if any(name in self._tensors for name in _ROPE_FACTORS):
            kind = "longrope"
        if kind not in ("none", "linear", "yarn"):
            raise self._refused(
                f"the file's rope scaling is {kind!r}; of GGUF files, 'linear', 'yarn' and that of Llama 3 "
                f"({_ROPE_FREQS}) are converted. Give a folder in the transformers layout"
            )
        odd = {key for key in said if key not in _SCALING and said[key]}
        if kind == "yarn" and said.get("yarn_ext_factor", 1.0) not in (1.0, -1.0):  # -1: llama.cpp's own, 1
            odd.add("yarn_ext_factor")
        if kind != "yarn" and said.get("attn_factor", 1.0) != 1.0:
            odd.add("attn_factor")
        if odd:
            raise self._refused(
                f"{prefix}{min(odd)} is {said[min(odd)]}, which the conversion does not know; give a folder in the "
                "transformers layout"
            )
        if _ROPE_FREQS in self._tensors:
            found = self._llama3(config, said.get("original_context_length"))
            if found and kind != "none":
                raise self._refused(
                    f"the file scales rope twice, by {kind!r} and by {_ROPE_FREQS}, which transformers cannot; give "
                    "a folder in the transformers layout"
                )
            if found:
                return found
        if kind == "linear":
            return {"rope_type": "linear", "factor": float(factor)}
        if kind == "none":
            return None
        context = said.get("original_context_length") or config.max_position_embeddings
        more = {name: float(said[key]) for key, name in _YARN.items() if key in said}
        if "attn_factor" in said:  # llama.cpp multiplies with it what follows from the factor
            more.setdefault("attention_factor", said["attn_factor"] * (0.1 * math.log(max(factor, 1.0)) + 1.0))
        return {"rope_type": "yarn", "factor": float(factor), "original_max_position_embeddings": int(context), **more}

    def _llama3(self, config: Any, context: int | None) -> dict[str, Any] | None:
        """Return the settings of Llama 3 from which the file's factors were computed; None if they are all one.

        The factors of wavelengths between the two bounds say what the original context was.
        """
        factors = np.asarray(self._tensors[_ROPE_FREQS].data, dtype=np.float64)
        if np.allclose(factors, 1.0, rtol=_TOLERANCE):
            return None
        rope = getattr(config, "rope_parameters", None) or {}
        heads = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        if "rope_theta" in rope and 2 * len(factors) == int(heads * rope.get("partial_rotary_factor", 1.0)):
            factor = round(float(factors.max()), 4)
            lengths = 2 * math.pi * rope["rope_theta"] ** (np.arange(len(factors)) / len(factors))
            between = (factors > 1 + _TOLERANCE) & (factors < factor * (1 - _TOLERANCE))
            mixed = (1 / factors[between] - 1 / factor) / (1 - 1 / factor)
            contexts = [round(float(c)) for c in lengths[between] * (mixed * (_HIGH - _LOW) + _LOW)]
            for original in (*contexts, _USUAL_CONTEXT, context or config.max_position_embeddings):
                if np.allclose(_llama3_factors(lengths, factor, original), factors, rtol=_TOLERANCE):
                    return {
                        "rope_type": "llama3",
                        "factor": factor,
                        "low_freq_factor": _LOW,
                        "high_freq_factor": _HIGH,
                        "original_max_position_embeddings": original,
                    }
        raise self._refused(
            f"{_ROPE_FREQS} scales rope in another way than Llama 3 does; give a folder in the transformers layout"
        )


def _llama3_factors(lengths: np.ndarray, factor: float, context: float) -> np.ndarray:
    """Return by what Llama 3 divides frequencies of these wavelengths."""
    mixed = np.clip((context / lengths - _LOW) / (_HIGH - _LOW), 0.0, 1.0)
    factors: np.ndarray = 1 / ((1 - mixed) / factor + mixed)
    return factors
