"""Mocks and imported names that tests share with the program."""

import pytest

from pipeline_lib.sandbox import Executor, Job, Status

CODE = """
import xml.etree.ElementTree as ET
from collections import OrderedDict as OD
import json
import xml.etree.ElementTree
class Proc:
    def __init__(self, name="x"):
        self.name = name
        self.session = None
    def read(self): return "abc"
    def write(self, text): self.name = text
    def process(self):
        text = self.read().upper()
        self.write(text)
        return text
    def fetch(self, url):
        answer = self.session.get(url, timeout=3)
        if answer.status == 200:
            return answer.json()["x"]
        return None
    def truth(self): return bool(self.session)
    def use(self):
        self.session.seen = 5
        with self.session as x: return (x, len(self.session), self.session[4])
    def session_reset(self): self.session.reset()
    def each(self): return [x for x in self.session]
    def parse(self, text): return ET.fromstring(text).tag
"""
TESTS = """
import unittest
from unittest.mock import MagicMock, Mock, patch, call
class T(unittest.TestCase):
    def test_method(self):
        p = Proc(); p.read = MagicMock(return_value="tt"); p.write = MagicMock()
        self.assertEqual(p.process(), "TT")
        p.read.assert_called_once()
        p.write.assert_called_once_with("TT")
        self.assertEqual(p.write.call_count, 1)
    def test_mock(self):
        p = Proc(); p.read = Mock(return_value="tt"); p.write = Mock(side_effect=ValueError("no"))
        with self.assertRaises(ValueError): p.process()
    def test_object(self):
        p = Proc(); p.session = MagicMock()
        p.session.get.return_value.status = 200
        p.session.get.return_value.json.return_value = {"x": 5}
        self.assertEqual(p.fetch("u"), 5)
        p.session.get.assert_called_with("u", timeout=3)
    def test_patch_object(self):
        p = Proc()
        with patch.object(p, "read", return_value="q") as m:
            self.assertEqual(p.process(), "Q")
            m.assert_called_once_with()
        self.assertEqual(p.read(), "abc")
    def test_patch_class(self):
        with patch.object(Proc, "read", return_value="q"):
            self.assertEqual(Proc().process(), "Q")
        self.assertEqual(Proc().read(), "abc")
    def test_iter(self):
        p = Proc(); p.session = MagicMock(); p.session.__iter__.return_value = iter([1,2])
        self.assertEqual(p.each(), [1,2])
    def test_arg(self):
        p = Proc(MagicMock())
        self.assertEqual(p.parse("<a/>"), ET.fromstring("<a/>").tag)
    def test_more(self):
        p = Proc(); p.session = Mock()
        self.assertTrue(p.truth())
        with self.assertRaises(TypeError): p.each()
        p.session = MagicMock()
        self.assertTrue(p.truth())
        p.session.__enter__.return_value = 7
        p.session.__len__.return_value = 3
        p.session.__getitem__.side_effect = lambda k: k * 2
        self.assertEqual(p.use(), (7, 3, 8))
        self.assertEqual(p.session.seen, 5)
        self.assertIs(p.session, p.session)
        p.session.reset.side_effect = KeyError("z")
        with self.assertRaises(KeyError): p.session_reset()
    def test_spec(self):
        p = Proc(); p.session = MagicMock(spec=["get"])
        with self.assertRaises(AttributeError): p.session_reset()
    def test_dots(self):
        self.assertEqual(xml.etree.ElementTree.fromstring("<a/>").tag, "a")
    def test_od(self):
        self.assertEqual(OD([(1,2)]), {1:2})
"""
FORGED = """
import unittest
from unittest.mock import MagicMock
class T(unittest.TestCase):
    def test_a(self):
        listener = MagicMock()
        Bell().ring(listener)
        listener.assert_called_once_with(3)
    def test_b(self):
        listener = MagicMock()
        Bell().ring(listener)
        self.assertTrue(listener.called)
"""


@pytest.fixture(scope="module")
def executor():
    with Executor(slots=1, cache=0) as started:
        yield started


def test_a_program_uses_the_mocks_and_the_tests_the_imports(executor):
    (verdict,) = executor.run([Job("mocks", CODE, TESTS, "Proc")])
    assert verdict.status is Status.PASSED, [case for case in verdict.cases if case.result != "ok"]


@pytest.mark.parametrize(
    ("body", "passed"),
    [
        ("listener(3)", 2),
        ("listener(4)", 1),
        ("pass", 0),
        ("listener.assert_called_once_with = lambda n: None", 0),
        ("listener.called = True", 0),
        ("listener.configure_mock(called=True)", 0),
        ("listener.__class__ = object", 0),
        ("listener._mock_called = True", 0),
        ("listener.__dict__['called'] = True", 0),
        ("listener.mock_calls.append(1)", 0),
        ("listener.__setattr__('called', True)", 0),
        ("listener.__dict__['__do__']('set', 'called', True)", 0),
        ("listener.__dict__['__do__']('special', '__class__')", 0),
    ],
)
def test_a_program_cannot_forge_what_a_mock_was_called_with(executor, body, passed):
    code = f"class Bell:\n    def ring(self, listener):\n        {body}\n"
    (verdict,) = executor.run([Job("forged", code, FORGED, "Bell")])
    assert (verdict.passed, verdict.total) == (passed, 2), verdict.error


@pytest.mark.parametrize(
    ("imports", "test", "passes"),
    [
        ("import math as m", "m.sqrt(4) == f(2)", True),
        ("from math import sqrt as root", "root(4) == f(2)", True),
        ("import xml.dom.minidom", "f(bool(xml.dom.minidom.Node)) == 1", True),
        ("import cmath as math", "f(math.__name__) == 'math'", False),
        ("from operator import truth as isclose", "isclose(f(1), 2)", False),
        ("from unittest.mock import ANY as anything", "f(1) == anything", False),
        ("from no_such_module import thing as other", "f(other)", False),
    ],
)
def test_tests_get_what_the_program_imports_under_any_name_that_is_not_well_known(executor, imports, test, passes):
    (verdict,) = executor.run([Job("imports", f"{imports}\ndef f(x): return x\n", f"assert {test}", "f")])
    assert (verdict.status is Status.PASSED) == passes, verdict.error
