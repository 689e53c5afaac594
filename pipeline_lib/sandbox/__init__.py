"""The sandbox: untrusted programs in, verdicts out.  Usable alone: ``from pipeline_lib.sandbox import Executor``."""

from pipeline_lib.sandbox.backend import SandboxUnavailable
from pipeline_lib.sandbox.executor import Executor
from pipeline_lib.sandbox.jobs import Case, Job, Limits, Status, Verdict
from pipeline_lib.sandbox.tests_source import BadTests

__all__ = ["BadTests", "Case", "Executor", "Job", "Limits", "SandboxUnavailable", "Status", "Verdict"]
