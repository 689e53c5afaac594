"""Every set of kernels computes the same, whichever of them this machine's processor gets."""

import pytest
import torch
from torch.nn import functional

from pipeline_lib.rollouts.kernels import Kernels, LeanKernels, OneDnnKernels, PlainKernels, kernels_for

EPS, WIDTH = 1e-6, 48
CASES = [LeanKernels(EPS, (WIDTH,)), PlainKernels(EPS)]
if torch.backends.mkldnn.is_available():
    CASES.append(OneDnnKernels(EPS, (WIDTH,)))


@pytest.mark.parametrize("kernels", CASES, ids=lambda kernels: type(kernels).__name__)
@pytest.mark.parametrize("rows", [1, 7, 130])
def test_products_and_norms(kernels: Kernels, rows: int):
    torch.manual_seed(0)
    x, weight, bias, residual = torch.randn(rows, WIDTH), torch.randn(20, WIDTH), torch.randn(20), torch.randn(rows, 20)
    exact = (x.double() @ weight.double().T).float()
    kept = residual.clone()
    for given in (None, bias):
        product = exact if given is None else exact + given
        torch.testing.assert_close(kernels.linear(x, weight, given), product, atol=1e-4, rtol=1e-5)
        added = kernels.linear_add(x, weight, given, residual)
        torch.testing.assert_close(added, residual + product, atol=1e-4, rtol=1e-5)
    assert torch.equal(residual, kept)
    root = WIDTH**0.5 if kernels.fold else 1.0  # part of the weights then
    for scale in (torch.ones(WIDTH), torch.rand(WIDTH)):
        expected = functional.rms_norm(x, (WIDTH,), scale, EPS)
        torch.testing.assert_close(kernels.normed(x, scale * root), expected)
    heads, scales = torch.randn(rows, 3, WIDTH), torch.rand(3, WIDTH)
    expected = functional.rms_norm(heads, (WIDTH,), None, EPS) * scales
    torch.testing.assert_close(kernels.normed(heads, scales * root), expected)


def test_lean_ones_are_for_float32_on_the_cpu_only():
    cpu = torch.device("cpu")
    assert isinstance(kernels_for(cpu, torch.float32, EPS, (WIDTH,)), LeanKernels)
    assert isinstance(kernels_for(cpu, torch.bfloat16, EPS, (WIDTH,)), PlainKernels)
