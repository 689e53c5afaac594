"""Files of problems: complete, disjoint, and refused by name when they are not what the manifest says."""

import json
import shutil
from pathlib import Path

import pytest

from pipeline_lib.environments.coding.generated import generate
from pipeline_lib.environments.coding.settings import DatasetProblems, GeneratedProblems
from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.problems.splits import SPLITS, load_manifest, load_split
from pipeline_lib.storage import CorruptFileError, folder_digest

SMALL = GeneratedProblems.model_validate({"sizes": {"train": 12, "validation": 4, "test": 6}})


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    prepare("coding", SMALL, folder)
    return folder


@pytest.fixture
def folder(prepared: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(prepared, tmp_path / "problems"))


def _rows(number: int) -> list[dict[str, object]]:
    return [
        {
            "task_id": f"T/{n}",
            "prompt": f'def f{n}(x):\n    """Return x plus {n}."""\n',
            "canonical_solution": f"    return x + {n}\n",
            "test": f"def check(candidate):\n    assert candidate(1) == {n + 1}\n    assert candidate(2) == {n + 2}\n",
            "entry_point": f"f{n}",
        }
        for n in range(number)
    ]


def _dataset(path: Path, rows: list[dict[str, object]], **settings: object) -> DatasetProblems:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return DatasetProblems.model_validate({"kind": "humaneval", "source": str(path), **settings})


def test_what_was_written_is_read_back(prepared: Path):
    expected = generate(SMALL)
    assert {split: load_split(prepared, split) for split in SPLITS} == expected


def test_the_manifest_says_what_there_is(prepared: Path):
    manifest = load_manifest(prepared)
    assert (manifest["source"], manifest["seed"]) == ("generated", 7)
    assert GeneratedProblems.model_validate(manifest["settings"]) == SMALL
    assert {split: manifest["splits"][split]["count"] for split in SPLITS} == {"train": 12, "validation": 4, "test": 6}
    for split in SPLITS:
        assert manifest["splits"][split]["ids"] == [problem.id for problem in load_split(prepared, split)]


def test_preparing_twice_gives_the_same_bytes(prepared: Path, tmp_path: Path):
    prepare("coding", SMALL, tmp_path / "again")
    assert folder_digest(tmp_path / "again") == folder_digest(prepared)


def test_a_changed_file_is_named(folder: Path):
    path = folder / "test.jsonl"
    path.write_text(path.read_text().replace("assert candidate", "assert not candidate", 1))
    with pytest.raises(CorruptFileError, match=r"test.jsonl: its content does not match.*dvc checkout"):
        load_split(folder, "test")
    load_split(folder, "train")


def test_a_missing_file_is_named(folder: Path):
    (folder / "validation.jsonl").unlink()
    with pytest.raises(CorruptFileError, match=r"validation.jsonl: missing"):
        load_split(folder, "validation")


def test_files_of_two_splits_cannot_be_exchanged(folder: Path):
    (folder / "test.jsonl").write_bytes((folder / "train.jsonl").read_bytes())
    with pytest.raises(CorruptFileError, match=r"test.jsonl"):
        load_split(folder, "test")


def test_a_problem_in_two_splits_is_named_by_every_reader(folder: Path):
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    train, test = manifest["splits"]["train"], manifest["splits"]["test"]
    test["ids"][2], test["hashes"][2] = train["ids"][0], train["hashes"][0]
    path.write_text(json.dumps(manifest))
    for split in SPLITS:
        with pytest.raises(ProblemsError, match=train["ids"][0]):
            load_split(folder, split)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"splits": {"train": {}}}'])
def test_a_manifest_that_is_none_is_named(folder: Path, content: str):
    (folder / "manifest.json").write_text(content)
    with pytest.raises(CorruptFileError, match=r"manifest.json"):
        load_split(folder, "train")


def test_nothing_prepared_is_said(tmp_path: Path):
    with pytest.raises(ProblemsError, match=r"manifest.json: there is no manifest; prepare the problems first"):
        load_split(tmp_path, "train")


def test_there_is_no_other_split(prepared: Path):
    with pytest.raises(ProblemsError, match=r"no split 'dev'; splits are train, validation, test"):
        load_split(prepared, "dev")


def test_a_preparation_that_fails_leaves_no_manifest_to_trust(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pipeline_lib.storage.os.fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        prepare("coding", SMALL, folder)
    with pytest.raises(ProblemsError, match="no manifest"):
        load_split(folder, "train")
    assert not list(folder.glob(".*"))


def test_a_dataset_is_dealt_out_by_its_shares_and_by_its_seed(tmp_path: Path):
    settings = _dataset(tmp_path / "tasks.jsonl", _rows(20), validation=0.2, test=0.3)
    prepare("coding", settings, tmp_path / "a")
    prepare("coding", settings.model_copy(update={"seed": 8}), tmp_path / "b")
    ids = [{split: [p.id for p in load_split(tmp_path / name, split)] for split in SPLITS} for name in "ab"]
    assert {split: len(found) for split, found in ids[0].items()} == {"train": 10, "validation": 4, "test": 6}
    assert sorted(name for found in ids[0].values() for name in found) == sorted(f"T/{n}" for n in range(20))
    assert ids[0] != ids[1]


@pytest.mark.parametrize("seed", range(5))
def test_of_copies_of_a_problem_one_is_taken_and_the_others_are_named(
    tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture
):
    rows = _rows(10)
    copies = [
        {**row, "task_id": f"copy of {row['task_id']}", "prompt": str(row["prompt"]).replace("Return x", "RETURN  x")}
        for row in rows
    ]
    settings = _dataset(tmp_path / "tasks.jsonl", [*rows, *copies], validation=0.3, test=0.3, seed=seed)
    prepare("coding", settings, tmp_path / "out")
    place = {p.id: split for split in SPLITS for p in load_split(tmp_path / "out", split)}
    assert sorted(place) == sorted(f"T/{n}" for n in range(10))
    assert "10 of 20 problems are copies and left out: copy of T/0 (of T/0)" in caplog.text


SPLIT_OF = ["train"] * 4 + ["test"] * 2 + ["validation"]


def _dealt(**changes: object) -> list[dict[str, object]]:
    """Rows in splits of their own; a change of ``split_3`` is one of row 3's field ``split``."""
    rows = [{**row, "split": split} for row, split in zip(_rows(7), SPLIT_OF, strict=True)]
    for key, value in changes.items():
        field, _, number = key.rpartition("_")
        rows[int(number)][field] = value
    return rows


@pytest.mark.parametrize("seed", [7, 8])
def test_a_file_may_say_which_problems_are_in_which_split(tmp_path: Path, seed: int):
    settings = _dataset(tmp_path / "mine.jsonl", _dealt(), validation=0.4, seed=seed)
    prepare("coding", settings, tmp_path / "out")
    found = {split: [p.id for p in load_split(tmp_path / "out", split)] for split in SPLITS}
    assert found == {"train": ["T/0", "T/1", "T/2", "T/3"], "validation": ["T/6"], "test": ["T/4", "T/5"]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"split_2": "validate"}, r"mine.jsonl:4: split: got 'validate'; accepted: train, .* 'validation'\?"),
        ({"split_2": None}, r"mine.jsonl:4: the field split is missing, and other rows have it; accepted: train, val"),
        ({"split_6": "test"}, r"mine.jsonl: no problem has split 'validation'; each of train, validation, test needs"),
        ({"task_id_5": "T/0"}, r"mine.jsonl:7: problem 'T/0' has the id of another one \(.*mine.jsonl:1\)"),
        (
            {f"{field}_5": _rows(1)[0][field] for field in ("prompt", "entry_point", "canonical_solution", "test")},
            r"mine.jsonl:7: problem 'T/5' of the test split is problem 'T/0' of the train split \(.*mine.jsonl:1; same",
        ),
    ],
)
def test_splits_of_a_file_that_cannot_be_meant_are_refused_with_the_line(
    tmp_path: Path, changes: dict[str, object], words: str
):
    settings = _dataset(tmp_path / "mine.jsonl", _dealt(**changes))
    lines = (tmp_path / "mine.jsonl").read_text().splitlines()
    (tmp_path / "mine.jsonl").write_text("\n".join([lines[0], "", *lines[1:]]))  # a blank line counts as a line
    with pytest.raises(ProblemsError, match=words):
        prepare("coding", settings, tmp_path / "out")


def test_copies_inside_a_split_of_a_file_are_left_out_as_always(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    rows = [*_dealt(), {**_dealt()[1], "task_id": "again"}]
    prepare("coding", _dataset(tmp_path / "mine.jsonl", rows), tmp_path / "out")
    assert [p.id for p in load_split(tmp_path / "out", "train")] == ["T/0", "T/1", "T/2", "T/3"]
    assert "1 of 8 problems are copies and left out: again (of T/1)" in caplog.text


def test_too_few_problems_for_three_splits_are_refused(tmp_path: Path):
    with pytest.raises(ProblemsError, match=r"problems.validation: 2 different problems leave none"):
        prepare("coding", _dataset(tmp_path / "tasks.jsonl", _rows(2)), tmp_path / "out")


def test_more_problems_than_there_are_is_refused_in_words(tmp_path: Path):
    settings = GeneratedProblems.model_validate({"sizes": {"train": 5, "validation": 1300, "test": 5}})
    with pytest.raises(
        ProblemsError, match=r"problems.sizes.validation: asked for 1300.*ask for fewer, or add to levels"
    ):
        prepare("coding", settings, tmp_path)
