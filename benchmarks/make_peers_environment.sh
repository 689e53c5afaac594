#!/bin/sh
# An environment of its own for the trainers that benchmarks/training.py measures ours against: they pin other versions.
set -eu
cd "$(dirname "$0")/.."
"${PYTHON:-python3}" -m venv .venv-peers
.venv-peers/bin/pip install --quiet --disable-pip-version-check torch==2.13.0
.venv-peers/bin/pip install --quiet --disable-pip-version-check comlrl==1.4.3 trl==1.16.0 peft==0.21.2
.venv-peers/bin/python -c "import comlrl, trl"
echo "ready: .venv-peers/bin/python"
