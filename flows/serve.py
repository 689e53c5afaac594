"""``symposium ui`` (or ``make ui``): Prefect, MLflow, the page on which teams play, and the deployments.

This process only supervises, until Ctrl-C.  It imports neither Prefect nor MLflow, starts all four as child processes,
prints their addresses, and ends all of them when it ends for any reason.
"""

import argparse
import contextlib
import secrets
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from pipeline_lib.settings import load_params
from pipeline_lib.tracking.store import start_link
from tasks.runtime.arguments import program_parser
from tasks.runtime.exit_status import explained
from tasks.services.process_environment import child_environment, places, server_url
from tasks.services.processes import ended, start
from tasks.services.servers import (
    MLFLOW_PORT,
    PAGE_PORT,
    PREFECT_PORT,
    Server,
    ServerError,
    announced,
    start_mlflow,
    start_page,
    start_prefect,
)


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line, which takes no arguments."""
    return program_parser("serve", __doc__)


@explained()
def main() -> None:
    """Run until Ctrl-C (status 0), or until one of the children ends or cannot start (message, status 1)."""
    parser().parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        if url := server_url("prefect"):
            raise ServerError(
                f"already running: Prefect {url}, MLflow {server_url('mlflow')}; stop it there with Ctrl-C"
            )
        with contextlib.ExitStack() as children:
            _run(children)
    except KeyboardInterrupt:
        print("\nall ended")


def _run(children: contextlib.ExitStack) -> None:
    kind = load_params().environment.kind
    print("starting Prefect, MLflow and the page ...", flush=True)
    prefect = start_prefect()
    children.callback(prefect.stop)
    mlflow = start_mlflow()
    children.callback(mlflow.stop)
    key = secrets.token_urlsafe(16)
    page = start_page(key)
    children.callback(page.stop)
    servers = (prefect, mlflow, page)
    for server in servers:
        server.wait_until_healthy()
    children.enter_context(announced({server.name: server.url for server in (prefect, mlflow)}))
    runner = _serve(prefect.url)
    children.callback(runner.stop)
    for server, port in ((prefect, PREFECT_PORT), (mlflow, MLFLOW_PORT), (page, PAGE_PORT)):
        if not server.url.endswith(f":{port}"):
            print(f"port {port} is in use, so {server.name} uses another one")
    print(f"Prefect  {prefect.url}/v2/deployments")
    print(f"MLflow   {start_link(mlflow.url, kind)}")
    print(f"Play     {page.url}/#{key}")
    print(f"Ctrl-C stops all; their logs are in {prefect.log.parent}", flush=True)
    while True:
        for child in (*servers, runner):
            if child.process.poll() is not None:
                raise ServerError(f"{child.name} has ended ({ended(child.process.returncode)}); see {child.log}")
        time.sleep(0.5)


def _serve(prefect: str) -> Server:
    """Start the process that offers the deployments and runs what is started in the UI."""
    environment = child_environment(
        PREFECT_API_URL=f"{prefect}/api", PREFECT_RUNNER_POLL_FREQUENCY="3", PREFECT_RUNNER_SERVER_ENABLE="false"
    )
    log = places().home / "logs" / "deployments.log"
    with log.open("wb") as output:
        process = start([sys.executable, "-m", "flows.deployments"], environment, Path.cwd(), output)
    return Server("deployments", prefect, process, log)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
