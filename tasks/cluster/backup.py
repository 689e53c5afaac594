"""Write everything that the servers keep to a folder, and make a cluster from such a folder."""

import dataclasses
import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline_lib.storage import file_digest, new_folder, write_json
from tasks.cluster import database, store
from tasks.cluster.servers import storage
from tasks.cluster.settings import Cluster, ClusterError, Passwords, Ports

RECORD = "backup.json"
_KIND = "symposium cluster backup 1"


def back_up(ports: Ports, passwords: Passwords, folder: Path, say: Callable[[str], None]) -> int:
    """Write the databases and the files of running servers to a new ``folder``; return the number of files.

    Databases come first: a file that they name has been written before.  Only the owner can read it, for it has all
    results, and what MLflow checks passwords with.

    Raises:
        ClusterError: the folder is not empty, or a server does not answer, or has another password; nothing is left.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ClusterError(f"{folder} is not empty; name a new folder")
    with database.connected(ports.postgres, passwords.pgpassword):
        pass  # else it says in its own words that a password is wrong
    record: dict[str, Any] = {"kind": _KIND, "databases": {}, "objects": []}
    with _for_the_owner(), new_folder(folder) as part:
        for name in database.DATABASES:
            say(f"writing the database {name}")
            file = part / f"{name}.dump"
            _tool(ports.postgres, passwords, "pg_dump", "--format=custom", f"--file={file}", name)
            record["databases"][name] = file_digest(file)
        client = store.client(ports.store, passwords)
        for bucket in (store.RESULTS, store.ARTIFACTS):
            say(f"writing the files of {bucket}")
            for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
                for found in page.get("Contents", ()):
                    file = part / _file_of(bucket, found["Key"])
                    file.parent.mkdir(exist_ok=True)
                    client.download_file(bucket, found["Key"], str(file))
                    record["objects"].append({"bucket": bucket, "key": found["Key"], "sha256": file_digest(file)})
        write_json(part / RECORD, record)
    return len(record["objects"])


def restore(cluster: Cluster, passwords: Passwords, folder: Path, say: Callable[[str], None]) -> int:
    """Make a new cluster from what `back_up` has written; return the number of files.

    Raises:
        ClusterError: the cluster's folder exists, or the backup is incomplete or damaged; nothing is left then.
    """
    if cluster.folder.exists() and any(cluster.folder.iterdir()):
        raise ClusterError(f"{cluster.folder} is not empty; a backup makes new servers, in a new --folder")
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        if record["kind"] != _KIND:
            raise ClusterError(f"{folder / RECORD} is of another kind: {record['kind']}")
        named = {folder / f"{name}.dump": record["databases"][name] for name in database.DATABASES}
        objects = [(row["bucket"], row["key"], row["sha256"]) for row in record["objects"]]
    except (OSError, ValueError, KeyError, TypeError):
        raise ClusterError(f"{folder} holds no complete backup (no {RECORD} that can be read)") from None
    files = {(bucket, key): folder / _file_of(bucket, key) for bucket, key, _ in objects}
    named |= {files[bucket, key]: digest for bucket, key, digest in objects}
    for file, digest in named.items():
        if not file.is_file() or file_digest(file) != digest:
            raise ClusterError(f"{file} is missing or damaged; nothing was restored")
    with new_folder(cluster.folder) as part:
        with storage(dataclasses.replace(cluster, folder=part), passwords, say):
            for name in database.DATABASES:
                say(f"reading the database {name}")
                file = folder / f"{name}.dump"
                _tool(cluster.ports.postgres, passwords, "pg_restore", "--exit-on-error", f"--dbname={name}", str(file))
            say(f"reading {len(files)} files")
            client = store.client(cluster.ports.store, passwords)
            for (bucket, key), file in files.items():
                client.upload_file(str(file), bucket, key)
        for socket in part.rglob("*.sock"):  # nothing that could be written to the disk
            socket.unlink()
    return len(files)


@contextmanager
def _for_the_owner() -> Iterator[None]:
    """Let nobody else read what this process, and its children, write in a ``with`` block."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _file_of(bucket: str, key: str) -> str:
    """Return the file of an object in a backup; a key may be no name of a file, or one outside of the folder."""
    return f"objects/{hashlib.sha256(f'{bucket}/{key}'.encode()).hexdigest()}"


def _tool(port: int, passwords: Passwords, name: str, *arguments: str) -> None:
    command = [database.program(name), *arguments]
    done = subprocess.run(
        command,
        env=dict(database.tool_environment(port, passwords.pgpassword)),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ClusterError(f"{name}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
