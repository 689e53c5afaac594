"""MLflow's model registry: the champions of an environment are versions of one registered model.

Importing this module imports MLflow, which takes a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlflow.exceptions import MlflowException

from pipeline_lib.tracking.championship import Contender, decide

if TYPE_CHECKING:
    from mlflow import MlflowClient

CHAMPION = "champion"
TAG_RUN = "symposium.run"


def crown(client: MlflowClient, model: str, run: str, registered: str, tested: Contender) -> str:
    """Make a logged model the champion if it has won that; to be called under the lock of all processes.

    Args:
        client: the connection.
        model: id of the logged model.
        run: id of the run that tested it.
        registered: name of the registered model.
        tested: what its test has shown.

    Returns:
        What was decided and why, as a sentence.
    """
    present = champion_version(client, registered)
    champion = Contender.from_tags(present.tags) if present else None
    won, why = decide(tested, champion)
    if champion and tested.tests_again(champion):
        for name, value in tested.tags().items():
            client.set_model_version_tag(registered, present.version, name, value)
    elif won:
        version = _version(client, model, run, registered, tested)
        client.set_registered_model_alias(registered, CHAMPION, version)
    return why


def champion_version(client: MlflowClient, registered: str) -> Any:
    """Return the version that is champion, or None."""
    try:
        return client.get_model_version_by_alias(registered, CHAMPION)
    except MlflowException as error:
        if error.error_code not in {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"}:  # no model, no such alias
            raise
        return None


def _version(client: MlflowClient, model: str, run: str, registered: str, tested: Contender) -> str:
    """Return the version of a logged model, made if need be, with its test as tags."""
    try:
        client.get_registered_model(registered)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        client.create_registered_model(registered)
    source, tags = f"models:/{model}", {TAG_RUN: tested.run, **tested.tags()}
    for known in client.search_model_versions(f"name = '{registered}'"):
        if known.source == source:
            for name, value in tags.items():
                client.set_model_version_tag(registered, known.version, name, value)
            return str(known.version)
    return str(client.create_model_version(registered, source=source, run_id=run, model_id=model, tags=tags).version)
