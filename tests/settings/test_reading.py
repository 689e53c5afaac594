"""The reader of settings beside ruamel.yaml, by which DVC reads the same files."""

import random
from typing import Any

import pytest
from ruamel.yaml import YAML
from ruamel.yaml import YAMLError as RuamelError
from yaml import YAMLError

from pipeline_lib.settings.reading import read_yaml

_REFUSED = object()
_WORDS = """true False TRUE yes no on ~ null Null 010 -010 0o17 0x1F 0b11 1e3 1.5e3 1E+5 .5 .5e3 +.inf -.INF .nan 1_000
1:30 1:30.5 2020-01-01 1e 1. 1.e5 12e03 1__0 0_ -0 0x_ 0o 0b + - _1 +_ [http://a] {a:1} [a:b] 'x'
"y" @x %x `x |""".split()  # noqa: SIM905
_TEXTS = [
    "- - 1",
    "a: 1\na: 2",
    "{a: 1, a: 2}",
    "{1: a, 1.0: b}",
    "{<<: {a: 1}, b: 2}",
    "a: b: c",
    "&a 1",
    "*a",
    "[1, 2",
]


def _by_dvc(text: str) -> Any:
    for options in ({}, {"pure": True}):
        try:
            return YAML(typ="safe", **options).load(text)
        except (RuamelError, ValueError):
            continue
    return _REFUSED


def _random_texts() -> list[str]:
    chance = random.Random(0)
    return [
        "".join(chance.choices("+-0123456789._eExobaftTnNy~: []{},#'\"<", k=chance.randint(1, 6))) for _ in range(4000)
    ]


def test_what_is_read_is_what_dvc_reads() -> None:
    texts = [*_WORDS, *(f"key: {word}" for word in _WORDS), *_TEXTS, *_random_texts()]
    read = 0
    for text in texts:
        try:
            value = read_yaml(text)
        except YAMLError:
            continue
        assert repr(value) == repr(_by_dvc(text)), text
        read += 1
    assert read > len(texts) / 3


@pytest.mark.parametrize("text", ["%YAML 1.1\n---\na: 010\n", "a: 1\na: 2", "b: {a: 1, a: 2}", "[1, 2", "+_"])
def test_what_dvc_would_read_otherwise_or_not_at_all_is_refused(text: str) -> None:
    with pytest.raises(YAMLError):
        read_yaml(text)
