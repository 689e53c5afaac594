"""Hosts one vLLM engine; as a class in the trainer's process, or as a program in a process and environment of its own.

As a program (``python vllm_worker.py <fd> <folder>``) it reads one JSON object a line from the inherited socket ``fd``
(a call: ``{"call": name, ...arguments}``) and answers each with one line (``{"result": ...}`` or ``{"error": text}``).
It imports nothing but the standard library and vLLM, because the interpreter that has vLLM need not have anything else
of this project: vLLM pins other versions than the trainer.  Weights arrive as safetensors folders.  What vLLM prints
goes to standard error, never into the conversation.

It ends when the other end of the socket closes or the process that started it ends, whatever it is doing then, and
takes along what that process can no longer remove: the ranks of tensor parallelism, their shared memory, and ``folder``
with the weights on their way.
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

# Set before vLLM is imported: no telemetry, no network, and the engine in this very process (a second one would cost
# half a minute of start-up on a CPU).  Ranks are not forked, because this process has threads; they do not end when
# asked to (seen with vLLM 0.32), so they are not asked for long.  What the environment says already stays.
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
    """One ``vllm.LLM`` with the calls the rollout engine makes."""

    def __init__(self) -> None:
        self._llm: Any = None
        self._adapters: dict[str, Any] = {}
        self._made = 0
        self._files: set[Path] = set()

    def start(self, arguments: Mapping[str, Any], replica: int = 0, replicas: int = 1) -> dict[str, Any]:
        """Make the engine.

        Args:
            arguments: keyword arguments of ``vllm.LLM``.
            replica: number of this engine among those that work side by side.
            replicas: how many they are; on a CPU each takes its share of the cores.

        Returns:
            ``{"version": ..., "context": most tokens of prompt and action}``.
        """
        for key, value in DEFAULTS.items():
            os.environ.setdefault(key, value)
        import vllm
        from vllm.platforms import current_platform

        if current_platform.is_cpu():
            _take_cores(replica, replicas, int(arguments["tensor_parallel_size"]))
        # a CPU has no memory to give back: there, sleep and wake only forget caches
        sleep = bool(arguments["enable_sleep_mode"]) and current_platform.is_sleep_mode_available()
        self._llm = vllm.LLM(**{**arguments, "enable_sleep_mode": sleep})
        self._files = _shared_files()
        return {"version": vllm.__version__, "context": int(self._llm.llm_engine.model_config.max_model_len)}

    def weights(self, folder: str) -> None:
        """Take all weights from ``folder``; whatever was computed with the old ones is forgotten."""
        self._llm.collective_rpc("reload_weights", kwargs={"weights_path": folder})
        self._llm.reset_prefix_cache()

    def adapter(self, policy: str, folder: str) -> None:
        """Serve ``policy`` with the LoRA adapter in ``folder`` from now on.

        It gets a new id, so that no cache mixes it with the old one.
        """
        from vllm.lora.request import LoRARequest

        self._made += 1
        old = self._adapters.get(policy)
        self._adapters[policy] = LoRARequest(f"{policy}-{self._made}", self._made, folder)
        if old is not None:
            self._llm.llm_engine.remove_lora(old.lora_int_id)

    def generate(self, rows: Sequence[Mapping[str, Any]], sampling: Mapping[str, Any]) -> list[list[list[Any]]]:
        """Draw actions.

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
        """Give the device's memory back (weights to the host's memory, caches dropped) until `wake`."""
        self._llm.reset_prefix_cache()
        self._llm.sleep(level=1)

    def wake(self) -> None:
        """Take the device's memory again."""
        self._llm.wake_up()

    def close(self) -> None:
        """Free the engine and end its ranks."""
        self._llm = None
        gc.collect()  # the engine is part of cycles, and ends with its last reference
        _remove(self._files)


def share(cores: Sequence[int], part: int, parts: int) -> list[int]:
    """Return the cores of one of several parts; where there are fewer cores than parts, some have the same."""
    return list(cores[part * len(cores) // parts : (part + 1) * len(cores) // parts]) or [cores[part % len(cores)]]


def _take_cores(replica: int, replicas: int, ranks: int) -> None:
    """Keep to a replica's share of the cores, and divide it among its ranks.

    Threads that wait for each other spin: two engines on the same cores are many times slower than one.  vLLM itself
    puts each rank on a NUMA node of its own, and refuses to start where there are fewer nodes than ranks.
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
    """Return the files through which this process's ranks talk on a CPU; vLLM leaves them behind."""
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
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            stream.write(json.dumps(answer) + "\n")
            stream.flush()


def _end_with(connection: socket.socket, parent: int, folder: str) -> None:
    """Wait until the other end closes or the parent ends, then end this process and all that belongs to it.

    The parent is watched as well, because a process that it forked may hold the other end open.
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
    # The script's own folder must not come first in the search path: its modules are not this interpreter's.
    sys.path.remove(str(Path(__file__).resolve().parent))
    connection = socket.socket(fileno=int(descriptor))
    watcher = threading.Thread(target=_end_with, args=(connection, os.getppid(), folder), daemon=True)
    watcher.start()
    with contextlib.suppress(OSError):  # the other end has closed before it got its answer
        serve(connection)
    watcher.join()


if __name__ == "__main__":
    _main(*sys.argv[1:])
