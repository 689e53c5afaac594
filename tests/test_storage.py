"""Files are complete or untouched; digests depend on content alone."""

import errno
import json
from pathlib import Path

import pytest

from pipeline_lib import storage


def test_a_full_disk_leaves_the_old_file_and_no_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "value.json"
    storage.write_json(path, {"a": 1})

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        storage.write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["value.json"]


def test_not_a_number_is_never_written(tmp_path: Path):
    with pytest.raises(ValueError, match="JSON"):
        storage.write_json(tmp_path / "value.json", {"a": float("nan")})
    assert not list(tmp_path.iterdir())


def test_a_corrupt_file_is_named(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n{"a"')
    with pytest.raises(storage.CorruptFileError, match=r"rows\.jsonl:2"):
        list(storage.read_jsonl(path))
    with pytest.raises(storage.CorruptFileError, match="delete it"):
        storage.read_json(path)


def test_digests_see_content_not_order_or_place(tmp_path: Path):
    assert storage.digest({"a": 1, "b": [2.0]}) == storage.digest({"b": [2.0], "a": 1})
    assert storage.digest({"a": 1}) != storage.digest({"a": 2})
    for name in ("x", "y"):
        storage.write_text(tmp_path / name / "sub" / "file", "same")
    assert storage.folder_digest(tmp_path / "x") == storage.folder_digest(tmp_path / "y")
    storage.write_text(tmp_path / "y" / "sub" / "file", "other")
    assert storage.folder_digest(tmp_path / "x") != storage.folder_digest(tmp_path / "y")
