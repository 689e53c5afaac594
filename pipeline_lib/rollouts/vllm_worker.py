"""Host of one vLLM engine: a class in the trainer's process, or a program in its own process and environment.

As a program (``python vllm_worker.py <fd> <folder>``) it reads one JSON object a line from the inherited socket ``fd``
(a call: ``{"call": name, ...arguments}``) and answers each with one line (``{"result": ...}`` or ``{"error": text}``).
It imports only the standard library and vLLM, because vLLM's environment has none of this project's packages: vLLM pins
other versions than the trainer.  Weights arrive as safetensors folders.  vLLM's output goes to standard error.

The program ends when the other end of the socket closes or its parent process ends.  It then also ends the ranks of
tensor parallelism, and removes their shared memory and ``folder``, which contains weights in transfer.
"""

from __future__ import annotations

import contextlib
import gc
import json
import multiprocessing
import os
import select
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# Set before vLLM is imported: no telemetry, no network, and the engine in this process (a second process would cost
# half a minute of start-up on a CPU).  Ranks are spawned, because this process has threads; the shutdown timeout is
# short, because ranks of vLLM 0.32 ignore the request.  Variables that are already set are kept.
DEFAULTS = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS": "1",
}


class VllmHost:
    """One ``vllm.LLM`` with the calls of the rollout engine."""

    def __init__(self) -> None:
        self._llm: Any = None
        self._adapters: dict[str, Any] = {}
        self._made = 0
        self._files: set[Path] = set()

    def start(self, arguments: Mapping[str, Any], replica: int = 0, replicas: int = 1) -> dict[str, Any]:
        """Create the engine.

        Args:
            arguments: keyword arguments of ``vllm.LLM``.
            replica: number of this engine among the replicas.
            replicas: number of replicas; on a CPU each uses its share of the cores.

        Returns:
            ``{"version": ..., "context": maximum number of tokens of prompt and action}``.
        """
        for key, value in DEFAULTS.items():
            os.environ.setdefault(key, value)
        import vllm.platforms  # only now, because it reads these variables; like all below only where vLLM runs

        current_platform = vllm.platforms.current_platform
        chunks: dict[str, bool] = {}
        if current_platform.is_cpu():
            _take_cores(replica, replicas, int(arguments["tensor_parallel_size"]))
            # When the prompts of a step exceed its budget, vLLM 0.32 reads one in two steps and sets its generator back
            # by an offset, which generators on a CPU do not have.
            chunks = {"enable_chunked_prefill": False}
        # a CPU has no device memory to free; there, sleep only clears caches
        sleep = bool(arguments["enable_sleep_mode"]) and current_platform.is_sleep_mode_available()
        self._llm = vllm.LLM(**{**arguments, **chunks, "enable_sleep_mode": sleep})
        self._files = _shared_files()
        return {"version": vllm.__version__, "context": int(self._llm.llm_engine.model_config.max_model_len)}

    def weights(self, folder: str) -> None:
        """Load all weights from ``folder``, and clear the cache of the old ones."""
        self._llm.collective_rpc("reload_weights", kwargs={"weights_path": folder})
        self._llm.reset_prefix_cache()

    def adapter(self, policy: str, folder: str) -> None:
        """Serve ``policy`` with the LoRA adapter in ``folder`` from now on.

        It gets a new id, so that caches distinguish it from the old one.
        """
        from vllm.lora.request import LoRARequest

        self._made += 1
        old = self._adapters.get(policy)
        self._adapters[policy] = LoRARequest(f"{policy}-{self._made}", self._made, folder)
        if old is not None:
            self._llm.llm_engine.remove_lora(old.lora_int_id)

    def generate(self, rows: Sequence[Mapping[str, Any]], sampling: Mapping[str, Any]) -> list[list[list[Any]]]:
        """Sample actions.

        Args:
            rows: ``prompt`` (ids), ``n``, ``seed``, ``max_tokens``, ``adapter`` (a name, or empty), ``ends`` (ids) and
                ``stops`` (texts) of each request.
            sampling: ``temperature``, ``top_p`` and ``top_k`` (0 for all).

        Returns:
            For each row, ``n`` times ``[ids, log-probabilities]``.
        """
        from vllm import SamplingParams

        parameters = [
            SamplingParams(
                n=row["n"],
                seed=row["seed"],
                max_tokens=row["max_tokens"],
                stop_token_ids=list(row["ends"]),
                stop=list(row["stops"]) or None,
                ignore_eos=True,
                logprobs=0,
                flat_logprobs=True,
                detokenize=bool(row["stops"]),
                temperature=sampling["temperature"],
                top_p=sampling["top_p"],
                top_k=sampling["top_k"],
            )
            for row in rows
        ]
        found = self._llm.generate(
            [{"prompt_token_ids": list(row["prompt"])} for row in rows],
            parameters,
            use_tqdm=False,
            lora_request=[self._adapters.get(row["adapter"]) for row in rows],
        )
        return [
            [
                [list(o.token_ids), [float(v) for v in o.logprobs.logprobs]]
                for o in sorted(request.outputs, key=lambda output: output.index)
            ]
            for request in found
        ]

    def sleep(self) -> None:
        """Free the device's memory until `wake`: weights move to main memory, and caches are cleared."""
        self._llm.reset_prefix_cache()
        self._llm.sleep(level=1)

    def wake(self) -> None:
        """Restore the weights to the device."""
        self._llm.wake_up()

    def close(self) -> None:
        """Free the engine and end its ranks."""
        self._llm = None
        gc.collect()  # the engine is part of reference cycles
        _remove(self._files)


def share(cores: Sequence[int], part: int, parts: int) -> list[int]:
    """Return the cores of one of ``parts`` parts; if there are fewer cores than parts, some parts share a core."""
    return list(cores[part * len(cores) // parts : (part + 1) * len(cores) // parts]) or [cores[part % len(cores)]]


def _take_cores(replica: int, replicas: int, ranks: int) -> None:
    """Restrict this process to a replica's share of the cores, and divide it among its ranks.

    Waiting threads spin, so two engines on the same cores are many times slower than one.  By default vLLM binds each
    rank to its own NUMA node, and refuses to start with fewer nodes than ranks.
    """
    import torch

    cores = share(sorted(os.sched_getaffinity(0)), replica, replicas)
    if replicas > 1:
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(len(cores))
    if ranks > 1:
        lists = [",".join(map(str, share(cores, rank, ranks))) for rank in range(ranks)]
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "|".join(lists))


def _shared_files() -> set[Path]:
    """Return the shared-memory files of this process's ranks on a CPU, which vLLM does not remove."""
    found = set()
    for child in multiprocessing.active_children():
        try:
            lines = Path(f"/proc/{child.pid}/maps").read_text().splitlines()
        except OSError:  # it has ended
            continue
        names = {line.partition("/dev/shm/")[2] for line in lines if "/dev/shm/vllm_dist_" in line}
        found |= {Path("/dev/shm", name) for name in names}
        found |= {Path(tempfile.gettempdir(), name.partition("-")[0]) for name in names}
    return found


def _remove(files: set[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)


def serve(connection: socket.socket) -> None:
    """Answer calls until the other end closes."""
    host = VllmHost()
    with connection.makefile("rw", encoding="utf-8") as stream:
        for line in stream:
            call = json.loads(line)
            try:
                answer = {"result": getattr(host, call.pop("call"))(**call)}
            except Exception as error:  # every error is an answer
                answer = {"error": f"{type(error).__name__}: {error}"}
            stream.write(json.dumps(answer) + "\n")
            stream.flush()


def _end_with(connection: socket.socket, parent: int, folder: str) -> None:
    """Wait until the other end closes or the parent ends, then end this process and its ranks.

    The parent is watched as well, because a process that it forked may keep the other end open.
    """
    watch = select.poll()
    watch.register(connection, select.POLLRDHUP)
    while not watch.poll(500) and os.getppid() == parent:
        pass
    files = _shared_files()
    for child in multiprocessing.active_children():
        child.kill()
    _remove(files)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def _main(descriptor: str, folder: str) -> None:
    # The script's folder must not be in the search path: its modules need another environment.
    sys.path.remove(str(Path(__file__).resolve().parent))
    connection = socket.socket(fileno=int(descriptor))
    watcher = threading.Thread(target=_end_with, args=(connection, os.getppid(), folder), daemon=True)
    watcher.start()
    with contextlib.suppress(OSError):  # the other end closed before it received the answer
        serve(connection)
    watcher.join()


if __name__ == "__main__":
    _main(*sys.argv[1:])
