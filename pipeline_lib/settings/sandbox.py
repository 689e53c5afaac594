"""``sandbox``: where untrusted programs run, and what they may use."""

from typing import Annotated, Literal

from pydantic import Field

from pipeline_lib.settings.base import Machine, Section


class SandboxLimits(Section):
    """Limits of one program."""

    cpu_s: float = Field(4.0, gt=0, description="CPU seconds per program")
    call_cpu_s: float = Field(2.0, gt=0, description="CPU seconds per call of the entry point")
    wall_s: float = Field(12.0, gt=0, description="wall-clock seconds per program")
    memory_mb: int = Field(512, ge=64, description="address space per program, MiB")
    processes: int = Field(64, ge=1, description="threads per program")
    open_files: int = Field(64, ge=8, description="open files per program")
    file_mb: int = Field(16, ge=1, description="temporary files per program, MiB")
    reply_kb: int = Field(256, ge=1, description="largest returned value, KiB")
    error_kb: int = Field(2, ge=1, description="longest kept error text, KiB")
    code_kb: int = Field(256, ge=1, description="longest accepted program, KiB")


class _Sandbox(Section):
    """Common settings of all backends."""

    slots: Machine[int] = Field(0, ge=0, description="programs that run at the same time; 0 means four per core")
    limits: SandboxLimits = SandboxLimits()
    infra_error_share: Machine[float] = Field(
        0.005, ge=0, le=1, description="a run stops if the infrastructure loses a greater share of the jobs"
    )


_MinIsolation = Literal["namespaces", "seccomp", "rlimits"]
_MIN_ISOLATION = "weakest accepted isolation: namespaces > seccomp > rlimits"
_PACKAGES = (
    "packages that programs may import besides the standard library, with pip's names; they must be installed here"
)
_IMAGE = "made by `python -m pipeline_lib.sandbox build-image`"


class ProcessSandbox(_Sandbox):
    """Jailed worker processes on this machine."""

    kind: Literal["process"] = "process"
    min_isolation: Machine[_MinIsolation] = Field("seccomp", description=_MIN_ISOLATION)
    packages: tuple[str, ...] = Field(("numpy",), description=_PACKAGES)


class DockerSandbox(_Sandbox):
    """Hardened, long-lived containers on this machine; each runs one program at a time."""

    kind: Literal["docker"] = "docker"
    min_isolation: Machine[_MinIsolation] = Field("seccomp", description=_MIN_ISOLATION)
    packages: tuple[str, ...] = Field(("numpy",), description=_PACKAGES)
    image: str = Field("symposium-sandbox", min_length=1, description=_IMAGE)
    runtime: str | None = Field(None, description="runtime of the containers, for example runsc; null: the daemon's")


class AutoSandbox(_Sandbox):
    """The strongest backend that works on this machine: gVisor containers, containers, processes."""

    kind: Literal["auto"] = "auto"
    min_isolation: Machine[_MinIsolation] = Field("seccomp", description=_MIN_ISOLATION)
    packages: tuple[str, ...] = Field(("numpy",), description=_PACKAGES)
    image: str = Field("symposium-sandbox", min_length=1, description=_IMAGE)


class RemoteSandbox(_Sandbox):
    """A sandbox server (`python -m pipeline_lib.sandbox serve`); it decides how many programs run side by side."""

    kind: Literal["remote"] = "remote"
    address: Machine[str] = Field("http://127.0.0.1:7811", pattern="^https?://", description="address of the server")
    token_file: Machine[str | None] = Field(
        None, description="file with the server's token; null: the environment variable SYMPOSIUM_SANDBOX_TOKEN"
    )
    patience_s: Machine[float] = Field(60.0, gt=0, description="seconds to retry if the server does not answer")


class RaySandbox(_Sandbox):
    """One sandbox per node of a Ray cluster; ``slots`` counts per node."""

    kind: Literal["ray"] = "ray"
    address: Machine[str] = Field(
        "auto", min_length=1, description="address of the cluster; auto: the cluster of this machine"
    )
    batch: Machine[int] = Field(128, ge=1, le=4096, description="jobs per batch that is sent to a node")
    inner: Literal["process", "docker", "auto"] = Field("process", description="the sandbox on each node")
    min_isolation: Machine[_MinIsolation] = Field("seccomp", description=_MIN_ISOLATION)
    image: str | None = Field(None, description=f"for inner docker or auto: {_IMAGE}; null: the default image")


Sandbox = Annotated[
    ProcessSandbox | DockerSandbox | AutoSandbox | RemoteSandbox | RaySandbox, Field(discriminator="kind")
]
