"""Run the servers that a team shares: PostgreSQL, Prefect, MLflow and an S3 store, with passwords, until Ctrl-C.

symposium cluster passwords > cluster.env        # drawn once; `set -a; . ./cluster.env` sets them
symposium cluster start                          # all four, on 127.0.0.1
symposium cluster status                         # does each answer, with these passwords? if not: exit status 1
symposium cluster backup FOLDER                  # all that they keep, while they run
symposium cluster restore FOLDER --folder NEW    # new servers from it

`make cluster` installs what they need and does the first two.  Where they keep everything: --folder, by default
~/symposium-cluster, or /var/lib/symposium-cluster for root.  docs/orchestration.md says how others use them.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

from tasks.cluster.settings import Cluster, ClusterError, Ports, drawn, given
from tasks.runtime.arguments import program_parser, whole
from tasks.runtime.exit_status import explained, sigterm_interrupts

_LOOK_S = 1.0


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    reader = program_parser("cluster", __doc__)
    commands = reader.add_subparsers(dest="command", metavar="passwords|start|status|backup|restore", required=True)
    passwords = commands.add_parser("passwords", help="print an environment file with new passwords")
    start = commands.add_parser("start", help="start the servers, and again those that end, until Ctrl-C")
    status = commands.add_parser("status", help="say whether the servers answer")
    backup = commands.add_parser("backup", help="write all that running servers keep to a new folder")
    restore = commands.add_parser("restore", help="make new servers from a backup")
    for command in (backup, restore):
        command.add_argument("backup", type=Path, metavar="FOLDER", help="folder of the backup")
    home = Path("/var/lib") if os.geteuid() == 0 else Path.home()
    for command in (passwords, start, restore):  # the same line of options for the first two, as `make cluster` has it
        command.add_argument(
            "--folder", type=Path, default=home / "symposium-cluster", help="where they keep everything"
        )
    everywhere = "listen on all addresses of this machine with 0.0.0.0 (default: 127.0.0.1)"
    for command in (passwords, start):
        command.add_argument("--host", choices=("127.0.0.1", "0.0.0.0"), default="127.0.0.1", help=everywhere)
        command.add_argument("--name", default="127.0.0.1", help="under which other machines reach this one")
    for command in (passwords, start, status, backup, restore):
        for server, port in Ports()._asdict().items():
            command.add_argument(f"--{server}-port", type=whole(1, 65_000), default=port, help=f"default: {port}")
    return reader


def main() -> None:
    """Do what the command says."""
    with explained(), sigterm_interrupts():
        asked = parser().parse_args()
        ports = Ports(*(getattr(asked, f"{server}_port") for server in Ports._fields))
        if asked.command == "passwords":
            print(drawn(Cluster(Path(), ports, name=asked.name).addresses), end="")
            return
        passwords = given()
        servers, backups = _modules()
        if asked.command == "start":
            cluster = Cluster(asked.folder.absolute(), ports, asked.host, asked.name)
            with servers.everything(cluster, passwords, _say) as look:
                _say("\n".join(["ready:", *(f"  {name}={value}" for name, value in cluster.addresses.items())]))
                while True:
                    time.sleep(_LOOK_S)
                    look()
        elif asked.command == "status":
            answering = servers.answering(ports, passwords)
            for server, does in answering.items():
                _say(f"{server:9} {does}")
            sys.exit({*answering.values()} != {servers.ANSWERS})
        elif asked.command == "backup":
            count = backups.back_up(ports, passwords, asked.backup.absolute(), _say)
            _say(f"{asked.backup}: three databases and {count} files")
        else:
            cluster = Cluster(asked.folder.absolute(), ports)
            count = backups.restore(cluster, passwords, asked.backup.absolute(), _say)
            _say(f"{cluster.folder}: three databases and {count} files; `symposium cluster start --folder` starts them")


def _modules() -> tuple[Any, Any]:
    # Only the machine of the servers has what they import (the extra `team`).
    try:
        from tasks.cluster import backup, servers
    except ImportError as error:
        raise ClusterError(f"{error.name} is not installed; `make cluster` installs what the servers need") from None
    return servers, backup


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
