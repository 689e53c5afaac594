"""What programs may import beside the standard library."""

from pathlib import Path
from typing import Any

import numpy
import pytest

from pipeline_lib.sandbox import Executor, Job, Status, Verdict
from pipeline_lib.sandbox.inside import packaged
from pipeline_lib.sandbox.inside.values import BROKEN, BadValue
from pipeline_lib.sandbox.packages import Packages, find_packages
from tests.needs import JAILS

TEMPLATE = "from jinja2 import Template\ndef f(x):\n    return Template('{{ x + 1 }}').render(x=x)\n"
IMAGE = """
from PIL import Image, ImageChops
class Album:
    def __init__(self):
        self.image = Image.new("RGB", (20, 10), (1, 2, 3))
        self.large = Image.new("RGB", (2000, 1000))
        self.image.filename = "a.png"
    def turn(self):
        self.image = self.image.rotate(90)
    def lie(self, size):
        class Liar(Image.Image):
            mode, size = "RGB", (size, size)
            def tobytes(self):
                return b""
        Liar.__module__ = "PIL.Image"
        return Liar()
"""
IMAGE_TESTS = """
import unittest
class AlbumTest(unittest.TestCase):
    def test_c_code_takes_images(self):
        album, own = Album(), Image.new("RGB", (20, 10), (1, 2, 3))
        self.assertIsNone(ImageChops.difference(own, album.image).getbbox())
        self.assertEqual((album.image.filename, album.image.format), ("a.png", None))
        album.turn()
        self.assertIsNone(ImageChops.difference(own.rotate(90), album.image).getbbox())
        self.assertIsNotNone(ImageChops.difference(own, album.image).getbbox())
    def test_large_images_stay_where_they_are(self):
        self.assertEqual(Album().large.size, (2000, 1000))
    def test_what_is_no_image_is_none(self):
        Album().lie(100)
"""


@pytest.mark.parametrize(
    ("tag", "body"),
    [
        ("ndarray", ["d", [10**9, 0], []]),
        ("ndarray", ["d", [-1], [1.0]]),
        ("ndarray", ["d", [True], [1.0]]),
        ("ndarray", ["d", [2], [1.0]]),
        ("ndarray", ["b", [1], [1000]]),
        ("ndarray", ["O", [1], [1]]),
        ("ndarray", [["d"], [1], [1.0]]),
        ("ndarray", ["d", [1]]),
        ("ndarray", ["d", [1], {"tuple": 3}]),
        ("ndarray", ["d", 5, []]),
        ("image", ["RGB", 1, 1, "00", {}]),
        ("image", ["P", 1, 1, "00", {}]),
        ("image", ["RGB", 10**6, 10**6, "000000", {}]),
        ("image", ["RGB", -1, -1, "000000", {}]),
        ("image", ["RGB", 1, 1, "zz", {}]),
        ("image", ["RGB", 1, 1, "000000", []]),
        ("image", [["RGB"], 1, 1, "000000", {}]),
    ],
)
def test_what_is_no_value_of_a_package_is_refused(tag: str, body: list[Any]) -> None:
    with pytest.raises((BadValue, *BROKEN)):
        packaged.make(tag, body)


def test_values_of_packages_come_back() -> None:
    for array in (numpy.arange(6).reshape(2, 3), numpy.zeros((0, 3)), numpy.array([True]), numpy.float32(0.5)):
        kind = packaged.kind_of(array, type(array))
        found = packaged.scalar(*packaged.scalar_form(array)) if kind == "scalar" else _copy(array, kind)
        assert type(found) is type(array) and found.dtype == array.dtype
        assert found.shape == array.shape and (found == array).all()


def _copy(array: Any, kind: str | None) -> Any:
    assert kind == "ndarray"
    return packaged.make(kind, packaged.body(array, kind))


def judged(executor: Executor, code: str, tests: str, entry_point: str = "f") -> Verdict:
    (verdict,) = executor.run([Job("job", code, tests, entry_point)])
    return verdict


@pytest.mark.parametrize("jail", JAILS)
def test_a_package_comes_with_what_it_requires_and_nothing_else(jail: str) -> None:
    with Executor(slots=1, jail=jail, packages=["jinja2"]) as executor:
        assert judged(executor, TEMPLATE, "assert f(1) == '2'\n").status is Status.PASSED
        for other in ("numpy", "pytest"):
            verdict = judged(executor, f"import jinja2\nimport {other}\n{TEMPLATE}", "assert f(1) == '2'\n")
            assert (verdict.status, verdict.passed) == (Status.LOAD_ERROR, 0)
        lean = "import sys\ndef f(x):\n    return any('jin' 'ja2' in name for name in sys.modules)\n"
        assert judged(executor, lean, "assert f(1) is False\n").status is Status.PASSED


def test_where_packages_lie() -> None:
    found = find_packages(["Jinja2"])
    assert {"jinja2", "markupsafe"} == set(found.modules)
    assert all(Path(place).exists() for place in found.places)
    assert found.preload == ("jinja2",)
    assert found.wanted_by("import jinja2 as j") and not found.wanted_by("import jinja22")
    assert not Packages().wanted_by("import numpy")
    with pytest.raises(ValueError, match="there-is-no-such-package"):
        find_packages(["there-is-no-such-package"])


def test_images_are_values_while_they_are_small() -> None:
    with Executor(slots=1, packages=["pillow"]) as executor:
        verdict = judged(executor, IMAGE, IMAGE_TESTS, "Album")
    assert [case.result for case in verdict.cases] == ["ok", "ok", "error"], verdict
