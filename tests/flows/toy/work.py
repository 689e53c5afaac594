"""A stage that writes its name, unless a file says that it shall fail."""

import os
import sys
import time
from pathlib import Path

name, out = sys.argv[1], Path(sys.argv[2])
print(f"{name} at work, {os.environ.get('GOMP_SPINCOUNT')} spins", flush=True)
if Path(f"fail-{name}").exists():
    sys.exit(f"error: {name} was told to fail")
if Path(f"refuse-{name}").exists():
    print("refused: nobody would learn from this", file=sys.stderr)
while Path(f"hold-{name}").exists():
    time.sleep(0.05)
out.parent.mkdir(exist_ok=True)
out.write_text(name)
