"""What the tests let a fork be: ``<file> <status, or "sleep">``; it writes down what it found itself to be."""

import json
import os
import sys
import time
from pathlib import Path

import psutil

if __name__ == "__main__":
    found = {
        "pid": os.getpid(),
        "parents": [process.pid for process in psutil.Process().parents()],
        "arguments": sys.argv[1:],
        "folder": str(Path.cwd()),
        "run": os.environ.get("SYMPOSIUM_RUN"),
        "libraries": [name for name in ("torch", "prefect", "mlflow", "transformers") if name in sys.modules],
        "ours": [name for name in sys.modules if name.partition(".")[0] in {"flows", "tasks", "pipeline_lib"}],
    }
    part = Path(f"{sys.argv[1]}.part")
    part.write_text(json.dumps(found))
    part.rename(sys.argv[1])
    print("said on its output", flush=True)
    if sys.argv[2] == "sleep":
        time.sleep(300)
    sys.exit(int(sys.argv[2]))
