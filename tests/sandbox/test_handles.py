"""Classes judged by `unittest` tests: what handles can do, and what no program can make of them."""

from pathlib import Path

import pytest

from pipeline_lib.sandbox import Executor, Job, Limits, Status
from tests.needs import JAILS, needs
from tests.sandbox.class_eval import class_eval, misses
from tests.sandbox.class_mutants import differences

CLASSES = Path(__file__).parent / "corpus" / "classes.txt"


@pytest.fixture(scope="module")
def executor():
    with Executor(slots=2, cache=0) as started:
        yield started


def judge(executor, code, tests, entry_point="Cart", **options):
    (verdict,) = executor.run([Job("job", code, tests, entry_point, **options)])
    return verdict


def sections(name):
    """Return the sources below a heading of the corpus: programs by name with the most methods each may pass."""
    _, _, rest = CLASSES.read_text().partition(f"##### {name}\n")
    parts = rest.partition("\n#####")[0].split("\n=== ")[1:]
    for part in parts:
        head, _, source = part.partition("\n")
        title, _, most = head.partition(": ")
        yield title, source, int(most or 0)


SOLUTION, TESTS = (source for _, source, _ in sections("solution and tests"))
HOSTILE = list(sections("hostile"))


def test_everything_python_does_with_an_object_can_be_done_with_a_handle(executor):
    ((_, code, _), (_, tests, _)) = sections("operations and tests")
    verdict = judge(executor, code, tests, "Vector")
    assert verdict.status is Status.PASSED, [case for case in verdict.cases if case.result != "ok"]
    assert verdict.total == 20


def test_the_solution_passes_and_methods_are_cases(executor):
    verdict = judge(executor, SOLUTION, TESTS)
    assert verdict.status is Status.PASSED, verdict.error
    assert [case.source for case in verdict.cases][:2] == ["CartTest.test_bad_count", "CartTest.test_copy"]


@pytest.mark.parametrize(("name", "code", "most"), HOSTILE, ids=[name for name, _, _ in HOSTILE])
def test_no_program_passes_what_it_does_not_do(executor, name, code, most):
    short = Limits(cpu_s=1.0, call_cpu_s=0.5, wall_s=3.0)
    verdict = judge(executor, code, TESTS, limits=short)
    assert verdict.status not in (Status.PASSED, Status.INFRA_ERROR)
    assert verdict.passed <= most, [case.source for case in verdict.cases if case.result == "ok"]
    assert judge(executor, SOLUTION, TESTS).status is Status.PASSED


@needs("ClassEval")
def test_canonical_solutions_of_class_eval(executor):
    wanted = ["BankAccount", "CamelCaseMap", "BookManagementDB", "CSVProcessor", "GomokuGame", "MovieBookingSystem"]
    jobs = class_eval()
    verdicts = dict(zip(wanted, executor.run([jobs[name] for name in wanted]), strict=True))
    assert not misses(verdicts)


@needs("ClassEval")
def test_no_mutant_passes_what_it_fails_in_plain_python():
    here_alone, _, failed = differences(8, seed=3)
    assert not here_alone
    assert failed > 10


FILES = """
import contextlib, os, shutil, sqlite3, tempfile, unittest
class FilesTest(unittest.TestCase):
    def test_files_go_both_ways(self):
        with open("in.txt", "w") as file:
            file.write("abc")
        Files().copy("in.txt", "deep/out.txt")
        with open("deep/out.txt") as file:
            self.assertEqual(file.read(), "ABC")
        os.remove("in.txt")
        self.assertFalse(Files().exists("in.txt"))
        Files().remove("deep/out.txt")
        self.assertFalse(os.path.exists("deep/out.txt"))
        shutil.rmtree("deep")
        self.assertFalse(Files().exists("deep"))
    def test_temporary_files_lie_in_the_folder(self):
        with tempfile.NamedTemporaryFile() as file:
            self.assertTrue(Files().exists(os.path.basename(file.name)))
    def test_a_database_has_two_sides(self):
        files = Files()
        files.open("data.db")
        ours = sqlite3.connect("data.db")
        files.insert(1)
        self.assertEqual(ours.execute("select x from t").fetchall(), [(1,)])
        ours.execute("insert into t values (2)")
        ours.commit()
        files.insert(3)
        self.assertEqual(files.all(), [(1,), (2,), (3,)])
        self.assertEqual(ours.execute("select x from t").fetchall(), [(1,), (2,), (3,)])
    def test_nothing_outside_can_be_removed(self):
        for name in (OUTSIDE, os.path.join("..", os.path.basename(OUTSIDE)), Files().victim()):
            for harm in (os.remove, shutil.rmtree, os.rmdir, lambda name: open(name, "w")):
                with self.assertRaises(OSError):
                    harm(name)
            with contextlib.suppress(OSError):  # where the machine's own files are seen, it does nothing
                os.chmod(name, 0)
    def test_files_of_a_program_are_no_modules(self):
        Files().plant("colorsys")
        import colorsys
        self.assertTrue(hasattr(colorsys, "rgb_to_hls"))
"""
FILES_CODE = """
import os, sqlite3
class Files:
    def copy(self, old, new):
        os.makedirs(os.path.dirname(new))
        with open(old) as file, open(new, "w") as other:
            other.write(file.read().upper())
    def exists(self, name):
        return os.path.exists(name)
    def remove(self, name):
        os.remove(name)
    def open(self, name):
        self.connection = sqlite3.connect(name)
        self.connection.execute("create table t (x)")
        self.connection.commit()
    def insert(self, x):
        self.connection.execute("insert into t values (?)", (x,))
        self.connection.commit()
    def all(self):
        return self.connection.execute("select x from t").fetchall()
    def victim(self):
        return "OUTSIDE"
    def plant(self, name):
        with open(name + ".py", "w") as file:
            file.write("planted = True")
"""


@pytest.mark.parametrize("jail", JAILS)
def test_tests_and_program_see_one_folder_and_nothing_else(jail, tmp_path):
    outside = tmp_path / "keep.txt"
    outside.write_text("keep")
    mode = outside.stat().st_mode & 0o777
    before = sorted(Path.cwd().iterdir())
    code, tests = FILES_CODE.replace("OUTSIDE", str(outside)), FILES.replace("OUTSIDE", repr(str(outside)))
    with Executor(slots=1, jail=jail) as executor:
        verdict = judge(executor, code, tests, "Files")
    assert verdict.status is Status.PASSED, [case for case in verdict.cases if case.result != "ok"]
    assert outside.read_text() == "keep" and outside.stat().st_mode & 0o777 == mode
    assert sorted(Path.cwd().iterdir()) == before


def test_functions_get_functions_and_return_objects(executor):
    ((_, code, _), (_, tests, _)) = sections("functions and tests")
    verdict = judge(executor, code, tests, "f")
    assert verdict.status is Status.PASSED, [case for case in verdict.cases if case.result != "ok"]


LIAR = """
class Liar:
    def __eq__(self, other): return True
    def __ne__(self, other): return True
    __lt__ = __gt__ = __le__ = __ge__ = __contains__ = __eq__
    def __sub__(self, other): return self
    __rsub__ = __add__ = __mul__ = __sub__
    def __abs__(self): return self
    def __round__(self, *args): return self
    def __getattr__(self, name): return self
    def __call__(self, *args): return self
    def __getitem__(self, key): return self
    def __float__(self): return float("nan")
"""


@pytest.mark.parametrize(
    "test",
    [
        "candidate(1) == 2",
        "2 == candidate(1)",
        "candidate(1) < 2",
        "2 > candidate(1)",
        "abs(candidate(1) - 2) < 0.001",
        "2 in candidate(1)[0]",
        "candidate(1) == [2]",
        "sorted(candidate(1)) == [2]",
        "candidate(1).value == 2",
        "not candidate(1) != 2",
        "math.isclose(candidate(1), 2)",
        "round(candidate(1), 2) == 2",
        "isinstance(candidate(1), int)",
        "candidate(1) in (2, 3)",
        "{2: 1}.get(candidate(1)) == 1",
        "Counter(candidate(1)) == Counter([2])",
        "numpy.isclose(candidate(1), 2).all()",
        "(numpy.array(candidate(1)) == numpy.array(2)).all()",
    ],
)
def test_a_program_is_not_asked_about_plain_values(executor, test):
    more = "class math: isclose = lambda *args: True\nclass Counter(Liar):\n    def __init__(self, *args): pass\n"
    imports = "import math\n" if "math" in test else ""
    tests = f"{imports}import numpy\ndef check(candidate):\n    assert {test}\n"
    code = LIAR + more + "from collections import Counter as other\ndef f(x):\n    return Liar()\n"
    assert judge(executor, code, tests, "f").passed == 0


def test_what_a_solution_imports_is_the_real_thing(executor):
    tests = "def check(candidate):\n    assert candidate(4) == math.sqrt(4)\n    assert sqrt(4) == candidate(4)\n"
    good = "import math\nfrom math import sqrt\ndef f(x):\n    return sqrt(x)\n"
    assert judge(executor, good, tests, "f").status is Status.PASSED
    bad = "from unittest.mock import ANY as sqrt\nclass math:\n    sqrt = lambda x: 7\ndef f(x):\n    return 7\n"
    assert judge(executor, bad, tests, "f").passed == 0


def test_a_program_that_dies_in_one_test_is_there_for_the_next(executor):
    code = SOLUTION.replace("def total(self):", "def total(self):\n        import os; os._exit(0)")
    verdict = judge(executor, code, TESTS)
    assert verdict.status is Status.CRASH
    assert 0 < verdict.passed < verdict.total


SUBTRACTED = """
class Cart:
    def area(self): return Cart()
    def __sub__(self, other): return 0
    __rsub__ = __sub__
    def __abs__(self): return 0
    def __round__(self, digits=0): return 0
"""
ALMOST = """
import unittest
class CartTest(unittest.TestCase):
    def test_places(self): self.assertAlmostEqual(Cart().area(), 78.5)
    def test_turned_round(self): self.assertAlmostEqual(3.25, Cart().area(), places=3)
    def test_delta(self): self.assertAlmostEqual(Cart().area(), 78.5, delta=0.1)
"""
HANDLERS = """
class Cart:
    def __init__(self): self.handlers = []
    def on(self, handler): self.handlers.append(handler)
    def fire(self, *args):
        for handler in self.handlers: handler(*args)
"""
RAISING = """
import unittest
class Own(Exception): pass
class CartTest(unittest.TestCase):
    def test_own_exception_passes_through(self):
        def bad(x): raise Own("no", x)
        cart = Cart()
        cart.on(bad)
        with self.assertRaises(Own) as caught: cart.fire(1)
        self.assertEqual(caught.exception.args, ("no", 1))
"""


def test_nothing_is_almost_equal_by_what_a_program_makes_of_the_difference(executor):
    assert judge(executor, SUBTRACTED, ALMOST).passed == 0


def test_an_exception_of_the_tests_comes_through_the_program_as_itself(executor):
    verdict = judge(executor, HANDLERS, RAISING)
    assert verdict.status is Status.PASSED, verdict.error
