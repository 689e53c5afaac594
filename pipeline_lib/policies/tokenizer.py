"""A byte-level BPE tokenizer, trained on the corpus for which it is used.

Encoding and decoding any text returns it unchanged, and `AutoTokenizer` gives the same ids after loading the saved
folder: the pre-tokenizer is Qwen's, there is no normaliser, and the end and padding tokens differ.  Text unlike the
corpus needs more tokens, at worst one per byte.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

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
