"""The docker backend, against a real daemon that is started for these tests and shared by them."""

import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import docker
import psutil
import pytest
import yaml

from pipeline_lib.sandbox import Executor, Job, Limits, SandboxUnavailable, Status
from pipeline_lib.sandbox.docker_jail import DEFAULT_IMAGE, LABEL, daemon
from pipeline_lib.sandbox.image import build_image, write_tar
from pipeline_lib.sandbox.jails import start_worker
from pipeline_lib.sandbox.packages import Packages, find_packages
from pipeline_lib.sandbox.worker import JailError
from tests.needs import missing, require
from tests.sandbox.busy import HOLDER, stopped_holder
from tests.sandbox.chaos import wrong_verdicts
from tests.sandbox.corpus import OwnTests, Program, corpus, own_tests
from tests.sandbox.corpus.check import LIMITS, canary, check, job, problem
from tests.sandbox.human_eval import human_eval
from tests.sandbox.sample import draw, some_of_corpus, some_own_tests
from tests.sandbox.test_as_python import AS_PYTHON, holds_in_python
from tests.sandbox.test_tests_process import BRIEF, FORGED, NUMBERS, USES, judged
from tests.sandbox.test_traces import LIMITS as TRACES_LIMITS
from tests.sandbox.test_traces import seen_later

pytestmark = pytest.mark.service

SHORT = Limits(cpu_s=1.0, call_cpu_s=0.5, wall_s=3.0)
ROOT = Path(__file__).parents[2]
TESTS = "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(2) == 3\n"
GOOD = Job("good", "def f(x):\n    return x + 1\n", TESTS, "f")


class Daemon:
    """A Docker daemon of the tests' own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self) -> str:
        command = [str(ROOT / "scripts/start-dockerd"), str(self.folder)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            missing("dockerd", done.stderr)
        return done.stdout.strip()

    def stop(self) -> None:
        pid = int((self.folder / "pid").read_text())
        os.kill(pid, signal.SIGTERM)
        with suppress(ProcessLookupError):
            while True:
                os.kill(pid, 0)
                time.sleep(0.05)


@pytest.fixture(scope="module")
def dockerd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    require("dockerd")
    folder = Path("/tmp") / f"symposium-docker-{os.getpid()}"  # a socket's path must be short
    own = Daemon(folder)
    before = os.environ.get("DOCKER_HOST")
    os.environ["DOCKER_HOST"] = own.start()
    build_image()
    yield own
    own.stop()
    shutil.rmtree(folder, ignore_errors=True)
    if before is None:
        del os.environ["DOCKER_HOST"]
    else:
        os.environ["DOCKER_HOST"] = before


@pytest.fixture(scope="module")
def executor(dockerd: Daemon) -> Iterator[Executor]:
    with Executor("docker", slots=2) as executor:
        yield executor


def containers() -> list[Any]:
    with daemon() as (client, _):
        return list(client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True))


def first_processes() -> list[psutil.Process]:
    """Return the first process of each container that runs."""
    found = [container.attrs["State"]["Pid"] for container in containers() if container.status == "running"]
    return [psutil.Process(pid) for pid in found if psutil.pid_exists(pid)]


def left(before: set[str]) -> set[str]:
    """Return the containers that are still there and were not before, once none is or after a while."""
    end = time.monotonic() + 120
    while (found := {container.id for container in containers()} - before) and time.monotonic() < end:
        time.sleep(0.2)
    return found


def test_programs_run(executor: Executor) -> None:
    bad = Job("bad", "def f(x):\n    return 2\n", TESTS, "f")
    verdicts = executor.run([GOOD, bad])
    assert [(verdict.status, verdict.passed, verdict.backend) for verdict in verdicts] == [
        (Status.PASSED, 2, "docker/docker"),
        (Status.FAILED, 1, "docker/docker"),
    ]
    assert executor.health()["isolation"] == "namespaces"


def test_containers_may_do_next_to_nothing(executor: Executor) -> None:
    executor.run([GOOD])
    facts = next(container for container in containers() if container.status == "running").attrs
    host = facts["HostConfig"]
    assert host["NetworkMode"] == "none"
    assert host["IpcMode"] == "none"
    assert host["ReadonlyRootfs"] and host["AutoRemove"] and not host["Privileged"]
    assert host["CapDrop"] == ["ALL"] and not host["CapAdd"]
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert 64 <= host["PidsLimit"] <= 128
    assert host["Memory"] == host["MemorySwap"] == 1024 << 20
    assert host["LogConfig"]["Type"] == "none"
    assert "size=16m" in host["Tmpfs"]["/scratch"] and "noexec" in host["Tmpfs"]["/scratch"]
    assert [mount["RW"] for mount in facts["Mounts"]] == [False]
    assert int(facts["Config"]["User"].partition(":")[0]) >= 61000
    users = [container.attrs["Config"]["User"] for container in containers()]
    assert len(set(users)) == len(users)


def test_numpy_has_containers_of_its_own(executor: Executor) -> None:
    code = "import numpy as np\ndef f(x):\n    return np.int64(x) + 1\n"
    (verdict,) = executor.run([Job("numpy", code, TESTS, "f")])
    assert verdict.status is Status.PASSED, verdict


def test_a_killed_container_costs_a_second_attempt(executor: Executor) -> None:
    ample = Limits(cpu_s=60.0, call_cpu_s=60.0, wall_s=600.0)
    tests = "def check(candidate):\n    assert candidate(1) == 2\n"
    with ThreadPoolExecutor(1) as thread:
        made = thread.submit(executor.run, [Job("1", HOLDER, tests, "f", limits=ample)])
        program = stopped_holder(first_processes)
        program.parents()[0].kill()
    (verdict,) = made.result()
    assert (verdict.status, verdict.attempts) == (Status.PASSED, 2)


def test_images_that_are_not_there_or_not_ours(dockerd: Daemon) -> None:
    with pytest.raises(SandboxUnavailable, match=r"no such image.*build-image"):
        Executor("docker", slots=1, image="there-is-no-such-image")
    with daemon() as (client, _):
        client.images.get("symposium-sandbox").tag("stranger")
        client.api.import_image_from_data(b"\0" * 10240, repository="empty")
    with pytest.raises(SandboxUnavailable, match="not built for this version"):
        Executor("docker", slots=1, image="empty")
    with pytest.raises(SandboxUnavailable, match="runtime"):
        Executor("docker", slots=1, runtime="there-is-no-such-runtime")


@pytest.mark.parametrize("runtime", [None, "runc"])
def test_a_container_that_cannot_start_leaves_nothing(dockerd: Daemon, tmp_path: Path, runtime: str | None) -> None:
    config = {
        "run_folder": str(tmp_path),
        "image": DEFAULT_IMAGE,
        "runtime": runtime,
        "limits": asdict(SHORT),
        "filters": dict.fromkeys(("fork_server", "fork_server_connecting"), "00"),
        "packages": {},
        "min_isolation": "seccomp",
        "user": 61000,
    }

    def held() -> tuple[int, int]:
        return len(list(Path("/proc/self/fd").iterdir())), len(containers())

    before = held()
    for _ in range(2):
        with pytest.raises(JailError, match="seccomp") as caught:
            start_worker("docker", 0, config)
        assert held() == before, caught.traceback  # which would keep a socket open that is closed only with it


def test_every_folder_of_the_image_has_an_entry() -> None:
    """The vfs storage driver makes the others so that only root may enter."""
    with tempfile.TemporaryFile() as file:
        write_tar(file, find_packages())
        file.seek(0)
        with tarfile.open(fileobj=file) as tar:
            entries = tar.getmembers()
    folders = {entry.name: entry.mode for entry in entries if entry.isdir()}
    assert {str(parent) for entry in entries for parent in Path(entry.name).parents} <= set(folders)
    assert all(mode & 0o755 == 0o755 for mode in folders.values())


def test_an_image_on_top_of_another(dockerd: Daemon) -> None:
    build_image("on-top", base="symposium-sandbox")
    with Executor("docker", slots=1, image="on-top") as executor:
        assert executor.run([GOOD])[0].status is Status.PASSED


def test_a_program_that_wants_numpy_where_there_is_none_fails_by_itself(
    dockerd: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline_lib.sandbox.image.find_packages", lambda names: Packages())
    build_image("no-numpy")
    wants = Job("wants", "import numpy\ndef f(x):\n    return x + 1\n", TESTS, "f")
    with Executor("docker", slots=1, image="no-numpy") as executor:
        verdicts = executor.run([wants, GOOD])
    assert [verdict.status for verdict in verdicts] == [Status.LOAD_ERROR, Status.PASSED]


def test_close_and_death_leave_no_container(dockerd: Daemon) -> None:
    before = {container.id for container in containers()}
    with Executor("docker", slots=2) as executor:
        executor.run([GOOD])
        assert {container.id for container in containers()} > before
    assert {container.id for container in containers()} <= before
    executor = Executor("docker", slots=1)
    os.kill(executor.health()["parent"], signal.SIGKILL)
    executor.run([GOOD])  # a new parent has removed what the old one left, or it has gone by itself
    executor.close()
    assert left(before) == set()


def test_containers_of_dead_judges_are_removed(dockerd: Daemon) -> None:
    with daemon() as (client, _):
        orphan = client.containers.create(
            "symposium-sandbox", entrypoint=["python3"], labels={LABEL: f"{os.uname().nodename}/999999-1"}
        )
        other = client.containers.create(
            "symposium-sandbox", entrypoint=["python3"], labels={LABEL: "another-machine/999999-1"}
        )
    with Executor("docker", slots=1):
        identifiers = {container.id for container in containers()}
    other.remove(force=True)
    assert orphan.id not in identifiers
    assert other.id in identifiers


def test_the_daemon_is_restarted_under_way(dockerd: Daemon) -> None:
    jobs = [
        Job(str(n), f"import time\ndef f(x):\n    time.sleep(0.3)\n    return x + {n % 2}\n# {n}", TESTS, "f")
        for n in range(12)
    ]
    with Executor("docker", slots=2) as executor:
        stream = executor.stream(jobs)
        verdicts = [next(stream)]
        dockerd.stop()
        dockerd.start()
        verdicts += stream
    assert {verdict.id: verdict.passed for verdict in verdicts} == {str(n): 2 * (n % 2) for n in range(12)}


@pytest.mark.exhaustive
def test_human_eval_is_judged_as_by_processes(dockerd: Daemon) -> None:
    jobs = human_eval()
    vectors = []
    for backend in ("docker", "process"):
        with Executor(backend, slots=2, cache=0) as executor:
            verdicts = executor.run(jobs)
        assert [(verdict.id, verdict.status) for verdict in verdicts] == [(job.id, Status.PASSED) for job in jobs]
        vectors.append([[case.result for case in verdict.cases] for verdict in verdicts])
    assert vectors[0] == vectors[1]
    assert sum(map(len, vectors[0])) == 1133


def wrong_in_corpus(programs: list[Program], runtime: str | None) -> list[str]:
    """Return what is wrong when programs of the corpus run in three containers."""

    def part(number: int) -> list[str]:
        with Executor("docker", slots=1, cache=0, runtime=runtime) as executor:
            return check(executor, programs[number::3])

    with ThreadPoolExecutor(3) as threads:  # programs that sleep leave the processors to others
        return [text for found in threads.map(part, range(3)) for text in found]


def wrong_with_own_tests(programs: list[OwnTests], runtime: str | None) -> list[str]:
    """Return the programs with tests of their own that end otherwise than in processes."""
    with Executor("docker", slots=3, runtime=runtime) as executor:
        verdicts = executor.run([Job(p.name, p.code, p.tests, "f", prelude=p.prelude) for p in programs])
    found = [(verdict.status.value, verdict.passed) for verdict in verdicts]
    return [p.name for p, verdict in zip(programs, found, strict=True) if verdict != (p.status, p.passed)]


@pytest.mark.drawn("in containers", "pipeline_lib/sandbox", count=3)
def test_samples_of_both_corpora(dockerd: Daemon) -> None:
    """Every child of a runtime that is named, here the daemon's own, is given a connection."""
    assert wrong_in_corpus(some_of_corpus("docker", each=1), None) == []
    assert wrong_in_corpus(some_of_corpus("runc", each=1), "runc") == []
    assert wrong_with_own_tests(some_own_tests("docker", 5), None) == []


@pytest.mark.drawn("in containers", "pipeline_lib/sandbox", count=3)
def test_samples_of_both_corpora_with_a_kernel_of_its_own(gvisor: str) -> None:
    assert wrong_with_gvisor(some_of_corpus("gvisor", each=1), gvisor) == []
    assert wrong_with_own_tests(some_own_tests("gvisor", 5), gvisor) == []


@pytest.mark.drawn("in containers", "pipeline_lib/sandbox", count=3)
@pytest.mark.parametrize("runtime", [None, "runsc"])
def test_samples_of_what_tests_and_programs_find_and_reach(
    dockerd: Daemon, runtime: str | None, tmp_path: Path
) -> None:
    if runtime:
        require("gVisor")
    chance = draw(f"found in {runtime}")
    kept = tmp_path / "kept"
    kept.write_text("kept")
    kept.chmod(0o666)
    with Executor("docker", slots=2, cache=0, runtime=runtime) as executor:
        for name in chance.sample(sorted(AS_PYTHON), 6):
            code, tests = AS_PYTHON[name]
            (verdict,) = executor.run([Job("job", code, tests, "f", limits=Limits(wall_s=4.0))])
            folder = tmp_path / name
            folder.mkdir()
            assert (verdict.status is Status.PASSED) == holds_in_python(code, tests, folder), (name, verdict)
        for name in chance.sample(sorted(USES), 4):
            verdict = judged(executor, f"import os, sqlite3\n{USES[name]}\nassert f(1) == 0\n", str(kept), b"forged")
            assert verdict.status not in (Status.PASSED, Status.INFRA_ERROR), (name, verdict)
        for name in chance.sample(sorted(NUMBERS), 4):
            tests = f"import os\n{NUMBERS[name]}\nassert f(1) == 'never'\nassert f(0)\n"
            verdict = judged(executor, tests, chance.choice((3, 4)), chance.choice(FORGED), limits=BRIEF)
            assert verdict.status not in (Status.PASSED, Status.INFRA_ERROR), (name, verdict)
    assert (kept.read_text(), [path.name for path in tmp_path.iterdir() if path.is_file()]) == ("kept", ["kept"])


@pytest.mark.drawn("in containers", "pipeline_lib/sandbox", count=3)
def test_a_later_program_sees_nothing_of_an_earlier_one(dockerd: Daemon) -> None:
    with Executor("docker", slots=1, cache=0, limits=TRACES_LIMITS) as executor:
        assert seen_later("docker", executor) == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("runtime", [None, "runc"])
def test_whole_corpora(dockerd: Daemon, runtime: str | None) -> None:
    assert wrong_in_corpus(corpus(), runtime) == []
    assert wrong_with_own_tests(own_tests(), runtime) == []


@pytest.mark.exhaustive
def test_whole_corpora_with_a_kernel_of_its_own(gvisor: str) -> None:
    assert wrong_with_gvisor(corpus(), gvisor) == []
    assert wrong_with_own_tests(own_tests(), gvisor) == []


def wrong_with_gvisor(programs: list[Program], runtime: str) -> list[str]:
    """Return what is wrong where there is no Landlock, but nothing of the machine's to be found either."""
    other = {
        "devices: passed": "gVisor's own",
        "environment_of_others: passed": "the fork server's, which is the same for all",
        "thirty_two_bit_calls: failed": "it ends elsewhere, for such calls fail",
    }
    wrong = wrong_in_corpus(programs, runtime)
    return [text for text in wrong if text.partition(" instead")[0] not in other]


@pytest.fixture(scope="module")
def gvisor(dockerd: Daemon) -> str:
    require("gVisor")
    return "runsc"


def test_a_container_with_a_kernel_of_its_own(gvisor: str) -> None:
    code = "import os\ndef f(x):\n    return os.uname().release\n"
    tests = "def check(candidate):\n    assert candidate(1) != RELEASE\n".replace("RELEASE", repr(os.uname().release))
    owner = Path("/dev/null").stat().st_uid
    with Executor("docker", slots=2, runtime=gvisor) as executor:
        verdicts = executor.run([GOOD, Job("kernel", code, tests, "f"), Job("bad", "def f(x):\n    1/0\n", TESTS, "f")])
    assert Path("/dev/null").stat().st_uid == owner, "runsc gave the machine's device to the user of the container"
    assert [verdict.status for verdict in verdicts] == [Status.PASSED, Status.PASSED, Status.FAILED]


@pytest.mark.drawn("in containers", "pipeline_lib/sandbox", count=3)
def test_programs_that_agents_see_have_a_kernel_of_their_own(gvisor: str) -> None:
    """Process numbers go up by one with each program, and by one more with each thread that it starts."""
    watching = "import os\ndef f(x):\n    return max(int(n) for n in os.listdir('/proc') if n.isdigit())\n"
    threads = "import threading\ndef f(x):\n    for _ in range(20):\n        thread = threading.Thread(target=int)\n"
    threads += "        thread.start()\n        thread.join()\n    return x + 1\n"
    with Executor("docker", slots=1, cache=0, runtime=gvisor) as executor:

        def number() -> int:
            (verdict,) = executor.run([Job("watching", watching, "assert f(1) == 0", "f", shown=True)])
            return int(verdict.cases[0].message.split()[1].rstrip(","))

        found = [number()]
        for shown in (False, True):
            (verdict,) = executor.run([Job("threads", threads, TESTS, "f", shown=shown)])
            assert verdict.status is Status.PASSED
            found.append(number())
    assert found[1] == found[0] + 1, "of a program with hidden tests nothing is seen"
    assert found[2] > found[1] + 20, "of one whose verdict agents see it is, which docs/sandbox.md says"


@pytest.mark.drawn("in containers", "pipeline_lib/sandbox", count=3)
def test_the_server_in_a_pod_as_documented(dockerd: Daemon, tmp_path: Path) -> None:
    """Run the container of the Deployment with what its security context leaves it."""
    deployment = next(yaml.safe_load_all((ROOT / "scripts/sandbox-kubernetes.yaml").read_text()))
    pod = deployment["spec"]["template"]["spec"]
    (given,) = pod["containers"]
    rights = given["securityContext"]
    memory = next(volume["emptyDir"]["sizeLimit"] for volume in pod["volumes"] if volume["name"] == "tmp")
    assert (rights["allowPrivilegeEscalation"], rights["seccompProfile"]) == (False, {"type": "RuntimeDefault"})
    (tmp_path / "token").write_text("a-token-of-decent-length")
    (tmp_path / "token").chmod(0o644)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [word if word != "0.0.0.0" else "127.0.0.1" for word in given["command"][1:]]
    # It grants no more than its own limits, and the corpus asks for more than the usual ones.
    limits = [f"--{name.replace('_', '-')}={value}" for name, value in asdict(LIMITS).items()]
    with daemon() as (client, _):
        container = client.containers.run(
            DEFAULT_IMAGE,
            [*command, "--port", str(port), *limits],
            entrypoint=["python3"],
            environment={"PYTHONPATH": "/project"},
            user=f"{rights['runAsUser']}:0",
            cap_drop=rights["capabilities"]["drop"],
            security_opt=["no-new-privileges"],
            read_only=rights["readOnlyRootFilesystem"],
            tmpfs={"/tmp": f"size={memory.removesuffix('i')}"},
            volumes={
                str(ROOT / "pipeline_lib"): {"bind": "/project/pipeline_lib", "mode": "ro"},
                str(tmp_path / "token"): {"bind": "/secrets/token", "mode": "ro"},
            },
            network_mode="host",  # the tests' daemon has no other network
            detach=True,
        )
        try:
            address, token = f"http://127.0.0.1:{port}", "a-token-of-decent-length"
            for line in container.logs(stream=True, follow=True):  # until it says where it listens, or ends
                if address in line.decode():
                    break
            with Executor("remote", address=address, token=token, cache=0) as executor:
                assert executor.health()["isolation"] in ("seccomp", "namespaces")
                found = [canary(executor, "nothing")]
                for program in some_of_corpus("pod", each=1):
                    found += [problem(program, executor.run([job(program)])[0]), canary(executor, program.name)]
            assert [line for line in found if line] == []
        finally:
            container.remove(force=True, v=True)


def test_a_container_that_was_never_started_is_removed_at_the_end(dockerd: Daemon) -> None:
    others = {container.labels[LABEL] for container in containers()}
    with Executor("docker", slots=1, limits=SHORT, cache=0) as executor:
        executor.run([GOOD])
        running = next(container for container in containers() if container.labels[LABEL] not in others)
        with daemon() as (client, _):  # as a daemon leaves it that stops between the two requests
            client.containers.create(running.image.id, "true", labels={LABEL: running.labels[LABEL]})
        assert "created" in {container.status for container in containers()}
    assert running.labels[LABEL] not in {container.labels[LABEL] for container in containers()}


@pytest.mark.drawn("in containers", "pipeline_lib/sandbox", count=3)
def test_chaos(dockerd: Daemon) -> None:
    """Kill containers, judges, jails and parents, and restart the daemon; SYMPOSIUM_CHAOS says how many programs."""
    count = int(os.environ.get("SYMPOSIUM_CHAOS", "72"))
    turns = itertools.count()

    def disturb(chance: random.Random) -> str | None:
        turn = next(turns)
        if turn % 40 == 3:
            dockerd.stop()
            dockerd.start()
            return "daemon"
        found = containers() if turn % 2 else []
        if not found:
            return None
        with suppress(docker.errors.APIError):
            chance.choice(found).kill()
        return "container"

    before = {container.id for container in containers()}
    with Executor("docker", slots=4, limits=SHORT, cache=0) as executor:
        wrong, killed = wrong_verdicts(executor, count, count // 12, disturb)
    assert (wrong, Counter(killed)["daemon"] > 0) == ([], True), Counter(killed)
    assert left(before) == set()
