"""Make the tables of a tracking database: ``python -m pipeline_lib.tracking <address> <folder>``."""

import sys
from pathlib import Path

from pipeline_lib.locks import locked
from pipeline_lib.tracking.store import LOCK, make_database

if __name__ == "__main__":
    folder = Path(sys.argv[2])
    with locked(folder / LOCK):
        make_database(sys.argv[1], folder)
