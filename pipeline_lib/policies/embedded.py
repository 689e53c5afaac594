"""The embedded model: Qwen3's architecture at a size that trains on one CPU core in seconds, and its tokenizer.

With it the whole chain runs without a hub and without a GPU, through the same code as real models.  Its first weights
are random, so it needs the warm start.

The tokenizer is a byte-level BPE that is trained on the corpus for which it is used.  Encoding and decoding any text
returns it unchanged, and `AutoTokenizer` gives the same ids after loading the saved folder: the pre-tokenizer is
Qwen's, there is no normaliser, and the end and padding tokens differ.  Text unlike the corpus needs more tokens, at
worst one per byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

if TYPE_CHECKING:
    from pipeline_lib.settings.policy import EmbeddedPolicy

END = "<|end|>"
PAD = "<|pad|>"


def train_tokenizer(texts: Iterable[str], vocabulary: int, context: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer whose merges were learned from ``texts``; the same texts give the same ids.

    Args:
        texts: the corpus.
        vocabulary: maximum number of entries; 256 are bytes, two are `END` (id 0) and `PAD` (id 1).
        context: maximum number of tokens of a sequence.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END, PAD],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
    )


#: The fastest attention implementation under `single_core_numerics`.
ATTENTION = "eager"


def make_config(settings: EmbeddedPolicy, vocabulary: int, **tokens: Any) -> Qwen3Config:
    """Return the shape of the model; ``tokens`` are the ids of special tokens (``eos_token_id``, ...)."""
    return Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=settings.hidden_size,
        intermediate_size=settings.mlp_size,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.kv_heads,
        head_dim=settings.hidden_size // settings.heads,
        max_position_embeddings=settings.context,
        initializer_range=settings.initializer_range,
        tie_word_embeddings=True,
        **tokens,
    )


def make_model(settings: EmbeddedPolicy, tokenizer: PreTrainedTokenizerBase) -> Qwen3ForCausalLM:
    """Return an untrained model in float32 with tied embeddings; weights follow from ``settings.seed``."""
    config = make_config(
        settings,
        len(tokenizer),
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = Qwen3ForCausalLM(config)
    model.set_attn_implementation(ATTENTION)
    return model


@contextmanager
def single_core_numerics() -> Iterator[None]:
    """Run torch on one thread with the fastest float32 matrix products, and restore both settings afterwards.

    At this size a second thread is no faster on an idle machine and much slower on a busy one, and results have the
    same bytes only with the same number of threads.  Processors with matrix units may compute products in TF32 or
    bfloat16; on others products stay exact.
    """
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
