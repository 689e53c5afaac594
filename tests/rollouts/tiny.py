"""Tiny policies with random weights, and reference log-probabilities by transformers' own forward pass."""

from functools import cache
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from pipeline_lib.policies.policy import Policy
from pipeline_lib.rollouts import Action, Sampling

VOCABULARY = 270
END = 256


@cache
def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte, then the end token and some unused ones up to the vocabulary's size."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    fast.add_special_tokens({"eos_token": "<end>"})
    assert fast.eos_token_id == END
    return fast


CONFIGS: dict[str, dict[str, Any]] = {
    "qwen2": {"model_type": "qwen2"},
    "qwen3": {"model_type": "qwen3", "head_dim": 16},
    "llama": {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
    "llama3": {
        "model_type": "llama",
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    },
    "gpt2": {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 96},
    "gemma2": {"model_type": "gemma2", "head_dim": 8, "sliding_window": 8, "query_pre_attn_scalar": 8},
    "mamba": {"model_type": "mamba", "state_size": 4},
    "bloom": {"model_type": "bloom", "n_layer": 2, "n_head": 4},
    "falcon": {"model_type": "falcon"},
    "phi3": {"model_type": "phi3", "original_max_position_embeddings": 96},
    "mixtral": {"model_type": "mixtral", "num_local_experts": 4},
    "opt": {"model_type": "opt", "ffn_dim": 48, "word_embed_proj_dim": 32, "pad_token_id": 1},
    "mpt": {"model_type": "mpt", "d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 96},
    "seed_oss": {"model_type": "seed_oss", "head_dim": 8, "attention_dropout": 0.3, "residual_dropout": 0.3},
    "phimoe": {"model_type": "phimoe", "num_local_experts": 4},
    "lfm2": {"model_type": "lfm2", "layer_types": ["conv", "full_attention"]},
}
FAST = ("qwen2", "qwen3", "llama", "llama3")


def policy(kind: str = "qwen3", seed: int = 0, name: str = "team", spread: float = 3.0, **more: Any) -> Policy:
    """A random policy whose distributions are far from uniform (``spread`` scales the logits)."""
    shape: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 96,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "pad_token_id": None,
        "eos_token_id": END,
    }
    if kind == "mamba":
        for key in ("num_attention_heads", "num_key_value_heads", "max_position_embeddings", "intermediate_size"):
            shape.pop(key)
    attention = more.pop("attn_implementation", "eager" if kind != "mamba" else None)
    config = AutoConfig.for_model(**{**shape, **CONFIGS[kind], **more})
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter.dim() == 2:
                parameter.normal_(std=0.25)
            elif "norm" in parameter_name or parameter_name.endswith("bias"):
                parameter.add_(0.2 * torch.randn_like(parameter))
        head = model.get_output_embeddings()
        head.weight.mul_(spread)
    model.generation_config.eos_token_id = END
    return Policy(name=name, model=model.eval(), tokenizer=byte_tokenizer())


def reference_logits(policy_: Policy, prompt: tuple[int, ...], ids: tuple[int, ...]) -> torch.Tensor:
    """``[len(ids), vocabulary]`` logits for each drawn id, by one teacher-forced pass over one sequence."""
    with torch.no_grad():
        logits = policy_.model(input_ids=torch.tensor([prompt + ids])).logits[0].float()
    return logits[len(prompt) - 1 : -1]


def reference_logprobs(policy_: Policy, prompt: tuple[int, ...], action: Action, sampling: Sampling) -> torch.Tensor:
    """Log-probabilities of an action by plain arithmetic (temperature, then top-k, then top-p), float64."""
    rows = reference_logits(policy_, prompt, action.ids).double() / (sampling.temperature or 1.0)
    found = []
    for row, token in zip(rows, action.ids, strict=True):
        order = sorted(range(len(row)), key=lambda i: -float(row[i]))
        if sampling.temperature and sampling.top_k:
            order = order[: sampling.top_k]
        weights = row[order].softmax(-1)
        if sampling.temperature and sampling.top_p < 1:
            below = [float(weights[:i].sum()) < sampling.top_p for i in range(len(order))]
            order = order[: sum(below)]
        kept = row[order].log_softmax(-1)
        assert token in order, "drawn outside its support"
        found.append(kept[order.index(token)])
    return torch.stack(found)
