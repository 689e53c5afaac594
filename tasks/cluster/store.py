"""SeaweedFS: an S3 store in the folder of the cluster.  Of its ports only that of S3 is for others.

Its inner ports listen on 127.0.0.1, but that of S3's gRPC, the next one, listens where S3 does, and asks for a token.
The HTTP ones ask for a token that only its parts have, the other gRPC ones for nothing: whoever can log in to the
machine of the servers can read and write the store.
"""

import hashlib
import hmac
import json
import shutil
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tasks.cluster.settings import ClusterError, Passwords

RESULTS, ARTIFACTS = "symposium", "mlflow"
"""Buckets: DVC's remote of every project, and MLflow's artifacts."""
_INNER = (
    "s3.port.grpc",
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
)
_TOKENS = ("SIGNING", "SIGNING_READ", "FILER_SIGNING", "FILER_SIGNING_READ")
_PROBE = 1 << 16  # bytes: smaller files need no volume
LEAST = 3 << 30
"""Bytes that must be free for a new store: a volume for each bucket, and one more."""
PORTS = 1 + len(_INNER)
"""It takes so many ports, from the one of S3 on."""


def command(folder: Path, host: str, port: int, passwords: Passwords) -> list[str]:
    """Return the command of the server, for which files are written to ``folder``.

    Raises:
        ClusterError: SeaweedFS is not installed.
    """
    if (weed := shutil.which("weed")) is None:
        raise ClusterError("SeaweedFS is not installed; `make cluster` installs it")
    data, access = folder / "data", folder / "access.json"
    data.mkdir(parents=True, exist_ok=True)
    key = {"accessKey": passwords.aws_access_key_id, "secretKey": passwords.aws_secret_access_key}
    rights = ["Admin", "Read", "Write", "List", "Tagging"]
    access.touch(mode=0o600)
    access.write_text(json.dumps({"identities": [{"name": "symposium", "credentials": [key], "actions": rights}]}))
    options = {
        "dir": data,
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "s3": "true",
        "s3.ip.bind": host,
        "s3.port": port,
        **{name: port + number for number, name in enumerate(_INNER, start=1)},
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "s3.config": access,
        "s3.localSocket": folder / "s3.sock",
        "filer.localSocket": folder / "filer.sock",
        "master.telemetry": "false",
        "master.electionTimeout": "1s",  # else it takes 20 s after a kill
        "master.volumeSizeLimitMB": 1024,
        "volume.max": 0,  # as many as the disk has room for
        "volume.preStopSeconds": 0,
    }
    return [weed, "server", *(f"-{name}={value}" for name, value in options.items())]


def variables(passwords: Passwords) -> Mapping[str, str]:
    """Return environment variables: tokens without which its inner HTTP ports refuse, and how it shares the disk."""
    key = passwords.aws_secret_access_key.encode()
    tokens = {f"WEED_JWT_{name}_KEY": hmac.new(key, name.encode(), hashlib.sha256).hexdigest() for name in _TOKENS}
    # A bucket takes one volume at a time; with the default of seven the first one takes all that a small disk has.
    return tokens | {"WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"}


def client(port: int, passwords: Passwords) -> Any:
    """Return a client of the store on this machine."""
    return boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        aws_access_key_id=passwords.aws_access_key_id,
        aws_secret_access_key=passwords.aws_secret_access_key,
        region_name="us-east-1",
        config=Config(retries={"max_attempts": 1}, connect_timeout=5, read_timeout=60),
    )


def takes_files(port: int, passwords: Passwords) -> bool:
    """Return whether files can be written to both buckets, which a full store refuses."""
    store = client(port, passwords)
    try:
        for bucket in (RESULTS, ARTIFACTS):
            store.put_object(Bucket=bucket, Key="ready", Body=bytes(_PROBE))
            store.delete_object(Bucket=bucket, Key="ready")
    except (BotoCoreError, ClientError):
        return False
    return True


def make_buckets(port: int, passwords: Passwords) -> bool:
    """Make the buckets that are not there yet; return whether the store was ready for it."""
    store = client(port, passwords)
    try:
        there = {bucket["Name"] for bucket in store.list_buckets()["Buckets"]}
        for name in {RESULTS, ARTIFACTS} - there:
            store.create_bucket(Bucket=name)
        probe = {"Bucket": ARTIFACTS, "Key": "ready"}
        store.put_object(**probe, Body=b"ready")  # it lists before it can write
        store.delete_object(**probe)
    except (BotoCoreError, ClientError):
        return False
    return True


def refuses(port: int, passwords: Passwords) -> bool:
    """Return whether the store answers, and has another key."""
    try:
        client(port, passwords).list_buckets()
    except ClientError as error:
        return bool(error.response["ResponseMetadata"]["HTTPStatusCode"] == HTTPStatus.FORBIDDEN)
    except BotoCoreError:
        return False
    return False
