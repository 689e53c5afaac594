"""The hostile corpus: every program gets its verdict, and the program after it finds the worker as new."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from pipeline_lib.sandbox import Executor, Status
from tests.needs import JAILS, here, needs
from tests.sandbox.corpus import corpus
from tests.sandbox.corpus.check import LIMITS, check, job, problem
from tests.sandbox.corpus.endure import endure
from tests.sandbox.sample import draw, some_of_corpus

_ROOT = Path(__file__).parents[2]


def test_corpus_is_large_and_names_are_unique() -> None:
    names = [program.name for program in corpus()]
    assert len(set(names)) == len(names) >= 80


def test_programs_name_modules_of_the_sandbox_that_there_are() -> None:
    named = {name for program in corpus() for name in re.findall(r"inside\.(\w+)", program.code)}
    there = {path.stem for path in (_ROOT / "pipeline_lib/sandbox/inside").glob("*.py")}
    assert named and named <= there, "an attack on a module that is gone attacks nothing"


def test_programs_that_end_by_themselves_side_by_side() -> None:
    programs = [program for program in some_of_corpus("side by side", each=2) if not program.hangs]
    with Executor(slots=4, limits=LIMITS) as executor:
        verdicts = executor.run([job(program) for program in programs])
    problems = [problem(program, verdict) for program, verdict in zip(programs, verdicts, strict=True)]
    assert not list(filter(None, problems))


def test_no_program_makes_the_sandbox_fail() -> None:
    """A sample; ``python -m tests.sandbox.corpus.endure`` runs ten thousand."""
    with Executor(slots=4, cache=0) as executor:
        verdicts, peak_mb = endure(executor, 30, draw("endure").randrange(1 << 30))
    assert len(verdicts) == 30
    assert not [verdict for verdict in verdicts if verdict.status is Status.INFRA_ERROR]
    assert 10 < peak_mb < LIMITS.memory_mb + 300


@pytest.mark.drawn("the corpus in jails", "pipeline_lib/sandbox")
@pytest.mark.parametrize("jail", JAILS)
def test_a_sample_of_the_corpus(jail: str) -> None:
    with Executor(slots=1, jail=jail, cache=0) as executor:
        assert check(executor, some_of_corpus(jail, each=1)) == []


@pytest.mark.drawn("the corpus in jails", "pipeline_lib/sandbox")
@needs("root", "python of the system")
def test_a_sample_of_the_corpus_without_root() -> None:
    jails = ("bwrap" if here("bubblewrap") else "bare", "unshare" if here("namespaces") else "bare", "bare")
    jail = draw("jail without root").choice(jails)
    assert _without_root(jail, "1") == (0, "", "")


@pytest.mark.exhaustive
@pytest.mark.parametrize("jail", JAILS)
def test_whole_corpus(jail: str) -> None:
    with Executor(slots=1, jail=jail, cache=0) as executor:
        assert check(executor, corpus()) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("jail", JAILS)
@needs("root", "python of the system")
def test_whole_corpus_without_root(jail: str) -> None:
    assert _without_root(jail) == (0, "", "")


def _without_root(*arguments: str) -> tuple[int, str, str]:
    """Run `tests.sandbox.corpus.check` as nobody; return exit code and what was printed."""
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3"]
    command += ["-B", "-m", "tests.sandbox.corpus.check", *arguments]
    done = subprocess.run(
        command, check=False, cwd=_ROOT, capture_output=True, text=True, env={"PATH": os.environ["PATH"]}
    )
    return done.returncode, done.stdout.strip(), done.stderr
