"""``python -m pipeline_lib.sandbox``: build the image, serve the sandbox over HTTP, show which jails work here."""

from __future__ import annotations

import argparse
import signal
import sys
from contextlib import suppress
from dataclasses import fields

from pipeline_lib.sandbox.backend import SandboxUnavailable
from pipeline_lib.sandbox.docker_jail import DEFAULT_IMAGE
from pipeline_lib.sandbox.executor import Executor
from pipeline_lib.sandbox.image import build_image
from pipeline_lib.sandbox.jails import LEVELS, STARTERS
from pipeline_lib.sandbox.jobs import Limits
from pipeline_lib.sandbox.packages import DEFAULT_PACKAGES
from pipeline_lib.sandbox.remote import DEFAULT_PORT, TOKEN_VARIABLE, find_token
from pipeline_lib.sandbox.server import Bounds, SandboxServer
from pipeline_lib.sandbox.worker import JailError


def main() -> int:
    """Run one command; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m pipeline_lib.sandbox", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build-image", help="build the image for the docker backend, without a network")
    build.add_argument("--tag", default=DEFAULT_IMAGE, help="name of the image (default: %(default)s)")
    build.add_argument("--base", help="base image; it needs python3 >= 3.11 (default: built from this interpreter)")
    build.add_argument("--packages", nargs="+", default=DEFAULT_PACKAGES, help="as pip knows them (default: numpy)")
    commands.add_parser("probe", help="show which jails work here, and their isolation levels")
    serve = commands.add_parser("serve", help="serve jobs over HTTP; anyone with the token can run code as this user")
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    serve.add_argument("--port", type=int, default=DEFAULT_PORT, help="default: %(default)s; 0: a free port")
    serve.add_argument("--token-file", help=f"file with the token (default: the variable {TOKEN_VARIABLE})")
    serve.add_argument(
        "--backend", default="process", choices=("process", "docker", "auto"), help="backend that runs the jobs"
    )
    serve.add_argument("--slots", type=int, default=0, help="programs that run at the same time; 0: four per core")
    serve.add_argument("--min-isolation", choices=LEVELS, help="weakest accepted isolation")
    serve.add_argument("--image", help="for docker")
    serve.add_argument(
        "--packages", nargs="+", help="packages that programs may import, with pip's names (default: numpy)"
    )
    for field in fields(Limits):
        name = "--" + field.name.replace("_", "-")
        serve.add_argument(name, type=type(field.default), default=field.default, help="largest limits of a job")
    for field in fields(Bounds):
        name = "--most-" + field.name.replace("_", "-")
        serve.add_argument(name, type=type(field.default), default=field.default, help="see server.Bounds")
    args = parser.parse_args()
    if args.command == "probe":
        return _probe()
    try:
        if args.command == "serve":
            return _serve(args)
        identifier = build_image(args.tag, args.base, args.packages)
    except (JailError, SandboxUnavailable, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    print(identifier)
    return 0


def _serve(args: argparse.Namespace) -> int:
    token = find_token(None, args.token_file)
    limits = Limits(**{field.name: getattr(args, field.name) for field in fields(Limits)})
    bounds = Bounds(**{field.name: getattr(args, f"most_{field.name}") for field in fields(Bounds)})
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        Executor(
            args.backend,
            args.slots,
            limits,
            min_isolation=args.min_isolation,
            image=args.image,
            packages=args.packages,
        ) as executor,
        SandboxServer(executor, token, args.host, args.port, bounds) as server,
    ):
        host, port = server.server_address[:2]
        print(f"http://{host!s}:{port}", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0


def _probe() -> int:
    works = 0
    for jail in STARTERS:
        try:
            backend = "docker" if jail == "docker" else "process"
            with Executor(backend, slots=1, jail=None if backend == "docker" else jail, min_isolation="rlimits") as ex:
                works += 1
                line = ex.health()["isolation"]
        except SandboxUnavailable as error:
            line = f"does not work: {error}"
        print(f"{jail}: {line}")
    return 0 if works else 1


if __name__ == "__main__":
    sys.exit(main())
