"""A code digest changes with every line that can change a value, and with nothing else."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pipeline_lib.identity import code
from pipeline_lib.identity.code import code_of

FILES = {
    "__init__.py": "",
    "top.py": "from sample_package.below import middle\n\ndef run():\n    return middle.help_me()\n",
    "below/__init__.py": "FLAG = 1\n",
    "below/middle.py": "def help_me():\n    from . import deep\n    return deep.VALUE\n",
    "below/deep.py": "import json\nVALUE = 1\n",
    "other.py": "VALUE = 1\n",
    "typed.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from sample_package import other\n",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in FILES.items():
        path = tmp_path / "sample_package" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    # This package stands for the library; tests of users' code: test_user_code.py
    monkeypatch.setattr(code, "OWN", (*code.OWN, "sample_package"))
    yield tmp_path / "sample_package"
    for name in [name for name in sys.modules if name.partition(".")[0] == "sample_package"]:
        del sys.modules[name]


def module(name: str) -> ModuleType:
    return importlib.import_module(f"sample_package.{name}")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("top.py", FILES["top.py"].replace("return middle.help_me()", "return middle.help_me() + 1")),
        ("below/middle.py", FILES["below/middle.py"].replace("deep.VALUE", "-deep.VALUE")),
        ("below/deep.py", "import json\nVALUE = 2\n"),
        ("below/__init__.py", "FLAG = 2\n"),
    ],
)
def test_a_changed_line_in_any_file_that_is_reached_changes_the_digest(package: Path, file: str, text: str) -> None:
    before = code_of("sample_package.top").digest
    (package / file).write_text(text)
    assert code_of("sample_package.top").digest != before


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("top.py", '"""Says what it does."""\n' + FILES["top.py"].replace("def run():", "def run():  # why\n")),
        ("below/middle.py", FILES["below/middle.py"].replace("():\n", '():\n    """Help."""\n')),
        ("other.py", "VALUE = 2\n"),
    ],
)
def test_comments_docstrings_and_files_that_are_not_reached_do_not(package: Path, file: str, text: str) -> None:
    before = code_of("sample_package.top").digest
    (package / file).write_text(text)
    assert code_of("sample_package.top").digest == before


def test_imports_for_type_checking_are_not_reached(package: Path) -> None:
    before = code_of("sample_package.typed").digest
    (package / "other.py").write_text("VALUE = 2\n")
    assert code_of("sample_package.typed").digest == before


def test_every_named_module_counts(package: Path) -> None:
    assert code_of("sample_package.top").digest != code_of("sample_package.top", "sample_package.other").digest


def test_a_value_that_no_code_computes_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one module"):
        code_of()
    with pytest.raises(ValueError, match="no module sys with a source file"):
        code_of("sys")


def test_only_what_is_for_type_checking_alone_is_left_out(package: Path) -> None:
    (package / "typed.py").write_text(
        "from typing import TYPE_CHECKING\nif not TYPE_CHECKING:\n    from sample_package import other\n"
    )
    before = code_of("sample_package.typed").digest
    (package / "other.py").write_text("VALUE = 2\n")
    assert code_of("sample_package.typed").digest != before


@pytest.mark.parametrize(
    "way",
    [
        'import importlib\nother = importlib.import_module("sample_package.other")\n',
        'from importlib import import_module\ndef run():\n    return import_module("sample_package.other").VALUE\n',
        'other = __import__("sample_package.other")\n',
        'import importlib\nother = importlib.import_module(name="sample_package.other")\n',
    ],
)
def test_imports_by_a_name_that_is_written_there_are_reached(package: Path, way: str) -> None:
    (package / "top.py").write_text(way)
    before = code_of("sample_package.top").digest
    (package / "other.py").write_text("VALUE = 2\n")
    assert code_of("sample_package.top").digest != before


def test_of_a_package_that_finds_its_modules_when_they_are_asked_for_all_count(package: Path) -> None:
    (package / "below" / "__init__.py").write_text("def __getattr__(name):\n    return find(name)\n")
    before = code_of("sample_package.top").digest
    (package / "below" / "further.py").write_text("VALUE = 3\n")
    assert code_of("sample_package.top").digest != before


def test_docstrings_that_the_code_asks_for_are_code(package: Path) -> None:
    text = 'def run():\n    """One."""\n    return run.__doc__\n'
    (package / "top.py").write_text(text)
    before = code_of("sample_package.top").digest
    (package / "top.py").write_text(text.replace("One", "Two"))
    assert code_of("sample_package.top").digest != before


def test_docstrings_stay_no_code_where_one_is_only_given(package: Path) -> None:
    text = 'def run():\n    """One."""\n    def made(): ...\n    made.__doc__ = "x"\n'
    (package / "top.py").write_text(text)
    before = code_of("sample_package.top").digest
    (package / "top.py").write_text(text.replace("One.", "Two."))
    assert code_of("sample_package.top").digest == before


def test_a_module_of_the_project_that_hides_one_of_pythons_is_reached(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (package / "top.py").write_text("import colorsys\n")
    before = code_of("sample_package.top").digest
    code._located.cache_clear()
    (package.parent / "colorsys.py").write_text("VALUE = 1\n")
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    assert code_of("sample_package.top").digest != before
    code._located.cache_clear()
