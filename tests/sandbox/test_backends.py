"""Bad input is refused with a reason, whatever the backend."""

from dataclasses import asdict, replace

import pytest
from pydantic import TypeAdapter, ValidationError

from pipeline_lib.sandbox import BadTests, Executor, Job, Limits, SandboxUnavailable, Status
from pipeline_lib.sandbox.executor import BACKENDS, make_executor
from pipeline_lib.settings.sandbox import AutoSandbox, DockerSandbox, ProcessSandbox, RaySandbox, RemoteSandbox, Sandbox

GOOD = Job("good", "def f(x):\n    return x + 1\n", "def check(candidate):\n    assert candidate(1) == 2\n", "f")


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"backend": "procss"}, ["procss", "process", "docker", "remote", "ray", "auto"]),
        ({"jail": "nsjail"}, ["nsjail", "bwrap", "unshare", "bare"]),
        ({"min_isolation": "full"}, ["full", "namespaces", "seccomp", "rlimits"]),
        ({"slots": -1}, ["-1"]),
        ({"backend": "docker", "jail": "bwrap"}, ["docker", "jail", "image", "runtime"]),
        ({"backend": "process", "address": "http://x"}, ["address"]),
        ({"limits": Limits(cpu_s=0)}, ["cpu_s", "0", "positive"]),
        ({"limits": Limits(memory_mb=-5)}, ["memory_mb", "-5"]),
        ({"backend": "remote", "address": "ftp://x", "token": "t" * 20}, ["ftp://x", "http://127.0.0.1"]),
    ],
)
def test_bad_arguments(options: dict[str, object], names: list[str]) -> None:
    with pytest.raises(ValueError) as caught:
        Executor(**options)  # type: ignore[arg-type]
    assert all(name in str(caught.value) for name in names), caught.value


def test_backends_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    monkeypatch.delenv("SYMPOSIUM_SANDBOX_TOKEN", raising=False)
    with pytest.raises(SandboxUnavailable, match=r"/nowhere/docker.sock.*DOCKER_HOST"):
        Executor("docker", slots=1)
    with pytest.raises(SandboxUnavailable, match="SYMPOSIUM_SANDBOX_TOKEN"):
        Executor("remote")
    with pytest.raises(SandboxUnavailable, match=r"127.0.0.1:9 "):
        Executor("remote", address="http://127.0.0.1:9", token="t" * 20)


def test_auto_falls_back_to_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with Executor("auto", slots=1) as executor:
        assert executor.health()["backend"] == "process"
        assert executor.run([GOOD])[0].status is Status.PASSED


def test_isolation_below_the_minimum_is_refused() -> None:
    with pytest.raises(
        SandboxUnavailable, match=r"reaches isolation level 'seccomp', and min_isolation is 'namespaces'"
    ):
        Executor(slots=1, jail="bare", min_isolation="namespaces")


@pytest.fixture(scope="module")
def executor() -> Executor:
    return Executor(slots=1)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"tests": ""}, BadTests, "'good'.*no assert"),
        ({"tests": "def check(c): pass"}, BadTests, "no assert"),
        ({"tests": "def check(c:"}, BadTests, "do not parse"),
        ({"code": b"def f(x): pass"}, TypeError, "code is bytes"),
        ({"tests": None}, TypeError, "tests is NoneType"),
        ({"entry_point": "f()"}, ValueError, "entry_point"),
        ({"limits": Limits(wall_s=0)}, ValueError, "wall_s"),
    ],
)
def test_jobs_that_are_mistakes(
    executor: Executor, change: dict[str, object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        executor.run([GOOD, replace(GOOD, **change)])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("x = 1\n" * (10 << 20), "KiB long, 256 KiB are allowed"),
        ("# \ud800\ndef f(x):\n    return x + 1\n", "not valid text"),
    ],
    ids=["50 MB", "no UTF-8"],
)
def test_programs_that_are_refused(executor: Executor, code: str, text: str) -> None:
    refused, good = executor.run([replace(GOOD, id="bad", code=code), GOOD])
    assert (refused.status, refused.total, refused.passed) == (Status.LOAD_ERROR, 1, 0)
    assert text in refused.error
    assert good.status is Status.PASSED


def test_an_empty_batch(executor: Executor) -> None:
    assert executor.run([]) == []
    executor.close()


def test_from_settings() -> None:
    section = ProcessSandbox(slots=1)
    with make_executor(section) as executor:
        assert executor.health()["slots"] == 1
        assert executor.limits == Limits()
        assert executor.run([GOOD])[0].status is Status.PASSED


@pytest.mark.parametrize("section", [DockerSandbox, AutoSandbox, RemoteSandbox, RaySandbox])
def test_every_settings_key_is_an_option_of_its_backend(section: type[ProcessSandbox]) -> None:
    keys = set(section.model_fields) - {"kind", "slots", "limits", "infra_error_share"}
    accepted, _ = BACKENDS[section().kind]
    assert keys <= set(accepted)
    assert section().limits.model_dump() == asdict(Limits())


@pytest.mark.parametrize(
    "values",
    [
        {"kind": "remote", "address": "127.0.0.1:7811"},
        {"kind": "ray", "batch": 0},
        {"kind": "ray", "inner": "ray"},
        {"kind": "docker", "jail": "bwrap"},
        {"kind": "podman"},
        {"kind": "process", "min_isolation": "full"},
        {"kind": "process", "limits": {"cpu_s": 0}},
    ],
)
def test_settings_that_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Sandbox).validate_python(values)
