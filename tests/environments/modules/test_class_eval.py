"""Classes whose methods several agents write: the published format, joining, rewards, and ClassEval itself."""

import gzip
import json
import random
from pathlib import Path

import pytest

from pipeline_lib.audit.result import Status
from pipeline_lib.audit.run import audit
from pipeline_lib.environment_api.registry import find
from pipeline_lib.environments.modules.class_eval import class_problem, read_classes, share
from pipeline_lib.environments.modules.problem import ModulesProblem
from pipeline_lib.environments.modules.program import program, single_text, solution_jobs
from pipeline_lib.environments.modules.runtime import ModulesEnvironment
from pipeline_lib.environments.modules.settings import ClassProblems
from pipeline_lib.environments.modules.settings import ModulesSettings as Settings
from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.sandbox import Executor, Limits
from pipeline_lib.settings import load_params
from tests.needs import CLASS_EVAL, ROOT, needs
from tests.sampling import sampled

#: Their solutions fail where only the standard library is at hand, or depend on the clock or on files of other tests.
NOT_HERE = {17, 20, 25, 28, 34, 38, 44, 45, 48, 51, 52}

#: A class in the published format: two methods build on the third, and one has a helper that nobody describes.
SOLUTION = '''import math


class Basket:
    """A basket of prices."""

    def __init__(self):
        self.prices = []

    def add(self, price):
        if price < 0:
            raise ValueError("a price is negative")
        self.prices.append(price)
        return self

    def total(self):
        return sum(self.prices)

    def mean(self):
        return self._rounded(self.total() / max(1, len(self.prices)))

    def _rounded(self, value):
        return math.floor(value * 100 + 0.5) / 100
'''
TESTS = """import unittest

class BasketTestAdd(unittest.TestCase):
    def test_add(self):
        self.assertEqual(Basket().add(2).prices, [2])

    def test_add_negative(self):
        with self.assertRaises(ValueError):
            Basket().add(-1)

class BasketTestTotal(unittest.TestCase):
    def test_total(self):
        self.assertEqual(Basket().add(2).add(3).total(), 5)

    def test_total_of_nothing(self):
        self.assertEqual(Basket().total(), 0)

class BasketTestMean(unittest.TestCase):
    def test_mean(self):
        self.assertEqual(Basket().add(2).add(3).add(3).mean(), 2.67)

class BasketTestMain(unittest.TestCase):
    def test_main(self):
        basket = Basket().add(1).add(2)
        self.assertEqual((basket.total(), basket.mean()), (3, 1.5))
"""


def task(number: int = 0) -> dict[str, object]:
    """Return a task in the published format, with the fields of the published file."""
    described = {"add": "self, price", "total": "self", "mean": "self"}
    texts = {
        name: f'def {name}({args}):\n        """\n        Secret of {name}.\n        """'
        for name, args in described.items()
    }
    constructor = "class Basket: \n    def __init__(self):\n        self.prices = []\n"
    return {
        "task_id": f"Small_{number}",
        "skeleton": f"import math\n\n{constructor}\n" + "\n\n".join(f"    {text}" for text in texts.values()),
        "test": TESTS,
        "solution_code": SOLUTION.replace("a price", f"price number {number}"),
        "import_statement": ["import math"],
        "class_description": f'    """\n    Basket number {number} of prices.\n    """\n',
        "class_name": "Basket",
        "test_classes": ["BasketTestAdd", "BasketTestTotal", "BasketTestMean", "BasketTestMain"],
        "class_constructor": constructor,
        "fields": ["self.prices"],
        "methods_info": [
            {
                "method_name": name,
                "method_description": text,
                "test_class": f"BasketTest{name.title()}",
                "test_code": "",
                "solution_code": "",
                "dependencies": {"Standalone": name != "mean", "method_dependencies": []},
            }
            for name, text in texts.items()
        ],
    }


@pytest.fixture(scope="module")
def executor():
    with Executor(slots=2, limits=Limits(cpu_s=5.0, call_cpu_s=2.0, wall_s=30.0)) as made:
        yield made


@pytest.fixture
def environment(executor):
    return ModulesEnvironment(Settings(), lambda: executor)


def test_methods_are_shared_in_their_order():
    assert share("abcde", 2) == {"one": ("a", "b"), "main": ("c", "d", "e")}
    assert share("abcde", 3) == {"one": ("a", "b"), "two": ("c",), "main": ("d", "e")}
    assert share("ab", 4) == {"one": ("a",), "main": ("b",)} and share("a", 2) == {"main": ("a",)}


def test_a_task_becomes_a_problem_whose_agents_see_their_methods_and_no_test():
    made = class_problem(task(), 3)
    assert made.parts == ("one", "two", "main") and made.defines["two"] == ("total",)
    assert ModulesProblem.from_json(json.loads(json.dumps(made.to_json(), sort_keys=True))) == made
    for part, own in made.defines.items():
        told = made.observations[part]
        assert "Basket number 0" in told and "self.prices = []" in told
        for name in ("add", "total", "mean"):
            assert f"def {name}(self" in told and (f"Secret of {name}" in told) == (name in own)
    for told in made.observations.values():
        assert not {"assert", "unittest", "2.67", "_rounded"} & set(told.split()) and "max(1" not in told
    assert made.unit_tests["two"].endswith("[BasketTestTotal]))\n")
    assert made.references[0]["main"].count("def ") == 2, "the helper that nobody describes goes with the last part"


def test_joined_classes_are_rewarded_by_part_and_as_a_whole(environment):
    made = class_problem(task(), 3)
    known = dict(made.references[0])
    indented = {part: "".join(f"    {line}\n" for line in text.splitlines()) for part, text in known.items()}
    whole = dict.fromkeys(made.parts, SOLUTION)
    wrong = {**known, "two": "def total(self):\n    return 5\n"}
    lost = {**known, "one": "def add(self, price:"}
    teams = [known, indented, whole, wrong, lost, dict.fromkeys(made.parts, "")]
    states = [environment.start(made)] * len(teams)
    outcomes = environment.step(states, [list(team.values()) for team in teams])
    assert [outcome.reward for outcome in outcomes[:3]] == pytest.approx([1.6] * 3)
    assert set(outcomes[0].metrics.values()) == {1.0}
    found = outcomes[3].metrics
    assert (found["unit_one"], found["unit_two"], found["unit_main"]) == (1.0, 0.5, 1.0)
    assert found["system_passed"] == pytest.approx(3 / 6) and found["needed_one"] == 1.0
    assert outcomes[4].details["caused_by"] == "one" and outcomes[4].metrics["parts_parse"] == pytest.approx(2 / 3)
    assert outcomes[4].metrics["unit_two"] == 1.0 and outcomes[5].metrics["parts_defined"] == 0.0
    assert outcomes[5].metrics["units_passed"] < 0.5


def test_a_part_changes_neither_others_methods_nor_the_constructor(environment):
    made = class_problem(task(), 3)
    known = dict(made.references[0])
    taking = known["one"] + "def total(self):\n    return 0\ndef __init__(self):\n    self.prices = [9]\n"
    late = known["main"] + "class total: pass\nadd = lambda self, price: self\ntotal: object = lambda self: 0\n"
    patching = known["one"] + "\ndef __init_subclass__(cls):\n    pass\n"
    leaving = "import os\nos._exit(0)\n" + known["one"]
    texts = [taking, patching, leaving]
    outcomes = environment.step([environment.start(made)] * 3, [[text, known["two"], known["main"]] for text in texts])
    assert [outcome.reward for outcome in outcomes[:2]] == pytest.approx([1.6] * 2)
    (outcome,) = environment.step([environment.start(made)], [[known["one"], known["two"], late]])
    assert outcome.reward == pytest.approx(1.6), "by assignment neither"
    assert outcomes[2].metrics["unit_one"] == outcomes[2].metrics["system_passed"] == 0.0
    assert outcomes[2].metrics["unit_two"] == 1.0


#: Ways in which a class's text, or what stands below it, can bind the method NAME to BODY.
MEANS = {
    "def": "class Basket:\n    def NAME(self): return BODY",
    "functions without a class": "def NAME(self): return BODY",
    "if": "class Basket:\n    if True:\n        def NAME(self): return BODY",
    "try": "class Basket:\n    try:\n        def NAME(self): return BODY\n    finally:\n        pass",
    "except": "class Basket:\n    try: 1 / 0\n    except ZeroDivisionError:\n        def NAME(self): return BODY",
    "for": "class Basket:\n    for NAME in [lambda self: BODY]: pass",
    "while": "class Basket:\n    while True:\n        def NAME(self): return BODY\n        break",
    "with": "import contextlib\nclass Basket:\n    with contextlib.nullcontext(lambda self: BODY) as NAME: pass",
    "match": "class Basket:\n    match lambda self: BODY:\n        case NAME: pass",
    "walrus": "class Basket:\n    (NAME := lambda self: BODY)",
    "assignment": "class Basket:\n    NAME = lambda self: BODY",
    "annotated assignment": "class Basket:\n    NAME: object = lambda self: BODY",
    "unpacking": "class Basket:\n    NAME, *rest = [lambda self: BODY]",
    "import": "class Basket:\n    from operator import truth as NAME",
    "class": "class Basket:\n    class NAME:\n        def __new__(cls): return 0",
    "exec": "class Basket:\n    exec('def NAME(self): return BODY')",
    "locals": "class Basket:\n    locals()['NAME'] = lambda self: BODY",
    "locals update": "class Basket:\n    locals().update(NAME=lambda self: BODY)",
    "frame": "import sys\nclass Basket:\n    sys._getframe().f_locals['NAME'] = lambda self: BODY",
    "set_name": "class S:\n    def __set_name__(self, kind, name): kind.NAME = lambda self: BODY\n"
    "class Basket:\n    helper = S()",
    "descriptor": "class S:\n    def __get__(self, thing, kind): return lambda: (lambda self: BODY)(thing)\n"
    "class Basket:\n    NAME = S()",
    "property": "class Basket:\n    NAME = property(lambda self: lambda: BODY)",
    "decorator": "def mark(kind):\n    kind.NAME = lambda self: BODY\n    return kind\n@mark\nclass Basket:\n    pass",
    "method decorator": "import sys\ndef mark(f):\n    sys._getframe(1).f_locals['NAME'] = lambda self: BODY\n"
    "    return f\nclass Basket:\n    @mark\n    def helper(self): pass",
    "metaclass": "class M(type):\n    NAME = lambda self: BODY\nclass Basket(metaclass=M):\n    pass",
    "base": "class B:\n    def NAME(self): return BODY\nclass Basket(B):\n    pass",
    "init_subclass": "class Basket:\n    def __init_subclass__(cls): cls.NAME = lambda self: BODY\n"
    "class Basket(Basket):\n    pass",
    "getattr": "class Basket:\n    def __getattr__(self, name): return lambda: BODY",
    "getattribute": "class Basket:\n    def __getattribute__(self, name):\n"
    "        return (lambda: BODY) if name == 'NAME' else object.__getattribute__(self, name)".replace("BODY", "0"),
    "constructor": "class Basket:\n    def __init__(self):\n        self.prices = []\n        self.NAME = lambda: BODY",
    "new": "class Basket:\n    def __new__(cls):\n        cls.NAME = lambda self: BODY\n"
    "        return object.__new__(cls)",
    "field": "class Basket:\n    prices = property(lambda self: [], lambda self, value: None)",
    "from outside": "class Basket:\n    pass\nBasket.NAME = lambda self: BODY",
    "setattr from outside": "class Basket:\n    pass\nsetattr(Basket, 'NAME', lambda self: BODY)",
    "type": "class Basket:\n    pass\nBasket = type('Basket', (Basket,), {'NAME': lambda self: BODY})",
    "another class": "class Basket:\n    pass\nclass Other(Basket):\n    def NAME(self): return BODY\nBasket = Other",
    "builtins": "import builtins\nset = builtins.setattr\ndef both(kind, name, value):\n    set(kind, name, value)\n"
    "    set(kind, 'NAME', lambda self: BODY)\nbuiltins.setattr = both\nclass Basket:\n    pass",
    "how classes are made": "import builtins\nbuild = builtins.__build_class__\ndef made(*args, **more):\n"
    "    kind = build(*args, **more)\n    kind.NAME = lambda self: BODY\n    return kind\n"
    "builtins.__build_class__ = made\nclass Basket:\n    pass",
    "main module": "import sys\nsys.modules['program'].Basket = type('Basket', (), {'NAME': lambda self: BODY})",
    "frame of the join": "import sys\nframe = sys._getframe(1)\n"
    "for value in frame.f_locals.values():\n"
    "    if isinstance(value, list): value.append(('NAME', lambda self: BODY))\n"
    "class Basket:\n    def NAME(self): return BODY",
}


@pytest.fixture(scope="module")
def played(request, executor):
    """Return the rewards of teams in which one part has also, by each of the means, the method of another."""
    environment = ModulesEnvironment(Settings(), lambda: executor)
    made = class_problem(task(), 3)
    known = dict(made.references[0])
    body = "".join(f"    {line}\n" for line in known["one"].splitlines())
    whole = f"class Basket:\n{body}"
    teams = {("honest", "with"): [whole, known["two"], known["main"]]}
    teams["honest", "without"] = [whole, "", known["main"]]
    asked = (item.callspec.params for item in request.session.items if hasattr(item, "callspec"))
    for name in {params["means"]: None for params in asked if "means" in params}:
        text = MEANS[name]
        right = text.replace("NAME", "total").replace("BODY", "sum(self.prices)")
        wrong = text.replace("NAME", "total").replace("BODY", "-1")
        for key, source, other in ((("earns", name), right, ""), (("spoils", name), wrong, known["two"])):
            both = source.replace("class Basket:\n", f"class Basket:\n{body}", 1)
            teams[key] = [both if both != source else f"{whole}\n{source}", other, known["main"]]
    outcomes = environment.step([environment.start(made)] * len(teams), list(teams.values()))
    return dict(zip(teams, outcomes, strict=True))


@pytest.mark.sample("means", "pipeline_lib/environments/modules", count=12)
@pytest.mark.parametrize("means", MEANS)
def test_the_method_of_another_part_earns_nothing_and_spoils_nothing(played, means):
    assert played["honest", "with"].reward == pytest.approx(1.6)
    earned = played["earns", means]
    assert earned.metrics["unit_two"] == 0.0
    assert earned.reward <= played["honest", "without"].reward
    assert played["spoils", means].metrics["system_passed"] == 1.0, played["spoils", means].details


#: The same while its own method runs.
CALLED = [
    "self.total = lambda: sum(self.prices)",
    "self.__dict__['total'] = lambda: sum(self.prices)",
    "type(self).total = lambda self: sum(self.prices)",
    "type.__setattr__(type(self), 'total', lambda self: sum(self.prices))",
    "self.__class__ = type('Basket', (type(self),), {'total': lambda self: sum(self.prices)})",
    "self.__class__.__getattr__ = lambda self, name: lambda: sum(self.prices)",
    "import sys; sys.modules['program'].Basket.total = lambda self: sum(self.prices)",
]


#: What the other part has instead, and a condition under which such a method is replaced.
INSTEAD = {
    "nothing": ("", "True"),
    "a wrong method": ("def total(self):\n    return 0\n", "True"),
    "a wrong method, stubs are left alone": (
        "def total(self):\n    return 0\n",
        "vars(Basket)['total'].__code__.co_flags & 4 == 0",
    ),
    "a wrong method, methods that return nothing are left alone": (
        "def total(self):\n    return 0\n",
        "Basket.total(self) is not None",
    ),
    "a wrong lambda, what is missing is left alone": ("total = lambda self: 0\n", "hasattr(Basket, 'total')"),
}


@pytest.mark.sample("instead", "pipeline_lib/environments/modules", count=2)
@pytest.mark.parametrize("instead", INSTEAD)
def test_the_method_of_another_part_earns_nothing_when_it_comes_with_a_call(environment, instead):
    made = class_problem(task(), 3)
    known = dict(made.references[0])
    other, condition = INSTEAD[instead]
    lines = ["pass", *CALLED]
    bodies = [f"    if {condition}: {line}\n    self.prices.append" for line in lines]
    texts = [known["one"].replace("    self.prices.append", body) for body in bodies]
    honest, *outcomes = environment.step(
        [environment.start(made)] * len(lines), [[text, other, known["main"]] for text in texts]
    )
    assert honest.metrics["unit_one"] == 1.0
    for line, outcome in zip(CALLED, outcomes, strict=True):
        assert outcome.reward <= honest.reward, line


OWN = {
    "assignment": "class Basket:\n    add = lambda self, price: (check(price), self.prices.append(price), self)[-1]\n"
    "def check(price):\n    if price < 0: raise ValueError",
    "a function beside the class": "def check(price):\n    if price < 0: raise ValueError\n"
    "class Basket:\n    def add(self, price):\n        check(price)\n        self.prices.append(price)\n"
    "        return self",
    "its class and super": "class Basket:\n    def add(self, price):\n        super().__init__()\n"
    "        if price < 0: raise ValueError\n        self.prices.append(price)\n"
    "        return self if isinstance(self, Basket) and isinstance(self, __class__) else None",
    "a private helper": "class Basket:\n    def __check(self, price):\n        if price < 0: raise ValueError\n"
    "    def add(self, price):\n        self.__check(price)\n        self.prices.append(price)\n        return self",
    "a cached helper": "import functools\nclass Basket:\n"
    "    @functools.cached_property\n    def least(self): return 0\n"
    "    def add(self, price):\n        if price < self.least: raise ValueError\n"
    "        self.prices.append(price)\n        return self",
    "from outside": "class Basket:\n    pass\ndef add(self, price):\n    if price < 0: raise ValueError\n"
    "    self.prices.append(price)\n    return self\nBasket.add = add",
    "a helper beside functions without a class": "def bad(price):\n    return price < 0\n"
    "def add(self, price):\n    if bad(price): raise ValueError\n    self.prices.append(price)\n    return self",
    "a helper beside indented functions": "    def bad(price):\n        return price < 0\n"
    "    def add(self, price):\n        if bad(price): raise ValueError\n        self.prices.append(price)\n"
    "        return self",
    "functions without a class that are named like builtins": "def sum(self):\n    return len(self.prices)\n"
    "def add(self, price):\n    if sum([price]) < 0: raise ValueError\n    self.prices.append(price)\n    return self",
    "a base of its own": "class Checks:\n    def bad(self, price): return price < 0\nclass Basket(Checks):\n"
    "    def add(self, price):\n        if self.bad(price): raise ValueError\n        self.prices.append(price)\n"
    "        return self",
    "an abstract base": "import abc\nclass Basket(abc.ABC):\n    def add(self, price):\n"
    "        if price < 0: raise ValueError\n        self.prices.append(price)\n        return self",
    "slots": "class Basket:\n    __slots__ = ('prices', 'last')\n    def add(self, price):\n        self.last = price\n"
    "        if price < 0: raise ValueError\n        self.prices.append(price)\n        return self",
    "a special method": "class Basket:\n    def __len__(self): return len(self.prices)\n"
    "    def add(self, price):\n        if price < 0: raise ValueError(len(self))\n"
    "        self.prices.append(price)\n        return self",
    "a data class": "import dataclasses\n@dataclasses.dataclass\nclass Basket:\n"
    "    prices: list = dataclasses.field(default_factory=list)\n    def add(self, price):\n"
    "        if price < 0: raise ValueError\n        self.prices.append(price)\n        return self",
    "a decorator": "import functools as ft\ndef checked(method):\n    @ft.wraps(method)\n    def run(self, price):\n"
    "        if price < 0: raise ValueError\n        return method(self, price)\n    return run\n"
    "class Basket:\n    @checked\n    def add(self, price):\n        self.prices.append(price)\n        return self",
    "a wrapped method": "def checked(method):\n    def run(self, price):\n        if price < 0: raise ValueError\n"
    "        return method(self, price)\n    return run\nclass Basket:\n    def add(self, price):\n"
    "        self.prices.append(price)\n        return self\n    add = checked(add)",
    "several forms": "import functools\nclass Basket:\n    @functools.singledispatchmethod\n"
    "    def add(self, price): raise TypeError\n    @add.register\n    def _(self, price: int):\n"
    "        if price < 0: raise ValueError\n        self.prices.append(price)\n        return self",
    "annotations": "from __future__ import annotations\nclass Basket:\n    def add(self, price: Missing) -> Basket:\n"
    "        if price < 0: raise ValueError\n        self.prices.append(price)\n        return self",
}


def test_a_part_may_write_its_own_methods_as_it_likes(environment):
    made = class_problem(task(), 3)
    known = dict(made.references[0])
    states = [environment.start(made)] * len(OWN)
    outcomes = environment.step(states, [[text, known["two"], known["main"]] for text in OWN.values()])
    found = [(outcome.metrics["unit_one"], outcome.metrics["system_passed"]) for outcome in outcomes]
    assert {name for name, shares in zip(OWN, found, strict=True) if shares != (1.0, 1.0)} == set()


def test_a_part_that_fails_costs_the_others_nothing(environment):
    made = class_problem(task(), 3)
    known = dict(made.references[0])
    texts = ["1 / 0\n" + known["one"], "raise SystemExit", "class Basket:\n    1 / 0", "del Basket"]
    texts += [f"x = {'not ' * 900}1\n{known['one']}", "if a: pass\n" + "elif a: pass\n" * 1500]
    number = len(texts)
    outcomes = environment.step(
        [environment.start(made)] * number, [[text, known["two"], known["main"]] for text in texts]
    )
    assert {outcome.metrics["unit_two"] for outcome in outcomes} == {1.0}
    assert [outcome.metrics["system_passed"] for outcome in outcomes] == pytest.approx([1 / 6] * number)


def test_a_single_agent_writes_the_whole_class(executor):
    single = ModulesEnvironment(Settings(team="single"), lambda: executor)
    made = class_problem(task(), 2)
    state = single.start(made)
    texts = [SOLUTION, f"```python\n{SOLUTION}```", single_text(made, made.references[0]), single.stub(state, 0)]
    *right, stub = single.step([state] * 4, [[text] for text in texts])
    assert [outcome.reward for outcome in right] == pytest.approx([1.6] * 3)
    assert stub.terms["form"] == pytest.approx(0.2) and stub.metrics["system_passed"] == 0.0
    assert "Secret of add" in single.observe(state, 0) and "Secret of mean" in single.observe(state, 0)


@pytest.mark.parametrize("team", sampled(("modules", "single"), 1, "the audit of classes", "pipeline_lib"))
def test_the_audit_passes(executor, team: str):
    settings = Settings(team=team)
    text = json.dumps(task(1))
    for old, new in (
        ("Basket", "Crate"),
        ("add", "store"),
        ("total", "weight"),
        ("mean", "average"),
        ("Mean", "Average"),
    ):
        text = text.replace(old, new)
    another = json.loads(text.replace("TestAdd", "TestStore").replace("TestTotal", "TestWeight"))
    problems = [class_problem(row, 2) for row in (task(), another)]
    found = audit(settings, ModulesEnvironment(settings, lambda: executor), problems)
    assert found.status is Status.PASS, found.summary
    rungs = {rung.name: rung for rung in found.ladder}
    assert rungs["reference"].reward == pytest.approx(1.6) and rungs["another_program"].reward < 0.4
    assert ("one_writes_all" in rungs) == (team == "modules")


def test_a_file_is_read_dealt_out_and_checked(tmp_path: Path, executor):
    path = tmp_path / "classes.jsonl"
    path.write_text("".join(json.dumps(task(number)) + "\n" for number in range(8)))
    params = tmp_path / "params.yaml"
    params.write_text(f"environment: {{kind: modules}}\nproblems: {{kind: classeval, source: {path}}}\n")
    made = load_params(params, ROOT / "conf")
    assert isinstance(made.problems, ClassProblems) and find("modules").agent_names(made) == ("one", "main")
    splits = find("modules").make_problems(made.problems)
    assert {split: len(found) for split, found in splits.items()} == {"train": 4, "validation": 1, "test": 2} or sum(
        map(len, splits.values())
    ) == 8
    find("modules").check_problems(splits["train"], lambda: Executor(slots=1))
    with pytest.raises(ValueError, match="use a pretrained policy"):
        find("modules").demonstrate(splits["train"], 1, 0.0, 0)
    with pytest.raises(ProblemsError, match="has no problem 'Small_9'"):
        find("modules").make_problems(made.problems.model_copy(update={"leave_out": ("Small_9",)}))
    broken = class_problem({**task(), "solution_code": SOLUTION.replace("sum", "len")}, 2)
    with pytest.raises(ProblemsError, match=r"1 of 1 problems came with.*\n  Small_0: .*\n.*leave_out: \[Small_0\]"):
        find("modules").check_problems([broken], lambda: Executor(slots=1))
    lacking = [
        class_problem({**task(number), field: f"import no_such_package\n{text}"}, 2)
        for number, (field, text) in enumerate({"solution_code": SOLUTION, "test": TESTS}.items())
    ]
    words = r"2 of 2 .*\n(  Small_.: .*'no_such_package'.*\n){2}.*sandbox.packages.*leave_out: \[Small_0, Small_1\]"
    with pytest.raises(ProblemsError, match=words):
        find("modules").check_problems(lacking, lambda: Executor(slots=1))
    with pytest.raises(ProblemsError, match="the field test is missing; it has class_constructor"):
        class_problem({**task(), "test": ""}, 2)
    with pytest.raises(ProblemsError, match="the field solution_code is not Python"):
        class_problem({**task(), "solution_code": "class ("}, 2)
    with pytest.raises(ProblemsError, match="defines the class Basket 0 times"):
        class_problem({**task(), "solution_code": "x = 1"}, 2)
    with pytest.raises(ProblemsError, match="no test class of mean"):
        class_problem({**task(), "test": TESTS.replace("class BasketTestMean", "class Another")}, 3)


INFO = task()["methods_info"][0]  # type: ignore[index]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        *(
            ({field: 7}, f"the field {field} must be a text, got 7")
            for field in ("test", "solution_code", "class_name")
        ),
        ({"skeleton": ["x"]}, r"the field skeleton must be a text, got \['x'\]"),
        ({"import_statement": "import math"}, "the field import_statement must be a list of texts, got 'import math'"),
        ({"methods_info": {"add": INFO}}, "the field methods_info must be a list of methods, got {'add': {'meth"),
        ({"methods_info": ["add"]}, r"the field methods_info must be a list of methods, got \['add'\]"),
        ({"methods_info": []}, "the field methods_info is missing"),
        (
            {"methods_info": [INFO, {**INFO, "test_class": []}]},
            r"methods_info\[1\].test_class must be a text, got \[\]",
        ),
        (
            {"methods_info": [{"method_name": "add"}]},
            r"methods_info\[0\].method_description is missing; it has method_n",
        ),
    ],
)
def test_a_field_of_another_type_is_named_with_line_and_problem(tmp_path: Path, changes: dict[str, object], words: str):
    path = tmp_path / "classes.jsonl"
    path.write_text(json.dumps({**task(3), **changes}) + "\n")
    with pytest.raises(ProblemsError, match=f"classes.jsonl:1: problem Small_3: .*{words}"):
        read_classes(ClassProblems(source=str(path)))


def published() -> list[dict[str, object]]:
    with gzip.open(CLASS_EVAL, "rt") as file:
        tasks: list[dict[str, object]] = json.load(file)
    return tasks


@needs("ClassEval")
@pytest.mark.parametrize("agents", [2, 3, 4])
def test_every_published_class_can_be_shared(agents: int):
    for each in published():
        made = class_problem(each, agents)
        assert len(made.parts) == min(agents, len(each["methods_info"]))  # type: ignore[arg-type]
        joined = program(made, made.references[0], made.parts[-1])
        for part, own in made.defines.items():
            assert all(f"def {name}(" in joined for name in own)
            body = made.references[0][part].strip().splitlines()[-1].strip()
            others = [made.observations[other] for other in made.parts]
            assert len(body) < 40 or not any(body in told for told in others), made.id


@needs("ClassEval")
@pytest.mark.parametrize(
    "share_of_them",
    [pytest.param(0.15, id="some"), pytest.param(1.0, id="all", marks=pytest.mark.exhaustive)],
)
def test_published_solutions_get_full_marks(share_of_them: float):
    known = [each for number, each in enumerate(published()) if number not in NOT_HERE]
    chosen = random.Random(0).sample(known, round(share_of_them * len(known)))
    jobs = [job for each in chosen for job in solution_jobs(class_problem(each, 3))]
    with Executor(slots=2, limits=Limits(cpu_s=30.0, call_cpu_s=20.0, wall_s=120.0)) as executor:
        missed = [verdict for verdict in executor.run(jobs) if verdict.fraction != 1.0]
    assert not missed, [(verdict.id, verdict.error) for verdict in missed]
