"""Arithmetic and memory for the log."""

from pipeline_lib.training.step import flops_per_token, memory_peaks
from tests.training.conftest import add_lora, make_model


def test_flops_of_a_token() -> None:
    model = make_model(hidden=32, layers=2, vocabulary=100)  # tied: the embedding is the output layer
    attention = 32 * 32 + 2 * 32 * 16 + 32 * 32
    weights = 2 * (attention + 3 * 32 * 64) + 100 * 32
    assert flops_per_token(model) == 6 * weights
    adapter = 8 * (2 * ((32 + 32) + 2 * (32 + 16) + (32 + 32) + 3 * (32 + 64)))
    assert flops_per_token(add_lora(model)) == 4 * weights + 6 * adapter


def test_memory() -> None:
    assert 10 < memory_peaks()["memory/resident_mb"] < 100_000
