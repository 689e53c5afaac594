"""What the Prefect UI offers: the experiment with a short form, the same with every setting, and studies.

A run started there becomes a DVC experiment of the same name, in a workspace of its own; the working tree stays as it
is.  ``python -m flows.deployments`` serves them to the Prefect server in ``PREFECT_API_URL``; `flows.serve` does that.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from prefect import Flow, flow, get_client, get_run_logger, runtime, serve
from prefect.artifacts import create_markdown_artifact
from pydantic import Field

from flows.chain import in_workspace
from flows.study_cells import study
from pipeline_lib.identity.code import library_versions, other_versions
from pipeline_lib.settings import Params, load_params
from pipeline_lib.settings.compose import validate_params
from pipeline_lib.settings.load import changed_params
from pipeline_lib.tracking.processes import own_process
from tasks.chain.form import AS_IT_IS, OVERRIDE, often_changed_schema, preset_choice, requested_changes
from tasks.chain.params_file import change_settings
from tasks.chain.workspaces import free_name, slug, uncommitted, with_files_of, workspace
from tasks.identity.run import NAME_PATTERN, call, checked_name
from tasks.runtime.exit_status import explain_in_logs
from tasks.runtime.flow_runs import heartbeat_automation, mark_crashed
from tasks.runtime.tracked_run import watch_states

ABOUT_RUNS = (
    "The run becomes a DVC experiment of the same name in a workspace of its own: `dvc exp show` lists it, "
    "`dvc exp apply` brings it into your working tree, which is otherwise not touched."
)
DESCRIPTIONS = {
    "experiment": f"The whole chain, from problems to a verdict, with the most important settings. {ABOUT_RUNS}",
    "experiment-all-settings": f"The whole chain, with a field for every setting of `params.yaml`. {ABOUT_RUNS}",
    "study": "The experiment at every level of one or two factors, compared on one page, as `symposium study` does. "
    "Every cell becomes a DVC experiment.",
}
NOTHING: dict[str, Any] = {}
_WITH = "with:"
ABOUT_ENVIRONMENT = "the task, with the values of other sections that belong to it (conf/environment)"
Jobs = Annotated[int, Field(ge=1, le=64)]
Name = Annotated[str, Field(pattern=f"^({NAME_PATTERN})?$")]


@flow(name="experiment", validate_parameters=False)
def experiment(
    name: Name = "",
    note: str = "",
    environment: Annotated[str, preset_choice("environment", ABOUT_ENVIRONMENT)] = AS_IT_IS,
    policy: Annotated[str, preset_choice("policy", "the language models (conf/policy)")] = AS_IT_IS,
    settings: Annotated[Mapping[str, Any], often_changed_schema()] = NOTHING,
    overrides: Sequence[Annotated[str, OVERRIDE]] = (),
    jobs: Jobs = 2,
    share: bool = False,
) -> str:
    """Run the chain as a DVC experiment; returns the experiment's commit.

    Args:
        name: of the run in Prefect, MLflow and its report, and in DVC with dashes; if empty, the name of the flow run
        note: what the run is for; shown beside its name
        settings: an empty field leaves the setting as it is in params.yaml or in the preset
        overrides: any other setting, as on the command line: problems=humaneval, train.loss.kl=0.05
        jobs: number of stages that run at the same time
        share: take results of other machines and give them this run, through DVC's default remote and git's origin
    """
    changes = requested_changes({"environment": environment, "policy": policy}, settings, overrides)
    return _as_experiment(
        lambda place: changed_params(changes, place / "params.yaml", place / "conf", "the form"),
        name,
        note,
        jobs,
        share,
    )


@flow(name="experiment-all-settings", validate_parameters=False)
def experiment_all_settings(params: Params, name: Name = "", note: str = "", jobs: Jobs = 2) -> str:
    """Run the chain with these settings as a DVC experiment; returns the experiment's commit.

    Args:
        name: of the run in Prefect, MLflow and its report, and in DVC with dashes; if empty, the name of the flow run
        note: what the run is for; shown beside its name
        params: every setting, as in params.yaml
        jobs: number of stages that run at the same time
    """
    content: Any = params  # as JSON: it is checked here, so that a mistake is answered in a sentence
    return _as_experiment(lambda place: validate_params(content, Path("the form")), name, note, jobs)


def asked_with() -> list[str]:
    """Return the tags by which a worker knows with which libraries a run was asked for."""
    return [f"{_WITH}{name} {version}" for name, version in library_versions().items()]


def asked_with_other_libraries(tags: Collection[str]) -> str:
    """Return what is to be said if the libraries here are others than those with which a run was asked for."""
    asked = dict(tag.removeprefix(_WITH).split(" ", 1) for tag in tags if tag.startswith(_WITH))
    if not (others := other_versions(library_versions(), asked, "there")):
        return ""
    return (
        f"this worker has other libraries than the checkout that asks: {others}; results are not taken from such "
        "checkouts, and count as stale there"
    )


def _as_experiment(settings: Callable[[Path], Params], title: str, note: str, jobs: int, share: bool = False) -> str:
    """Run the chain in a workspace with ``settings`` of it, called ``title`` or as the flow run; return the commit."""
    explain_in_logs()
    logger, project = get_run_logger(), Path.cwd()
    wanted = checked_name(title) if title else str(runtime.flow_run.name)
    name = free_name(project, wanted, share)
    run = _numbered(title, name)
    call(run if title else "", note)
    with get_client(sync_client=True) as client:
        tags = [tag for tag in runtime.flow_run.tags if tag.startswith(_WITH)]
        client.update_flow_run(runtime.flow_run.id, name=run, tags=[*tags, f"run:{run}", f"process:{own_process()}"])
    if said := asked_with_other_libraries(tags):
        logger.warning("%s", said)
    if left_out := uncommitted(project):
        logger.warning("changes that are not committed are not part of this run: %s", ", ".join(left_out))
    with workspace(project, name) as folder:
        params, outside = with_files_of(settings(folder), project, folder)
        if outside:
            logger.warning("read from your working tree, since they are not committed: %s", ", ".join(outside))
        changed = change_settings(folder / "params.yaml", params)
        rows = "\n".join(f"| {key} | {old} | {new} |" for key, (old, new) in changed.items())
        text = f"| setting | params.yaml | this run |\n|---|---|---|\n{rows}" if rows else "As in params.yaml."
        create_markdown_artifact(f"Experiment `{name}`\n\n{text}", key="changed-settings")
        commit, name = in_workspace(folder, project, params, name, jobs, title=run, share=share)
    if _numbered(title, name) != run:
        with get_client(sync_client=True) as client:
            client.update_flow_run(runtime.flow_run.id, name=_numbered(title, name))  # whoever waits reads it there
    logger.info("saved as DVC experiment %s: `dvc exp show`, `dvc exp apply %s`", name, name)
    return commit


def _numbered(title: str, name: str) -> str:
    """Return the title of a run with the number that the name of its experiment got, because it was taken."""
    return f"{title}{name.removeprefix(slug(title))}" if title else name


def main() -> None:
    """Serve the deployments until the process is ended."""
    heartbeat_automation()
    mark_crashed()
    watch_states()
    jobs = os.cpu_count() or 1
    every_setting = {"params": load_params().model_dump(mode="json"), "jobs": jobs}
    offered: list[tuple[Flow[..., Any], dict[str, Any]]] = [
        (experiment, {"jobs": jobs}),
        (experiment_all_settings, every_setting),
        (study, {"jobs": jobs}),
    ]
    deployments: Any = [
        offer.to_deployment(offer.name, parameters=values, description=DESCRIPTIONS[offer.name])
        for offer, values in offered
    ]
    serve(*deployments, limit=1, pause_on_shutdown=False)


if __name__ == "__main__":
    main()
