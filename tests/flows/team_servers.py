"""The servers of a team, started as `symposium cluster start` does it, for tests."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.flows.project import call
from tests.flows.toy_project import started, wait_for, words

RESULTS = "symposium"
_SIGNS = {"postgres": "postgres", "store": "weed", "prefect": "prefect server", "mlflow": "mlflow server"}
_OF_SERVERS = "PGPASSWORD"


def free_ports() -> list[str]:
    """Return the options that name free ports, the eight of the store in a row."""
    for first in range(20_000 + os.getpid() % 5_000, 60_000, 16):
        with contextlib.ExitStack() as held:
            try:
                for port in range(first, first + 16):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
        given = {"prefect": first, "mlflow": first + 1, "postgres": first + 2, "store": first + 8}
        return [word for name, port in given.items() for word in (f"--{name}-port", str(port))]
    raise AssertionError("no ports are free")


@dataclass(frozen=True)
class Servers:
    """Running servers: what their users set, all passwords, and the process that keeps them running."""

    folder: Path
    variables: dict[str, str]
    passwords: dict[str, str]
    ports: list[str]
    process: subprocess.Popen[str]

    def files(self, prefix: str) -> list[str]:
        """Return the keys in the bucket of results that begin so."""
        listed: dict[str, Any] = self._store().list_objects_v2(Bucket=RESULTS, Prefix=prefix)
        return [found["Key"] for found in listed.get("Contents", ())]

    def records(self) -> list[str]:
        """Return the records of training that was sent; another machine can continue from each."""
        return [key for key in self.files("lab/training/") if Path(key).name.startswith("record-")]

    def kill(self, name: str) -> None:
        """Kill one of them."""
        (found,) = [
            child for child in psutil.Process(self.process.pid).children() if _SIGNS[name] in " ".join(child.cmdline())
        ]
        found.kill()
        wait_for(lambda: self.words().count(f"{name} has ended (killed by signal 9") == 1, self.words)

    def are_well(self) -> bool:
        """Return whether all that was killed is there again."""
        import botocore.exceptions
        import psycopg

        try:
            self.files("")
            port = self.ports[self.ports.index("--postgres-port") + 1]
            psycopg.connect(
                host="127.0.0.1", port=port, user="symposium", dbname="prefect", password=self.passwords[_OF_SERVERS]
            ).close()
        except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError, psycopg.Error):
            return False
        return True

    def words(self) -> str:
        """Return what they have said."""
        return words(self.folder)

    def comes_back_from_a_backup(self, place: Path) -> None:
        """Make a backup, damage a copy of it, restore it, and look whether everything is there."""
        saved, new = place / "backup", self.folder / "restored"
        answer = call(place, "symposium", "cluster", "status", *self.ports, **self.passwords)
        assert answer.split() == [word for name in _SIGNS for word in (name, "answers")]
        wrong = {name: f"user:{name}" for name in self.passwords if name.endswith(("STRING", "PASSWORD", "ACCESS_KEY"))}
        for changed in ({name: word} for name, word in wrong.items()):
            told = call(place, "symposium", "cluster", "status", *self.ports, status=1, **{**self.passwords, **changed})
            assert told.count("refuses the password") == 1 and told.count("answers") == 3, (changed, told)
        said = call(place, "symposium", "cluster", "backup", str(saved), *self.ports, **self.passwords)
        count = re.search(r"three databases and (\d+) files", said)
        assert count and int(count[1]) >= len(self.files("")) > 0, "MLflow's are among them"
        written = [saved, *saved.rglob("*")]
        assert not [str(path) for path in written if path.stat().st_mode & 0o077], "others can read it"
        other = {**self.passwords, _OF_SERVERS: "another password"}
        told = call(place, "symposium", "cluster", "backup", str(place / "none"), *self.ports, status=1, **other)
        assert "made with another password than PGPASSWORD" in " ".join(told.split()) and not (place / "none").exists()
        again = call(place, "symposium", "cluster", "backup", str(saved), *self.ports, status=1, **self.passwords)
        assert "is not empty" in again
        restore = ("symposium", "cluster", "restore")
        shutil.copytree(saved, bad := place / "damaged")
        with next((bad / "objects").iterdir()).open("ab") as file:
            file.write(b"x")
        for folder, says in ((bad, "is missing or damaged; nothing was restored"), (place, "no complete backup")):
            told = call(place, *restore, str(folder), "--folder", str(new), status=1, **self.passwords)
            assert says in " ".join(told.split())
            assert not new.exists()
        # Other passwords than before, of every character that addresses and files may stumble over.
        others = {
            **self.passwords,
            "PREFECT_API_AUTH_STRING": """us er:p@ss:w%rd#"x'y z""",
            "AWS_SECRET_ACCESS_KEY": 's3/+=%secret "key',
            _OF_SERVERS: """p%g@:/?#[]& "word"'s""",
        }
        ports = free_ports()
        call(place, *restore, str(saved), "--folder", str(new), *ports, **others)
        with team_servers(new, others, ports) as restored:
            assert restored.variables["AWS_ENDPOINT_URL_S3"] != self.variables["AWS_ENDPOINT_URL_S3"]
            assert restored.files("") == self.files("")
            for key in self.files("")[:5]:
                assert restored.content(key) == self.content(key)

    def content(self, key: str) -> bytes:
        """Return a file in the bucket of results."""
        return bytes(self._store().get_object(Bucket=RESULTS, Key=key)["Body"].read())

    def _store(self) -> Any:
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.variables["AWS_ENDPOINT_URL_S3"],
            aws_access_key_id=self.variables["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self.variables["AWS_SECRET_ACCESS_KEY"],
            region_name="us-east-1",
        )


@contextlib.contextmanager
def team_servers(
    folder: Path | None = None, passwords: dict[str, str] | None = None, ports: list[str] | None = None
) -> Iterator[Servers]:
    """Run the servers for a ``with`` block, new ones by default, in a folder that PostgreSQL's user can reach."""
    with tempfile.TemporaryDirectory(prefix="symposium-team-") as place:
        Path(place).chmod(0o755)
        folder, ports = folder or Path(place) / "servers", ports or free_ports()
        if passwords is None:
            drawn = call(Path(place), "symposium", "cluster", "passwords", *ports)
            passwords = dict(line.split("=", 1) for line in drawn.splitlines() if not line.startswith("#"))
        folder.mkdir(exist_ok=True)
        start = ("-m", "symposium", "cluster", "start", "--folder", str(folder), *ports)
        with started(folder, *start, **passwords) as process:
            wait_for(lambda: "ready:" in words(folder) or process.poll() is not None, lambda: words(folder))
            assert process.poll() is None, words(folder)
            users = {name: value for name, value in passwords.items() if name != _OF_SERVERS}
            addresses = [line.strip().split("=", 1) for line in words(folder).splitlines() if line.startswith("  ")]
            yield Servers(folder, users | dict(addresses), passwords, ports, process)
