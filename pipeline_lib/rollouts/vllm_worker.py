"""Hosts one vLLM engine; as a class in the trainer's process, or as a program in a process and environment of its own.

As a program (``python vllm_worker.py <fd>``) it reads one JSON object a line from the inherited socket ``fd`` (a call:
``{"call": name, ...arguments}``) and answers each with one line (``{"result": ...}`` or ``{"error": text}``).  It
imports nothing but the standard library and vLLM, because the interpreter that has vLLM need not have anything else of
this project: vLLM pins other versions than the trainer.  Weights arrive as safetensors folders.  What vLLM prints goes
to standard error, never into the conversation.

It ends when the other end of the socket closes, so it never outlives the process that started it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# Set before vLLM is imported: no telemetry, no network, and the engine in this very process (a second one would cost
# half a minute of start-up on a CPU).  What the environment says already stays.
DEFAULTS = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
}


class VllmHost:
    """One ``vllm.LLM`` with the calls the rollout engine makes."""

    def __init__(self) -> None:
        self._llm: Any = None
        self._adapters: dict[str, Any] = {}
        self._made = 0

    def start(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Make the engine.

        Args:
            arguments: keyword arguments of ``vllm.LLM``.

        Returns:
            ``{"version": ..., "context": most tokens of prompt and action}``.
        """
        for key, value in DEFAULTS.items():
            os.environ.setdefault(key, value)
        import vllm
        from vllm.platforms import current_platform

        # a CPU has no memory to give back: there, sleep and wake only forget caches
        sleep = bool(arguments["enable_sleep_mode"]) and current_platform.is_sleep_mode_available()
        self._llm = vllm.LLM(**{**arguments, "enable_sleep_mode": sleep})
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
        """Free the engine."""
        self._llm = None


def serve(connection: socket.socket) -> None:
    """Answer calls until the other end closes."""
    host = VllmHost()
    with connection, connection.makefile("rw", encoding="utf-8") as stream:
        for line in stream:
            call = json.loads(line)
            try:
                answer = {"result": getattr(host, call.pop("call"))(**call)}
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            stream.write(json.dumps(answer) + "\n")
            stream.flush()
    host.close()


if __name__ == "__main__":
    # The script's own folder must not come first in the search path: its modules are not this interpreter's.
    sys.path.remove(str(Path(__file__).resolve().parent))
    serve(socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)  # threads that vLLM leaves behind would hold the process for a while
