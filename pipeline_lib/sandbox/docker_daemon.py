"""The Docker daemon, and the names of the sandbox's images and containers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pipeline_lib.sandbox.worker import JailError

DEFAULT_IMAGE = "symposium-sandbox"
LABEL = "symposium-sandbox"  # on containers: their owner; on images: a digest of their contents
PLACE = "/symposium"  # path of the fork server in an image, and of the socket in a container


@contextmanager
def daemon() -> Iterator[Any]:
    """Yield a client of the Docker daemon.

    Raises:
        JailError: there is no SDK or no daemon, or it refuses; the message says what to do.
    """
    try:
        import docker
        import docker.errors
        import requests
    except ImportError as error:
        raise JailError(f"the Docker SDK is not installed: pip install 'docker>=7.1' ({error})") from None
    where = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    client = None
    try:
        client = docker.DockerClient.from_env(timeout=30)
        yield client
    except docker.errors.ImageNotFound as error:
        raise JailError(
            f"the image does not exist: {error.explanation}; make it with `python -m pipeline_lib.sandbox build-image`"
        ) from None
    except docker.errors.APIError as error:
        raise JailError(f"the Docker daemon at {where} refuses: {error.explanation or error}") from None
    except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
        raise JailError(
            f"no Docker daemon answers at {where}: start one, set DOCKER_HOST, or choose another backend ({error})"
        ) from None
    finally:
        if client is not None:
            client.close()
