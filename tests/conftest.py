"""What all tests share: the project's local state goes to a temporary folder, never to the real ``.symposium``.

The variables must stand before any test module imports Prefect or MLflow, which read them once.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile

_home = tempfile.mkdtemp(prefix="symposium-tests-")
os.environ["SYMPOSIUM_HOME"] = _home
for _name in ("PREFECT_API_URL", "PREFECT_HOME", "MLFLOW_TRACKING_URI"):
    os.environ.pop(_name, None)
atexit.register(shutil.rmtree, _home, ignore_errors=True)

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # Started in the background by a shell: our children would inherit deafness to Ctrl-C, which tests send.
    signal.signal(signal.SIGINT, signal.default_int_handler)

from tasks.environment import prepare  # noqa: E402  (the variables come first)

prepare()
