"""Hosts of a vLLM engine: this process, a separate one, or a server; all have the interface `Host`."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pipeline_lib.http_client import HttpClient
from pipeline_lib.rollouts import vllm_worker
from pipeline_lib.rollouts.engine import EngineError

Row = Mapping[str, Any]
Drawn = list[list[list[Any]]]

_LOG_TAIL = 2000


class Host(ABC):
    """One vLLM engine; arguments and results are those of `vllm_worker.VllmHost`."""

    @abstractmethod
    def call(self, name: str, **arguments: Any) -> Any:
        """Make a call and return its result; raises EngineError if the call failed."""

    def close(self) -> None:
        """Free the engine; it may be called twice."""


class InsideHost(Host):
    """vLLM in this process; it must be installed in this environment."""

    def __init__(self) -> None:
        """Create the host; ``start`` creates the engine."""
        self._host = vllm_worker.VllmHost()

    def call(self, name: str, **arguments: Any) -> Any:
        try:
            return getattr(self._host, name)(**arguments)
        except ModuleNotFoundError as error:
            raise EngineError(_missing(sys.executable, str(error))) from error
        except Exception as error:  # vLLM's errors have no common type
            raise EngineError(f"vLLM: {name} failed: {type(error).__name__}: {error}") from error

    def close(self) -> None:
        self._host.close()


class WorkerHost(Host):
    """vLLM in a separate process with its own interpreter; it ends with this process."""

    def __init__(self, python: str, environment: Mapping[str, str], folder: Path) -> None:
        """Start the worker program.

        Args:
            python: interpreter with vLLM; empty for the present one.
            environment: variables for the worker in addition to those of this process.
            folder: folder for the transfer of weights, which the worker removes after this process has ended.
        """
        self._python = python or sys.executable
        self._waiting = False  # for the answer to a call
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 (closed in close)
        self._socket, theirs = socket.socketpair()
        variables = {**os.environ, **environment}
        variables.pop("PYTHONPATH", None)  # this environment's packages are not the worker's
        try:
            self._process = subprocess.Popen(
                [self._python, vllm_worker.__file__, str(theirs.fileno()), str(folder)],
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C ends this process, which then closes the connection
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
            )
        except OSError as error:
            raise EngineError(
                f"rollouts.python: {self._python} cannot be run ({error.strerror}); give an interpreter that has vLLM, "
                f"or '' for this one"
            ) from error
        finally:
            theirs.close()
        self._stream = self._socket.makefile("rw", encoding="utf-8")

    def call(self, name: str, **arguments: Any) -> Any:
        """Send a call and wait for its answer."""
        self._waiting = True
        try:
            self._stream.write(json.dumps({"call": name, **arguments}) + "\n")
            self._stream.flush()
            line = self._stream.readline()
        except (OSError, ValueError):  # broken pipe; closed file
            line = ""
        self._waiting = False
        if not line:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=5)  # its connection closes before it has ended
            raise EngineError(
                f"the vLLM process ended during {name} (status {self._process.poll()})\n{self._log_tail()}"
            )
        answer = json.loads(line)
        if "error" not in answer:
            return answer["result"]
        if answer["error"].startswith("ModuleNotFoundError"):
            raise EngineError(_missing(self._python, answer["error"]))
        raise EngineError(f"vLLM: {name} failed: {answer['error']}\n{self._log_tail()}")

    def _log_tail(self) -> str:
        """Return the end of the process's output."""
        self._log.flush()
        self._log.seek(0)
        text = self._log.read().strip()
        return f"it printed: ...{text[-_LOG_TAIL:]}" if text else "it printed nothing"

    def close(self) -> None:
        """Free the engine, unless a call was interrupted, and close the connection, which ends the worker."""
        if self._log.closed:
            return
        try:
            if not self._waiting:
                self.call("close")
            self._socket.shutdown(socket.SHUT_RDWR)  # also for copies of the socket in processes forked from this one
        except (EngineError, OSError):  # the worker has ended
            pass
        for closable in (self._stream, self._socket):
            try:
                closable.close()
            except OSError:  # the other end is closed
                continue
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


class ServerHost(Host):
    """A running ``vllm serve`` with dynamic LoRA and development endpoints, on the same file system."""

    def __init__(self, url: str, concurrency: int, timeout: float) -> None:
        """Create a client; ``start`` requests the server's model."""
        self._root = url.rstrip("/").removesuffix("/v1")
        self._client = HttpClient(self._root, retries=3, timeout=timeout, failure=EngineError)
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="vllm")
        self._model = ""
        self._names: dict[str, str] = {}
        self._made = 0

    def call(self, name: str, **arguments: Any) -> Any:
        """Make a call by HTTP."""
        return getattr(self, f"_{name}")(**arguments)

    def _start(self, arguments: Mapping[str, Any], **_: Any) -> dict[str, Any]:
        model = self._client.get("/v1/models", lambda value: value["data"][0])
        self._model = str(model["id"])
        return {"version": "server", "context": int(model["max_model_len"])}

    def _weights(self, folder: str) -> None:
        body = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
        self._client.command("/collective_rpc", body)
        self._client.command("/reset_prefix_cache", {})

    def _adapter(self, policy: str, folder: str) -> None:
        self._made += 1
        new, old = f"{policy}-{os.getpid()}-{self._made}", self._names.get(policy)
        self._client.command("/v1/load_lora_adapter", {"lora_name": new, "lora_path": folder})
        self._names[policy] = new
        if old is not None:
            self._client.command("/v1/unload_lora_adapter", {"lora_name": old})

    def _generate(self, rows: Sequence[Row], sampling: Mapping[str, Any]) -> Drawn:
        def ask(row: Row) -> list[list[Any]]:
            body = {
                "model": self._names.get(row["adapter"], self._model),
                "prompt": list(row["prompt"]),
                "n": row["n"],
                "seed": row["seed"],
                "max_tokens": row["max_tokens"],
                "stop_token_ids": list(row["ends"]),
                "stop": list(row["stops"]),
                "ignore_eos": True,
                "logprobs": 0,
                "return_token_ids": True,
                "add_special_tokens": False,
                **sampling,
            }
            return self._client.post("/v1/completions", body, lambda value: _read_choices(value, row["n"]))

        return list(self._pool.map(ask, rows))

    def _sleep(self) -> None:
        self._client.command("/reset_prefix_cache", {})
        self._client.command("/sleep?level=1", {})

    def _wake(self) -> None:
        self._client.command("/wake_up", {})

    def close(self) -> None:
        """Unload this engine's adapters; the server keeps running."""
        for name in self._names.values():
            try:
                self._client.command("/v1/unload_lora_adapter", {"lora_name": name})
            except EngineError:  # the server has ended, and needs no unloading
                break
        self._names = {}
        self._pool.shutdown()


def _read_choices(value: Any, n: int) -> list[list[Any]]:
    choices = sorted(value["choices"], key=lambda choice: int(choice["index"]))
    if len(choices) != n:
        raise ValueError(f"{len(choices)} choices for {n} asked")
    return [[list(choice["token_ids"]), list(choice["logprobs"]["token_logprobs"])] for choice in choices]


def _missing(python: str, error: str) -> str:
    return (
        f"vLLM cannot be imported by {python} ({error}); install it into an environment of its own and set "
        f"rollouts.python to that interpreter, or use the engine of kind transformers"
    )


def call_all(hosts: Sequence[Host], name: str, **arguments: Any) -> list[Any]:
    """Make the same call on all hosts concurrently and return the results in order."""
    return call_each(hosts, [lambda host: host.call(name, **arguments)] * len(hosts))


def call_each(hosts: Sequence[Host], calls: Sequence[Callable[[Host], Any]]) -> list[Any]:
    """Make one call per host, concurrently, and return the results in order."""
    if len(hosts) == 1:
        return [calls[0](hosts[0])]
    with ThreadPoolExecutor(len(hosts)) as pool:
        return list(pool.map(lambda host, call: call(host), hosts, calls))
