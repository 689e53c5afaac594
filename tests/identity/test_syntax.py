"""What files say is remembered by their content: never too long, and never the worse for a broken memory."""

import json
import os
from pathlib import Path

import pytest

from pipeline_lib.identity import syntax
from pipeline_lib.identity.syntax import SyntaxCache, parse


def test_imports_are_found_wherever_they_may_run() -> None:
    text = b"""
import a, b.c
from . import d
from ..e import f as g
def h():
    try:
        import i
    except ImportError:
        import j
    match 1:
        case 1:
            import k
if TYPE_CHECKING:
    import not_this
else:
    import l
"""
    assert list(parse(text).imports) == ["a", "b.c", ".", ".d", "..e", "..e.f", *"ijkl"]


def test_a_remembered_answer_is_that_of_the_content_whatever_the_times_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, source = tmp_path / "memory.json", tmp_path / "source.py"
    source.write_text("VALUE = 1\n")
    memory = SyntaxCache(file)
    first, times = memory.of(source), source.stat()
    memory.keep()
    source.write_text("VALUE = 2\n")
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    second = SyntaxCache(file).of(source)
    assert second.digest != first.digest
    source.write_text("VALUE = 1\n")
    monkeypatch.setattr(syntax, "parse", lambda *_: pytest.fail("it was parsed again"))
    assert SyntaxCache(file).of(source) == first


@pytest.mark.parametrize("broken", ["", "{", "[]", '{"how": 1}', '{"how": "%s", "files": {"%s": [1]}}'])
def test_a_memory_that_is_broken_or_made_otherwise_is_not_believed(tmp_path: Path, broken: str) -> None:
    file, source = tmp_path / "memory.json", tmp_path / "source.py"
    source.write_text("VALUE = 1\n")
    memory = SyntaxCache(file)
    right = memory.of(source)
    memory.keep()
    stored = json.loads(file.read_text())
    file.write_text(broken % (stored["how"], *stored["files"]) if "%" in broken else broken)
    assert SyntaxCache(file).of(source) == right
    file.write_text(json.dumps({"how": "another Python", "files": {key: ["0" * 64, []] for key in stored["files"]}}))
    assert SyntaxCache(file).of(source) == right
