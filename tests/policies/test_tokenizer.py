"""The tokenizer: every text comes back, and every process sees the same ids."""

import json
import random
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pipeline_lib.policies.embedded import END, PAD, train_tokenizer

CORPUS = ["aux: items over 3, plus 4\n", "def aux(xs):\n    return [x + 4 for x in xs if x > 3]"] * 20
TOKENIZER = train_tokenizer(CORPUS, 300, 64)


@given(st.text())
def test_any_text_survives(text: str):
    ids = TOKENIZER(text)["input_ids"]
    assert TOKENIZER.decode(ids, clean_up_tokenization_spaces=False) == text


@given(st.lists(st.integers(2, len(TOKENIZER) - 1), max_size=30))
def test_sampled_ids_decode_to_some_text(ids: list[int]):
    assert isinstance(TOKENIZER.decode(ids), str)


def test_the_corpus_is_short_and_unknown_text_is_bytes():
    assert len(TOKENIZER(CORPUS[0])["input_ids"]) <= 14
    assert len(TOKENIZER("ÿ")["input_ids"]) == 2


def test_end_and_padding_are_two_tokens_that_text_cannot_contain_by_accident():
    assert (TOKENIZER.eos_token, TOKENIZER.pad_token) == (END, PAD)
    assert TOKENIZER.eos_token_id != TOKENIZER.pad_token_id
    assert TOKENIZER.eos_token_id not in TOKENIZER("return x | end > 3")["input_ids"]


def test_training_is_deterministic_and_bounded():
    again = train_tokenizer(CORPUS, 300, 64)
    assert again.get_vocab() == TOKENIZER.get_vocab()
    assert len(TOKENIZER) <= 300


def test_another_process_that_loads_the_folder_sees_the_same_ids(base: Path):
    """Some versions of transformers replace the pre-tokenizer of a saved tokenizer by the model type's own."""
    from transformers import AutoTokenizer

    here = AutoTokenizer.from_pretrained(base)
    rng = random.Random(0)
    texts = [here.decode([rng.randrange(2, len(here)) for _ in range(40)]) for _ in range(200)]
    texts += [
        *CORPUS[:2],
        "def f(x):\n\n\n    return  x//2 ",
        "a\tb\r\nc",
        "été 中文 🙂",
        "12345 + 67",
        "",
        "\n\n  \n",
        "e\u0301",
    ]
    code = (
        "import json, sys\nfrom transformers import AutoTokenizer\n"
        f"tokenizer = AutoTokenizer.from_pretrained({str(base)!r})\n"
        "texts = json.load(sys.stdin)\n"
        "ids = [tokenizer(text)['input_ids'] for text in texts]\n"
        "back = [tokenizer.decode(i, clean_up_tokenization_spaces=False) for i in ids]\n"
        "json.dump([ids, back], sys.stdout)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(texts), capture_output=True, text=True, check=True
    )
    ids, back = json.loads(done.stdout)
    assert ids == [here(text)["input_ids"] for text in texts]
    assert back == texts
