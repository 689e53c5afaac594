"""What tests draw follows from their job, and a program cannot know it."""

from dataclasses import replace

from pipeline_lib.sandbox import Executor, Job
from pipeline_lib.sandbox.randomness import seed_of_program, seed_of_tests

DRAWS = """
import importlib, random
random_ = importlib.import_module("num" + "py").random
assert f((random.random(), random_.rand(), random_.rand())) == None
"""
JOB = Job("draws", "def f(x):\n    return x", DRAWS, "f")


def drawn(executor: Executor, job: Job) -> str:
    """Return the message of a case that says what was drawn."""
    (verdict,) = executor.run([job])
    assert verdict.cases[0].message.startswith("got (0.")
    return verdict.cases[0].message


def test_what_tests_draw_follows_from_the_job_alone() -> None:
    messages = []
    for first in ("random.random()", "importlib.import_module('numpy').random.rand(7)"):
        with Executor(slots=1, cache=0) as executor:
            executor.run([replace(JOB, tests=f"import importlib, random\n{first}\nassert f(1) == 1")])
            messages += [drawn(executor, JOB), drawn(executor, replace(JOB, id="again"))]
            assert drawn(executor, replace(JOB, seed=1)) not in messages
            assert drawn(executor, replace(JOB, tests=DRAWS + "\n")) not in messages
    assert len(set(messages)) == 1


def test_seeds_of_program_and_tests() -> None:
    seeds = {make(replace(JOB, seed=seed)) for make in (seed_of_program, seed_of_tests) for seed in range(50)}
    assert len(seeds) == 100 and all(0 <= seed < 1 << 64 for seed in seeds)
    assert seed_of_program(JOB) == seed_of_program(replace(JOB, tests="assert f(1)")), "it tells nothing of the tests"
    changed = ({"tests": "assert f(1)"}, {"code": "f = abs"}, {"prelude": "import re"}, {"entry_point": "g"})
    assert len({seed_of_tests(JOB), *(seed_of_tests(replace(JOB, **change)) for change in changed)}) == 5  # type: ignore[arg-type]
