"""Where the servers of a team keep everything, and where they listen."""

from dataclasses import dataclass, field
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
    """Servers on one machine.

    Attributes:
        folder: where they keep everything.
        ports: where they listen.
        host: address on which Prefect, MLflow and the store listen; the others are on 127.0.0.1.
        name: under which other machines reach this one.
    """

    folder: Path
    ports: Ports = field(default_factory=Ports)
    host: str = "127.0.0.1"
    name: str = "127.0.0.1"

    @property
    def addresses(self) -> dict[str, str]:
        """The variables with which clients find the servers."""
        return {
            "PREFECT_API_URL": f"http://{self.name}:{self.ports.prefect}/api",
            "MLFLOW_TRACKING_URI": f"http://{self.name}:{self.ports.mlflow}",
            "AWS_ENDPOINT_URL_S3": f"http://{self.name}:{self.ports.store}",
        }
