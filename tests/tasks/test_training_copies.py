"""A training whose machine is lost continues on another one, from what the store holds, to the same bytes."""

import json
import logging
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NoReturn

import pytest

from pipeline_lib.storage import file_digest, folder_digest
from tasks.runtime import training_copies
from tasks.runtime.training_copies import SHARED, Copies, copied, default_remote, remove_copies
from tasks.services.process_environment import HOME
from tests.training.conftest import Agree, make_settings, make_team, run_training

NAME, STAGE = "team-0123456789abcdef", "train@0"


class LostError(RuntimeError):
    """The machine is gone."""


Enter = Callable[[str], Path]


@pytest.fixture(scope="module")
def template(empty_project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose store is the folder `store` beside it."""
    folder = Path(shutil.copytree(empty_project, tmp_path_factory.mktemp("copies") / "project"))
    command = ["dvc", "remote", "add", "-q", "--default", "s", "../store"]
    subprocess.run([sys.executable, "-m", *command], cwd=folder, check=True)
    return folder


@pytest.fixture
def checkout(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Enter:
    """Enter a checkout of the project that has a home of its own; return the scratch folder of the training."""
    monkeypatch.setenv(SHARED, "1")

    def enter(name: str) -> Path:
        if not (tmp_path / name).exists():
            shutil.copytree(template, tmp_path / name)
        monkeypatch.chdir(tmp_path / name)
        monkeypatch.setenv(HOME, str(tmp_path / name / ".symposium"))
        return tmp_path / name / ".symposium/scratch/train" / NAME

    return enter


def train(
    scratch: Path,
    stop: int = 0,
    each: Callable[[int], object] = lambda step: None,
    say: Callable[[str], object] = print,
) -> list[int]:
    """Train until the machine is lost after some steps (0: never), and return the steps that were made."""
    made: list[int] = []

    def on_step(step: int, metrics: dict[str, float]) -> None:
        made.append(step)
        if step == stop:
            raise LostError

    settings = make_settings(steps=12, checkpoint_every=3, group_size=4)
    with copied(scratch, STAGE, say):
        run_training(
            scratch.parent,
            make_team(),
            Agree(),
            settings=settings,
            scratch=scratch,
            on_step=on_step,
            on_checkpoint=lambda step, folder: each(step),
        )
    return made


def results(scratch: Path) -> dict[str, Any]:
    """Return the digests of all checkpoints, and what is equal on all machines of the metrics."""
    rows = [json.loads(line) for line in (scratch / "metrics.jsonl").read_text().splitlines()]
    files = {folder.name: folder_digest(folder) for folder in scratch.glob("step-*")}
    return files | {"rewards": [(row["step"], row["reward/mean"]) for row in rows]}


def lose(checkout: Enter, at: int) -> Path:
    """Train in the checkout `lost` until its machine is gone, with every checkpoint in the store; return its copies."""
    scratch = checkout("lost")
    copies = Copies(Path.cwd(), scratch)
    with pytest.raises(LostError):
        train(scratch, at, lambda step: step and copies.send(step))
    return Path.cwd().parent / "store/training" / NAME


def test_another_machine_continues_to_the_same_bytes(checkout: Enter) -> None:
    train(quiet := checkout("quiet"))
    remove_copies(Path.cwd(), ())
    store = lose(checkout, 8)
    kept = {path.name.partition(".")[0] for path in store.iterdir()}
    (metrics,) = (path.stem for path in store.glob("metrics-00006-*.jsonl"))
    assert kept == {"step-00000", "step-00003", "step-00006", "state-00006", metrics, "record-00006"}
    said: list[str] = []
    assert train(scratch := checkout("new"), say=said.append) == [7, 8, 9, 10, 11, 12]
    assert said == ["continued from step 6, which another machine has sent"]
    assert results(scratch) == results(quiet)
    remove_copies(Path.cwd(), ("train@1",))
    assert store.exists()
    remove_copies(Path.cwd(), (STAGE,))
    assert not store.exists()


def test_checkpoints_are_sent_beside_the_training(checkout: Enter) -> None:
    scratch = checkout("one")
    with pytest.raises(LostError), copied(scratch, STAGE, print) as send:
        run_training(
            scratch.parent,
            make_team(),
            Agree(),
            settings=make_settings(steps=400, checkpoint_every=3, group_size=4),
            scratch=scratch,
            on_step=lambda step, metrics: stop_when_sent(),
            on_checkpoint=lambda step, folder: send(step),
        )
    assert Copies(Path.cwd(), checkout("two")).fetch() >= 3


def stop_when_sent() -> None:
    if list((Path.cwd().parent / "store/training" / NAME).glob("record-*.json")):
        raise LostError


def test_a_damaged_copy_is_named_and_not_taken(
    checkout: Enter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(store := lose(checkout, 8), sound := tmp_path / "sound")
    (metrics,) = (path.name for path in store.glob("metrics-00006-*.jsonl"))
    for name in ("state-00006", "step-00003", metrics, "record-00006.json"):
        for how in ("changed", "cut off", "missing"):
            shutil.rmtree(store)
            shutil.copytree(sound, store)
            found = store / name
            parts = found.rglob("*.safetensors")
            file = found if found.is_file() else max(parts, key=lambda path: path.stat().st_size)
            content = bytearray(file.read_bytes())
            content[len(content) // 2] ^= 1
            file.write_bytes(content if how == "changed" else content[: len(content) // 2])
            if how == "missing":
                file.unlink()
            scratch = checkout(f"{name} {how}")
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                assert Copies(Path.cwd(), scratch).fetch() == 0
            if (name, how) != ("record-00006.json", "missing"):
                assert "step 6 of this training cannot be had from the store: " in caplog.text
            assert not list(scratch.glob("state-*")), "nothing continues from it"


def test_a_record_names_no_file_outside_of_the_folder(checkout: Enter, tmp_path: Path) -> None:
    store = lose(checkout, 4)
    record = json.loads((store / "record-00003.json").read_text())
    (tmp_path / "store/training/evil").write_text("evil")
    record["files"]["../evil"] = file_digest(tmp_path / "store/training/evil")
    (store / "record-00003.json").write_text(json.dumps(record))
    assert Copies(Path.cwd(), checkout("new")).fetch() == 0
    assert not list(tmp_path.glob("new/**/evil"))


def test_a_training_of_fewer_steps_than_the_store_has_sends_what_is_here(checkout: Enter) -> None:
    """An error of `send` is a step that is named as not sent."""
    lose(checkout, 12)
    copies = Copies(Path.cwd(), checkout("new"))
    assert copies.fetch() == 9
    for step in (3, 6, 9):
        copies.send(step)


def test_what_is_here_and_newer_stays(checkout: Enter) -> None:
    lose(checkout, 4)
    scratch = checkout("new")
    with pytest.raises(LostError):
        train(scratch, 8)
    assert Copies(Path.cwd(), scratch).fetch() == 0
    assert train(scratch) == [7, 8, 9, 10, 11, 12]


def test_a_store_that_does_not_answer_stops_no_training(
    checkout: Enter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scratch = checkout("one")
    (tmp_path / "store").write_text("a file where the folder was")
    with caplog.at_level(logging.WARNING):
        assert len(train(scratch)) == 12


@pytest.mark.parametrize("broken", ["default_remote", "ls"])
def test_a_store_that_cannot_be_opened_or_listed_stops_no_training(
    checkout: Enter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    lose(checkout, 4)
    scratch, fs = checkout("one"), default_remote(Path.cwd())[0]

    def away(*arguments: object, **options: object) -> NoReturn:
        raise OSError("no route to host")

    monkeypatch.setattr(*((training_copies, broken) if broken == "default_remote" else (type(fs), broken)), away)
    with caplog.at_level(logging.WARNING):
        assert len(train(scratch)) == 12
    assert "no route to host" in caplog.text


def test_what_else_is_in_the_folder_of_the_copies_is_in_nobodys_way(checkout: Enter) -> None:
    store = lose(checkout, 8)
    for name in ("record-00006 (copy).json", "record-x.json", "state-old", "metrics-"):
        (store / name).write_text("something that a person or a program has left")
    scratch = checkout("new")
    copies = Copies(Path.cwd(), scratch)
    assert copies.fetch() == 6
    assert train(scratch, each=lambda step: step == 9 and copies.send(step))[0] == 7
    assert (store / "record-00009.json").exists() and not (store / "record-00006.json").exists()


def test_a_slow_store_gets_the_state_of_which_sending_has_begun(
    checkout: Enter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trainer keeps two states only; sending a large one may take longer than it takes to make two more."""
    scratch = checkout("lost")
    copies, put = Copies(Path.cwd(), scratch), Copies._put
    with pytest.raises(LostError):
        train(scratch, 4)

    def slow(self: Copies, file: Path, name: str) -> None:
        shutil.rmtree(scratch / "state-00003", ignore_errors=True)
        put(self, file, name)

    monkeypatch.setattr(Copies, "_put", slow)
    copies.send(3)
    assert not list(scratch.glob(".state*"))
    assert train(checkout("new"))[0] == 4


def test_two_machines_at_the_same_training_send_copies_that_are_whole(
    checkout: Enter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Their metrics contain other seconds; one sends all of a step between two files of the other."""
    both = {}
    for name in ("one", "two"):
        scratch = checkout(name)
        with pytest.raises(LostError):
            train(scratch, 7)
        both[name] = Copies(Path.cwd(), scratch)
    put, also = Copies._put, iter([both["two"]])

    def second_first(self: Copies, file: Path, name: str) -> None:
        if self is both["one"] and name.startswith("record-"):
            next(also).send(6)
        put(self, file, name)

    monkeypatch.setattr(Copies, "_put", second_first)
    for step in (3, 6):
        (both["one"] if step == 6 else both["two"]).send(step)
    scratch = checkout("new")
    assert Copies(Path.cwd(), scratch).fetch() == 6
    assert not caplog.records
    assert (scratch / "metrics.jsonl").read_bytes() == (checkout("one") / ".metrics.jsonl.sent").read_bytes()


def test_what_another_machine_has_removed_is_no_fault(checkout: Enter, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = checkout("one")
    with pytest.raises(LostError):
        train(scratch, 7)
    copies, fs = Copies(Path.cwd(), scratch), default_remote(Path.cwd())[0]
    copies.send(3)
    remove = type(fs).remove

    def second(self: Any, path: str, recursive: bool = False) -> NoReturn:
        remove(self, path, recursive=recursive)
        raise FileNotFoundError(path)  # as S3 says it

    monkeypatch.setattr(type(fs), "remove", second)
    copies.send(6)
    store = Path.cwd().parent / "store/training" / NAME
    assert {path.name.partition("-00")[0] for path in store.iterdir() if "00003" in path.name} == {"step"}


def test_two_runs_at_once_on_one_machine_make_a_training_once(checkout: Enter) -> None:
    scratch = checkout("one")
    said: SimpleQueue[str] = SimpleQueue()
    with copied(scratch, STAGE, print):
        second = threading.Thread(target=train, args=(scratch,), kwargs={"say": said.put}, daemon=True)
        second.start()
        assert said.get(timeout=60) == "another run on this machine is at the same training; waiting for it"
        assert not (scratch / "metrics.jsonl").exists()
    second.join(timeout=60)
    assert (scratch / "step-00012").exists()


def test_without_sharing_nothing_is_sent(checkout: Enter, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = checkout("one")
    monkeypatch.delenv(SHARED)
    train(scratch)
    assert not (Path.cwd().parent / "store").exists() and not (scratch / "ended.json").exists()
