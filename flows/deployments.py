"""What the Prefect UI offers: the whole experiment, with every setting as a form field.

A run started there becomes a DVC experiment of the same name, in a workspace of its own; the working tree stays as it
is.  ``python -m flows.deployments`` serves it to the Prefect server in ``PREFECT_API_URL``; `flows.serve` does that.
"""

import os
from pathlib import Path
from typing import Annotated

from prefect import flow, get_client, get_run_logger, runtime
from prefect.artifacts import create_markdown_artifact
from pydantic import Field

from flows.chain import in_workspace
from pipeline_lib.settings import Params, load_params
from pipeline_lib.tracking.processes import own_process
from tasks.chain.workspaces import change_settings, free_name, uncommitted, workspace
from tasks.runtime.conducting import watch_states
from tasks.runtime.endings import explain_in_logs
from tasks.services.crashed import heartbeat_automation, mark_crashed

DESCRIPTION = (
    "The whole chain, from problems to a verdict. Every field is a setting of `params.yaml` and starts with the value "
    "from there. The run becomes a DVC experiment of the same name in a workspace of its own: `dvc exp show` lists it, "
    "`dvc exp apply` brings it into your tree, which is not touched otherwise."
)


@flow(name="experiment")
def experiment(params: Params, jobs: Annotated[int, Field(ge=1, le=64, description="stages side by side")] = 2) -> str:
    """Run the chain with these settings as a DVC experiment; returns the experiment's commit."""
    explain_in_logs()
    logger, project = get_run_logger(), Path.cwd()
    name = free_name(project, str(runtime.flow_run.name))
    with get_client(sync_client=True) as client:
        client.update_flow_run(runtime.flow_run.id, name=name, tags=[f"run:{name}", f"process:{own_process()}"])
    if left_out := uncommitted(project):
        logger.warning("changes that are not committed are not part of this run: %s", ", ".join(left_out))
    with workspace(project, name) as folder:
        changed = change_settings(folder / "params.yaml", params)
        rows = "\n".join(f"| {key} | {old} | {new} |" for key, (old, new) in changed.items())
        text = f"| setting | params.yaml | this run |\n|---|---|---|\n{rows}" if rows else "As in params.yaml."
        create_markdown_artifact(f"Experiment `{name}`\n\n{text}", key="changed-settings")
        commit = in_workspace(folder, project, params, name, jobs)
    logger.info("saved as DVC experiment %s: `dvc exp show`, `dvc exp apply %s`", name, name)
    return commit


def main() -> None:
    """Serve the deployment until the process is ended."""
    heartbeat_automation()
    mark_crashed()
    watch_states()
    defaults = {"params": load_params().model_dump(mode="json"), "jobs": os.cpu_count() or 1}
    experiment.serve("experiment", parameters=defaults, description=DESCRIPTION, limit=1, pause_on_shutdown=False)


if __name__ == "__main__":
    main()
