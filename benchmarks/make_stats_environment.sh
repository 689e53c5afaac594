#!/bin/sh
# An environment of its own for packages that only serve as reference: rliable needs arch < 8, which needs pandas < 3.
set -eu
cd "$(dirname "$0")/.."
python3.11 -m venv .venv-stats
.venv-stats/bin/pip install --quiet rliable==1.2.0 arch==7.2.0 "pandas<3" pingouin==0.7.0 statsmodels==0.15.0 scipy==1.17.1
echo "ready: .venv-stats/bin/python"
