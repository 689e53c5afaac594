"""The pictures of the architecture are of the code as it is."""

import sys
from pathlib import Path

import pytest

from scripts import draw_map


def test_arrows_that_others_imply_are_left_out() -> None:
    found = draw_map.reduced({"a": {"b", "c", "d"}, "b": {"c"}, "c": {"d"}, "d": set()})
    assert found == {"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": set()}


def test_a_function_that_is_gone_or_changed_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "package").mkdir()
    module = tmp_path / "package" / "module.py"
    module.write_text('class A:\n    def f(self) -> int:\n        """Return one.  More."""\n')
    monkeypatch.setattr(draw_map, "ROOT", tmp_path)
    assert draw_map.described("package.module:A.f") == ("Return one", "int")
    with pytest.raises(LookupError, match=r"package.module:A.g is gone"):
        draw_map.described("package.module:A.g")


def test_a_box_says_what_the_docstring_of_its_package_begins_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").write_text('"""Does one ``thing``, in\nits way.  More."""\n')
    (tmp_path / "module.py").write_text('"""A module.\n\nMore."""\n')
    monkeypatch.setattr(draw_map, "ROOT", tmp_path)
    assert draw_map.purpose("module") == "A module"
    assert draw_map.purpose("package") == "Does one thing, in its way"


def test_every_package_of_the_map_says_what_it_is_for() -> None:
    rows = [(f"{name}." if name else "", draw_map.layers(name)) for name in (None, "tasks", "pipeline_lib")]
    assert all(draw_map.purpose(f"{where}{name}") for where, found in rows for row in found for name in row)


def test_pictures_out_of_date_end_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(draw_map, "ROOT", tmp_path)
    monkeypatch.setattr(draw_map, "PICTURES", tmp_path)
    for name in ("packages", "way_of_a_problem"):
        monkeypatch.setattr(draw_map, name, lambda name=name: name)
    monkeypatch.setattr(sys, "argv", ["draw_map"])
    draw_map.main()
    (tmp_path / "packages.svg").write_text("an older one")
    monkeypatch.setattr(sys, "argv", ["draw_map", "--check"])
    with pytest.raises(SystemExit, match=r"packages\.svg: out of date"):
        draw_map.main()
    assert (tmp_path / "packages.svg").read_text() == "an older one"
