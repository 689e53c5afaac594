"""Where the servers of a team keep everything, where they listen, and their passwords.

Passwords are drawn once and given in the environment, under the names that clients read as well.
"""

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import NamedTuple


class Ports(NamedTuple):
    """Ports of the servers; the store takes eight, from its own on."""

    prefect: int = 4200
    mlflow: int = 5000
    store: int = 8333
    postgres: int = 5432


@dataclass(frozen=True, slots=True)
class Cluster:
    """Servers on one machine."""

    folder: Path  #: where they keep everything
    ports: Ports = field(default_factory=Ports)  #: where they listen
    host: str = "127.0.0.1"  #: address on which Prefect, MLflow and the store listen; the others are on 127.0.0.1
    name: str = "127.0.0.1"  #: under which other machines reach this one

    @property
    def addresses(self) -> dict[str, str]:
        """The variables with which clients find the servers."""
        return {
            "PREFECT_API_URL": f"http://{self.name}:{self.ports.prefect}/api",
            "MLFLOW_TRACKING_URI": f"http://{self.name}:{self.ports.mlflow}",
            "AWS_ENDPOINT_URL_S3": f"http://{self.name}:{self.ports.store}",
        }


LEAST = 12
"""Characters of a password; MLflow accepts none that is shorter."""


class ClusterError(RuntimeError):
    """The servers cannot do what is asked; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Passwords:
    """What the servers ask for.  The fields are named as the environment variables, in small letters."""

    prefect_api_auth_string: str  #: ``user:password`` of the Prefect server
    mlflow_tracking_username: str  #: the administrator of the MLflow server
    mlflow_tracking_password: str  #: its password
    aws_access_key_id: str  #: name of the key to the store
    aws_secret_access_key: str  #: the key
    pgpassword: str  #: password of the database, which only the servers need


def given(environment: Mapping[str, str] = os.environ) -> Passwords:
    """Return the passwords that the environment names; raises ClusterError if one is missing or too short."""
    names = [field.name.upper() for field in fields(Passwords)]
    if missing := [name for name in names if not environment.get(name)]:
        raise ClusterError(
            f"not set: {', '.join(missing)}; `symposium cluster passwords > cluster.env` draws all of them, and "
            "`set -a; . ./cluster.env` sets them"
        )
    found = Passwords(*(environment[name] for name in names))
    user, _, password = found.prefect_api_auth_string.partition(":")
    if not (user and password):
        raise ClusterError("PREFECT_API_AUTH_STRING has the form user:password")
    secret = {
        "PREFECT_API_AUTH_STRING": password,
        "MLFLOW_TRACKING_PASSWORD": found.mlflow_tracking_password,
        "AWS_SECRET_ACCESS_KEY": found.aws_secret_access_key,
        "PGPASSWORD": found.pgpassword,
    }
    if short := [name for name, value in secret.items() if len(value) < LEAST]:
        raise ClusterError(f"{', '.join(short)}: a password has at least {LEAST} characters")
    return found


def drawn(addresses: Mapping[str, str]) -> str:
    """Return the text of an environment file with new passwords, and with these addresses of the servers."""

    def password() -> str:
        return secrets.token_hex(16)

    return "\n".join(
        [
            "# What everybody needs who works with the servers.",
            *(f"{name}={value}" for name, value in addresses.items()),
            f"PREFECT_API_AUTH_STRING=symposium:{password()}",
            "MLFLOW_TRACKING_USERNAME=symposium",
            f"MLFLOW_TRACKING_PASSWORD={password()}",
            "AWS_ACCESS_KEY_ID=symposium",
            f"AWS_SECRET_ACCESS_KEY={password()}",
            "# Only for the machine of the servers.",
            f"PGPASSWORD={password()}",
            "",
        ]
    )
