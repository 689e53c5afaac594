#!/bin/sh
# An environment of its own for Ray, 240 MB that only clusters need: the tests of the sandbox on Ray run in it.
# (To train on a cluster, install the project's extra `ray` instead.)
set -eu
cd "$(dirname "$0")/.."
"${PYTHON:-python3}" -m venv .venv-ray
.venv-ray/bin/pip install --quiet --disable-pip-version-check "ray==2.60.0"
.venv-ray/bin/python -c "import ray"
echo "ready: .venv-ray/bin/python"
