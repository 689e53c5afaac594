"""One Prefect server and one process with the libraries for all stages that a DVC command runs.

``dvc repro`` and ``dvc exp run`` start every stage as a program of its own.  The first one that does any work starts
this program, ``python -m tasks.services.with_dvc <process id of DVC>``; it writes into a file by which variables stages
find both (`tasks.services.stage_proxy.join_dvc`), and ends when DVC has ended.
"""

import contextlib
import os
import sys
import time
from pathlib import Path

from pipeline_lib.locks import locked
from pipeline_lib.storage import write_json
from pipeline_lib.tracking.processes import is_gone, own_process
from tasks.services.end_with_parent import LOOK_S
from tasks.services.preloaded import preloaded
from tasks.services.process_environment import places, prepare
from tasks.services.servers import UI_URL, starting_prefect_server
from tasks.services.stage_proxy import dvc_file


def accompany(dvc: int) -> None:
    """Serve the stages of a DVC process until it has ended."""
    process, file = own_process(dvc), dvc_file(dvc)
    with contextlib.ExitStack() as held:
        held.callback(file.unlink, missing_ok=True)
        with locked(places().prefect / "start.lock"):
            server = held.enter_context(starting_prefect_server())
            # Second, with the server's variables: stages have them too, and are forks only if the variables are equal.
            libraries = held.enter_context(preloaded(Path.cwd(), 2, 1))
            url = server()
        pages = {UI_URL: os.environ[UI_URL]} if UI_URL in os.environ else {}
        write_json(file, {"PREFECT_API_URL": f"{url}/api", **pages, **libraries()})
        while not is_gone(process):
            time.sleep(LOOK_S)


if __name__ == "__main__":
    prepare()
    accompany(int(sys.argv[1]))
